"""The settings file of a project: how it is found and read."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pitboss.config.layers import POOLS, QUEUES, Layer, flat
from pitboss.config.queues import queue_values
from pitboss.config.worker_config import WORKER_CONFIG
from pitboss.model.errors import InvalidInput
from pitboss.model.pool_keys import checked_pool_name, same_pool

FILES = ("pitboss.toml", "pitboss.yaml", "pitboss.yml")
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.pitboss"
_SQLITE = "sqlite:///"


class File(NamedTuple):
    """A file as a layer, the folder that its paths are relative to, the pools and queues that it names, and its
    `worker_config`."""

    layer: Layer
    folder: Path
    pools: tuple[str, ...]
    queues: tuple[str, ...]
    worker_config: Any = None

    @property
    def place(self) -> str:
        return self.layer.detail[""]


def file_layer(start: Path) -> tuple[File | None, tuple[str, ...]]:
    """The nearest file, from a folder upward, and notes about files beside it that are ignored."""
    for folder in (start, *start.parents):
        own = [folder / name for name in FILES if (folder / name).is_file()]
        project = folder / PROJECT_FILE
        table = _project_table(project) if project.is_file() else None
        if own:
            beside = [str(path) for path in own[1:]] + ([f"[{TABLE}] in {project}"] if table is not None else [])
            return _as_file(own[0], _parsed(own[0]), ""), tuple(f"{own[0]} is used; {one} is ignored" for one in beside)
        if table is not None:
            return _as_file(project, table, f"[{TABLE}] in "), ()
    return None, ()


def anchored_store(url: str, folder: Path) -> str:
    path = url.removeprefix(_SQLITE)
    if path == url or not path.strip("?") or path.startswith("/"):
        return url
    return f"{_SQLITE}{folder / path}"


def anchored_path(path: str, folder: Path) -> str:
    return str(folder / path) if path else path


def _anchored_app(target: str, folder: Path) -> str:
    place, colon, name = target.partition(":")
    is_path = place.endswith(".py") or "/" in place
    return f"{folder / place}{colon}{name}" if is_path else target


# How a value that names a file is made relative to a folder.
ANCHORS = {
    "store": anchored_store,
    **dict.fromkeys(("logs", "secrets_file", "http.tls_cert", "http.tls_key"), anchored_path),
}
_SECRET_FILE = re.compile(r"alerts\.channels\.\w+\.\w+_file\Z")
# Tables that are not a setting for each dotted key, and what they are if the file has none.
_TABLES: dict[str, Any] = {POOLS: {}, QUEUES: {}, WORKER_CONFIG: None}


def _as_file(path: Path, values: dict[str, Any], table: str) -> File:
    folder, place = path.parent, f"{table}{path}"
    pools, queues, worker_config = (values.pop(key, default) for key, default in _TABLES.items())
    found = flat(values) | dict(_pool_values(pools, place)) | dict(queue_values(queues))
    if isinstance(found.get("app"), str):
        found["app"] = _anchored_app(found["app"], folder)
    anchor(found, folder)
    layer = Layer("file", found, {"": place})
    return File(layer, folder, _names(pools), _names(queues), worker_config)


def anchor(values: dict[str, Any], folder: Path) -> None:
    """Make names of files relative to the folder, if they are not absolute."""
    for key, value in values.items():
        named = _SECRET_FILE.match(key) and anchored_path
        anchored = ANCHORS.get(key) or named
        if anchored and isinstance(value, str):
            values[key] = anchored(value, folder)


def _names(tables: Any) -> tuple[str, ...]:
    return tuple(tables) if isinstance(tables, Mapping) else ()


def _pool_values(pools: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The dotted keys of the pools. Only `env` is a nested table; any other table is a single value."""
    if not isinstance(pools, Mapping):
        yield POOLS, pools
        return
    _check_pool_names(pools, place)
    for name, keys in pools.items():
        if not isinstance(keys, Mapping) or not keys:
            yield f"{POOLS}.{name}", keys
            continue
        for key, value in keys.items():
            if key == "env" and isinstance(value, Mapping) and value:
                yield from ((f"{POOLS}.{name}.env.{variable}", one) for variable, one in value.items())
            else:
                yield f"{POOLS}.{name}.{key}", value


def _check_pool_names(pools: Mapping[str, Any], place: str) -> None:
    spelled: dict[str, str] = {}
    for name in pools:
        try:
            other = spelled.setdefault(same_pool(checked_pool_name(name)), name)
        except InvalidInput as error:
            raise InvalidInput(f"{error.what} ({place})", why=error.why, fix=error.fix) from error
        if other != name:
            raise InvalidInput(
                f'"{other}" and "{name}" are the same pool ({place})',
                why="in the environment, names that differ only in case, or in - and _, are the same",
                fix="join the two tables, or rename one",
            )


def _project_table(path: Path) -> dict[str, Any] | None:
    if TABLE not in path.read_text(encoding="utf-8", errors="replace"):
        return None  # not our file: its errors are not our concern
    table = _parsed(path).get("tool", {}).get("pitboss")
    return table if isinstance(table, dict) else None


def _parsed(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else _parsed_yaml(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path} cannot be read: {error.what}", why=error.why, fix=error.fix) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read", why=str(error), fix="correct the file at that place") from error
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be opened", why=error.strerror or str(error), fix="check the rights of the file"
        ) from error


def _parsed_yaml(text: str) -> dict[str, Any]:
    from pitboss.config.yaml_file import tables  # slow to import, and most projects have no YAML

    return tables(text)
