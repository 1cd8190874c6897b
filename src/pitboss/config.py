"""Settings: command line > environment > file > code > default. The only reader of the environment.

The file is the nearest `pitboss.toml` or `pyproject.toml` with a `[tool.pitboss]` table, from the working folder
upward. Paths in it are relative to its folder. `code` is the store that a program hands to `App(...)`.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.model.retention import Retention

FILE = "pitboss.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.pitboss"
DEFAULT_STORE = "sqlite:///pitboss.db"
_SQLITE = "sqlite:///"
_PREFIX = "PITBOSS_"
_FOREVER = "forever"


def _cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _names(value: Any) -> Any:
    """A list of names, or text with commas, which is how the environment writes a list."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return tuple(checked_name(part, "queue or task") for part in parts) if isinstance(parts, list | tuple) else parts


def _duration(value: Any) -> Span:
    # The environment has only text: there, too, a bare number is a number of seconds.
    bare = isinstance(value, str) and value.isdigit()
    return span(int(value) if bare else value)


def _age(value: Any) -> Span | None:
    return None if value == _FOREVER else _duration(value)


Names = Annotated[tuple[str, ...], BeforeValidator(_names), NoDecode]
Duration = Annotated[Span, PlainValidator(_duration)]
Age = Annotated[Span | None, PlainValidator(_age)]
_KEPT = Retention()


