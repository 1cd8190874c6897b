"""All layers of settings merged and checked, with the origin of each value."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import ValidationError

from pitboss.config.alerts import ALERTS, keys_of
from pitboss.config.environment import environment_layer, notes_on_variables, working_folder
from pitboss.config.files import File, anchor, anchored_path, anchored_store, file_layer
from pitboss.config.http import without_partner
from pitboss.config.layers import POOLS, QUEUES, Layer, flat, is_in, nested
from pitboss.config.pools import pool_tables
from pitboss.config.queues import KEYS as QUEUE_KEYS
from pitboss.config.queues import queue_tables
from pitboss.config.settings import DEFAULT_LOGS, DEFAULT_STORE, Settings
from pitboss.config.sources import KEYS as SOURCE_KEYS
from pitboss.config.sources import SOURCES
from pitboss.config.worker_config import WORKER_CONFIG, worker_config_layer
from pitboss.model.errors import InvalidInput
from pitboss.model.partition_keys import TABLES
from pitboss.model.pool_keys import KEYS
from pitboss.model.resource_keys import checked

_SQLITE = "sqlite:///"
_KEYS = "keys"
# Tables within the table of a queue.
_NESTED = {"retention", *TABLES}


class Loaded(NamedTuple):
    """The settings, the origin of each, notes for people, and the project's folder if there is a settings file."""

    settings: Settings
    origins: dict[str, str]
    notes: tuple[str, ...]
    folder: Path | None


def load(*, store: str | None = None) -> Settings:
    """The settings of a process without a command line. `store` is the one in its code."""
    return loaded(code_store=store).settings


def loaded(given: Mapping[str, Any] | None = None, *, code_store: str | None = None) -> Loaded:
    """All layers merged. `given` is from the command line; None means not given."""
    here = working_folder()
    told = {key: value for key, value in (given or {}).items() if value is not None}
    file, notes = file_layer(here)
    folder, pools, queues = (file.folder, file.pools, file.queues) if file else (here, (), ())
    said = [
        Layer("command line", told, {key: _option(key) for key in told if key != "app"}),
        environment_layer(pools, queues),
        *([file.layer] if file else []),
    ]
    layers = [
        *said,
        *_worker_config(file, said),
        Layer("code", {"store": code_store} if code_store else {}, {"": "App(…)"}),
        # Relative to the project, like a path in the file: it must not depend on the working folder.
        Layer("default", {"store": anchored_store(DEFAULT_STORE, folder), "logs": anchored_path(DEFAULT_LOGS, folder)}),
    ]
    _anchor(layers, here)
    sources = {key: layer for layer in reversed(layers) for key in layer.values}
    settings = _checked({key: layer.values[key] for key, layer in sources.items()}, sources)
    origins = {
        key: sources[key].where(key) if key in sources else "default"
        for key in flat(settings.model_dump(by_alias=True))
    }
    notes = (*notes, *notes_on_variables(pools, queues), *_note_on_slots(settings, origins))
    return Loaded(settings, origins, notes, file.folder if file else None)


def key_file(found: Loaded) -> Path:
    """The file with the keys of secrets: as set, else beside the SQLite file, else in the project."""
    settings = found.settings
    if settings.secrets_file is not None:
        return Path(settings.secrets_file)
    path = settings.store.removeprefix(_SQLITE).partition("?")[0]
    if settings.store.startswith(_SQLITE) and path:
        return Path(f"{path}-pitboss") / _KEYS
    return (found.folder or working_folder()) / ".pitboss" / _KEYS


def _option(key: str) -> str:
    """The option that sets this key on the command line."""
    others = {"http.enabled": "--no-http", "only_queues": "--queues"}
    return others.get(key, f"--{key.removeprefix('http.').replace('_', '-')}")


def _worker_config(file: File | None, above: list[Layer]) -> Iterator[Layer]:
    if file and file.worker_config is not None:
        values = {key: value for layer in reversed(above) for key, value in layer.values.items()}
        yield worker_config_layer(file.worker_config, file.place, values)


def _note_on_slots(settings: Settings, origins: Mapping[str, str]) -> Iterator[str]:
    if settings.pools and WORKER_CONFIG in origins["concurrency"]:
        key, number = f"{WORKER_CONFIG}.max_concurrent_tasks", settings.concurrency
        yield f"{key} is not a total here: each worker of a pool without its own concurrency runs {number} tasks"


def _anchor(layers: list[Layer], here: Path) -> None:
    """Paths that are still relative were given in the working folder."""
    for layer in layers:
        anchor(layer.values, here)


def _checked(values: dict[str, Any], sources: Mapping[str, Layer]) -> Settings:
    def refuse(key: str, value: Any, error: InvalidInput) -> NoReturn:
        raise _refused_key(key, value, error, sources[key].where(key)) from error

    def within(table: str) -> dict[str, Any]:
        return {key: value for key, value in values.items() if is_in(table, key)}

    _check_resources(values, sources)
    _check_tls(values, sources)
    tables = {POOLS: pool_tables(within(POOLS), refuse), QUEUES: queue_tables(within(QUEUES), refuse)}
    single = nested({key: value for key, value in values.items() if not (is_in(POOLS, key) or is_in(QUEUES, key))})
    try:
        return Settings.model_validate(single | {key: table for key, table in tables.items() if table})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in fault["loc"])
        # The error may be deeper than a given value, or in the table around it.
        near = next((one for one in values if f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.")), key)
        key = near if key.startswith(near) else key
        raise _refused(key, values.get(key), fault, sources.get(near)) from error


def _check_resources(values: Mapping[str, Any], sources: Mapping[str, Layer]) -> None:
    """Before the rest, so that the error names the key and not the whole table."""
    for key, value in values.items():
        match key.split("."):
            case ["resources", _, name]:
                try:
                    checked(name, value)
                except InvalidInput as error:
                    raise _unusable(key, value, sources[key].where(key), error) from error


def _check_tls(values: Mapping[str, Any], sources: Mapping[str, Layer]) -> None:
    alone = without_partner(values)
    if alone is not None:
        cause = InvalidInput(
            "", why="a certificate is of use only together with its key", fix="set both http.tls_cert and http.tls_key"
        )
        raise _unusable(alone, values[alone], sources[alone].where(alone), cause)


def _refused(key: str, value: Any, fault: Any, layer: Layer | None) -> InvalidInput:
    where = layer.where(key) if layer else "settings"
    if fault["type"] == "extra_forbidden":
        match key.split("."):
            case ["alerts", "channels" | "rules" as table, name, _]:
                known = [f"{ALERTS}.{table}.{name}.{one}" for one in keys_of(table)]
                what = f"the keys of a {table.removesuffix('s')} are {', '.join(keys_of(table))}"
                return _no_such_setting(key, where, known, what)
            case ["sources", source, _]:
                known = [f"{SOURCES}.{source}.{one}" for one in SOURCE_KEYS]
                return _no_such_setting(key, where, known, f"the keys of a source are {', '.join(SOURCE_KEYS)}")
        known = [*flat(Settings().model_dump(by_alias=True)), POOLS, QUEUES, SOURCES, WORKER_CONFIG]
        return _no_such_setting(key, where, known, f"the settings are {', '.join(known)}")
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return _unusable(key, value, where, cause)
    default = f"correct it there, or leave it out for the default of {key}"
    return _unusable(key, value, where, InvalidInput("", why=fault["msg"], fix=default))


def _refused_key(key: str, value: Any, error: InvalidInput, where: str) -> InvalidInput:
    """A key of a pool or queue."""
    match key.split("."):
        case ["queues", *queue, name] if queue and name not in (*QUEUE_KEYS, *TABLES) and not _NESTED & {*queue}:
            known = [".".join((QUEUES, *queue, one)) for one in QUEUE_KEYS]
            return _no_such_setting(key, where, known, error.why)
        case ["pools", pool, name] if name not in KEYS:
            known = [f"{POOLS}.{pool}.{one}" for one in KEYS]
            return _no_such_setting(key, where, known, f"the keys of a pool are {', '.join(KEYS)}")
        case ["pools", _, "env", *_]:
            # A value there may be a secret.
            return InvalidInput(f"{key} cannot be used; it comes from the {where}", why=error.why, fix=error.fix)
    return _unusable(key, value, where, error)


def _no_such_setting(key: str, where: str, known: list[str], why: str) -> InvalidInput:
    close = difflib.get_close_matches(key, known, n=1)
    return InvalidInput(
        f'there is no setting "{key}" ({where})', why=why, fix=f'write "{close[0]}"' if close else "remove it"
    )


def _unusable(key: str, value: Any, where: str, cause: InvalidInput) -> InvalidInput:
    # An address may have a password, and one that cannot be read cannot be masked.
    hidden = key.startswith((f"{SOURCES}.", f"{ALERTS}.channels.")) and key.endswith((".url", ".secret", ".password"))
    shown = "" if hidden else f" = {value!r:.60}"
    what = f"{key}{shown} cannot be used; it comes from the {where}"
    if value is None and cause.what:
        # A whole table: its cause names the part.
        what = f"{cause.what}; it comes from the {where}"
    return InvalidInput(what, why=cause.why, fix=cause.fix)