class RetentionSettings(BaseModel):
    """How long finished tasks are kept; "forever" keeps them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    completed: Age = _KEPT.completed
    cancelled: Age = _KEPT.cancelled
    failed: Age = _KEPT.failed


class Settings(BaseSettings):
    """What a process can be told from outside; every name is `PITBOSS_…` in the environment, nested ones with `__`."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        validate_default=False,
        frozen=True,
        extra="forbid",
    )

    app: str | None = None
    store: str = DEFAULT_STORE
    workers: int = Field(default_factory=_cores, ge=1, le=1000)
    concurrency: int = Field(default=16, ge=1, le=10_000)
    queues: Names = ()
    on_start: Names = ()
    drain: Duration = span("30s")
    retention: RetentionSettings = RetentionSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load` has merged the layers already, and knows where each value came from.
        return (init_settings,)

    def kept(self) -> Retention:
        kept = self.retention
        return Retention(completed=kept.completed, cancelled=kept.cancelled, failed=kept.failed)


class Layer(NamedTuple):
    """Values from one place, by dotted key. `place` and `detail` say where, in words."""

    place: str
    values: dict[str, Any]
    detail: Mapping[str, str] = {}

    def where(self, key: str) -> str:
        detail = self.detail.get(key) or self.detail.get("")
        return f"{self.place} ({detail})" if detail else self.place


class Loaded(NamedTuple):
    """Settings, where each value came from, what a person should be told, and the project's folder if a file says."""

    settings: Settings
    origins: dict[str, str]
    notes: tuple[str, ...]
    folder: Path | None


def load(*, store: str | None = None) -> Settings:
    """The settings of a process without a command line. `store` is what its code says."""
    return loaded(code_store=store).settings


def loaded(given: Mapping[str, Any] | None = None, *, code_store: str | None = None) -> Loaded:
    """All layers merged. `given` is the command line's; what is None there was not given."""
    here = _working_folder()
    told = {key: value for key, value in (given or {}).items() if value is not None}
    file, notes = _file_layer(here)
    layers = [
        Layer("command line", told, {key: f"--{key.replace('_', '-')}" for key in told if key != "app"}),
        _environment_layer(),
        *([file.layer] if file else []),
        Layer("code", {"store": code_store} if code_store else {}, {"": "App(…)"}),
        # Like a path in the file: a default that moved with the working folder would open another store there.
        Layer("default", {"store": _anchored_store(DEFAULT_STORE, file.folder if file else here)}),
    ]
    for layer in layers:
        if isinstance(layer.values.get("store"), str):
            layer.values["store"] = _anchored_store(layer.values["store"], here)
    sources = {key: layer for layer in reversed(layers) for key in layer.values}
    settings = _checked({key: layer.values[key] for key, layer in sources.items()}, sources)
    origins = {key: sources[key].where(key) if key in sources else "default" for key in flat(settings.model_dump())}
    return Loaded(settings, origins, (*notes, *_unknown_variables()), file.folder if file else None)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found.update(flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return found


def variable(key: str) -> str:
    """The environment's name of a dotted key."""
    return _PREFIX + key.upper().replace(".", "__")


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InvalidInput(
            "the working folder is gone", why="somebody has removed it", fix="change to a folder that exists"
        ) from error


class _File(NamedTuple):
    layer: Layer
    folder: Path


def _file_layer(start: Path) -> tuple[_File | None, tuple[str, ...]]:
    for folder in (start, *start.parents):
        own, project = folder / FILE, folder / PROJECT_FILE
        table = _project_table(project) if project.is_file() else None
        if own.is_file():
            both = (f"{own} is used; [{TABLE}] in {project} is ignored",) if table is not None else ()
            return _as_file(own, _parsed(own), ""), both
        if table is not None:
            return _as_file(project, table, f"[{TABLE}] in "), ()
    return None, ()


def _as_file(path: Path, values: dict[str, Any], table: str) -> _File:
    folder = path.parent
    found = flat(values)
    if isinstance(found.get("store"), str):
        found["store"] = _anchored_store(found["store"], folder)
    if isinstance(found.get("app"), str):
        found["app"] = _anchored_app(found["app"], folder)
    return _File(Layer("file", found, {"": f"{table}{path}"}), folder)


def _project_table(path: Path) -> dict[str, Any] | None:
    if TABLE not in path.read_text(encoding="utf-8", errors="replace"):
        return None  # somebody else's file: whether it is in order is not for us to say
    table = _parsed(path).get("tool", {}).get("pitboss")
    return table if isinstance(table, dict) else None


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read", why=str(error), fix="correct the file at that place") from error
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be opened", why=error.strerror or str(error), fix="check the rights of the file"
        ) from error


def _anchored_store(url: str, folder: Path) -> str:
    path = url.removeprefix(_SQLITE)
    if path == url or not path.strip("?") or path.startswith("/"):
        return url
    return f"{_SQLITE}{folder / path}"


def _anchored_app(target: str, folder: Path) -> str:
    place, colon, name = target.partition(":")
    is_path = place.endswith(".py") or "/" in place
    return f"{folder / place}{colon}{name}" if is_path else target


def _environment_layer() -> Layer:
    try:
        values = flat(EnvSettingsSource(Settings)())
    except Exception as error:  # pydantic-settings has no narrower class for text that it cannot decode
        raise InvalidInput(
            "the environment cannot be read",
            why=str(error),
            fix=f"correct or unset the variable; nested values are written like {variable('retention.failed')}",
        ) from error
    return Layer("environment", values, {key: variable(key) for key in values})


def _unknown_variables() -> Iterator[str]:
    known = [variable(key) for key in flat(Settings().model_dump())]
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            yield f"{name} is not a setting and is ignored" + (f"; did you mean {close[0]}?" if close else "")


def _checked(values: dict[str, Any], sources: Mapping[str, Layer]) -> Settings:
    try:
        return Settings.model_validate(_nested(values))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in fault["loc"])
        key = next((known for known in values if known == key or key.startswith(f"{known}.")), key)
        raise _refused(key, values.get(key), fault, sources.get(key)) from error


def _refused(key: str, value: Any, fault: Any, layer: Layer | None) -> InvalidInput:
    where = layer.where(key) if layer else "settings"
    if fault["type"] == "extra_forbidden":
        known = list(flat(Settings().model_dump()))
        close = difflib.get_close_matches(key, known, n=1)
        return InvalidInput(
            f'there is no setting "{key}" ({where})',
            why=f"the settings are {', '.join(known)}",
            fix=f'write "{close[0]}"' if close else "remove it",
        )
    what = f"{key} = {value!r:.60} cannot be used; it comes from the {where}"
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return InvalidInput(what, why=cause.why, fix=cause.fix)
    return InvalidInput(what, why=fault["msg"], fix=f"correct it there, or leave it out for the default of {key}")


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *tables, last = key.split(".")
        place = nested
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return nested
