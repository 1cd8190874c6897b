"""The settings of a worker: from the command line, the environment, a file, or the default, in this order."""

import argparse
import difflib
import os
import re
import tomllib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pitboss.remote.errors import ConfigError

# Setting -> where its value is from, as people call that place, and the value as it was written there.
Layer = dict[str, tuple[str, Any]]

LONGEST_NAME = 200


def _url(value: Any) -> str:
    text = str(value).strip()
    if not text:
        raise ValueError("a worker gets its tasks from the API at this address")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with http:// or https:// and a host")
    return text


def _text(value: Any) -> str:
    text = str(value).strip()
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"it must have 1 to {LONGEST_NAME} printable characters")
    return text


def _key(value: Any) -> str:
    text = str(value).strip()
    if not text.isascii() or not text.isprintable():
        raise ValueError("a key has only printable ASCII characters")
    return text


def _number(least: float, most: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"it must be a number of seconds from {least:g} to {most:g}")
        return number

    return parse


def _count(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        text = str(value).strip()
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise ValueError(f"it must be a whole number, {least} or more")
        return int(text)

    return parse


def _switch(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ValueError("it must be true or false")
    return text in ("true", "1", "yes", "on")


def _ids(value: Any) -> tuple[int, ...]:
    items: Iterable[Any] = re.split(r"[\s,]+", value.strip(" ,")) if isinstance(value, str) else value
    try:
        return tuple(_count(1)(item) for item in items)
    except (TypeError, ValueError):
        raise ValueError("it must be ids of task types: whole numbers with commas in between") from None


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


def _setting(env: str, parse: Callable[[Any], Any], example: str, text: str, **default: Any) -> Any:
    return field(metadata={"env": env, "parse": parse, "example": example, "help": text}, **default)


@dataclass(frozen=True)
class Config:
    """Each setting has a name here and in a TOML file, a flag, and a name in the environment and in a .env file."""

    api_url: str = _setting(
        "TASKMANAGER_API_URL",
        _url,
        "http://localhost:8000/api",
        "address of the API",
        default="http://localhost:8000/api",
    )
    api_key: str = _setting(
        "TASKMANAGER_API_KEY",
        _key,
        "KEY",
        "key of the API (other users of this machine can see flags)",
        default="",
        repr=False,
    )
    worker_id: str = _setting(
        "WORKER_ID", _text, "worker-1", "name of this worker", default_factory=lambda: f"worker-{uuid.uuid4().hex[:8]}"
    )
    task_type_ids: tuple[int, ...] = _setting(
        "WORKER_TASK_TYPE_IDS", _ids, "1,2", "claim only tasks of the types with these ids", default=()
    )
    type_pattern: str | None = _setting(
        "WORKER_TYPE_PATTERN", _optional(_text), "youtube.%", "claim only tasks of types like this; %% is any text",
        default=None,
    )  # fmt: skip
    poll_interval: float = _setting(
        "POLL_INTERVAL", _number(0.01, 3600), "10", "seconds between two claims while there are no tasks", default=10.0
    )
    max_runs: int = _setting(
        "MAX_RUNS", _count(0), "100", "end after this many completed tasks; 0: go on for ever", default=0
    )
    debug: bool = _setting("DEBUG", _switch, "true", "log more", default=False)
    concurrency: int = _setting("WORKER_CONCURRENCY", _count(1), "4", "how many tasks run at a time", default=1)
    prefetch: int = _setting("WORKER_PREFETCH", _count(0), "0", "how many more tasks to claim in advance", default=0)
    claim_timeout: float | None = _setting(
        "WORKER_CLAIM_TIMEOUT", _optional(_number(1, 86_400)), "300",
        "seconds after which a task of a dead worker is given to another; the type says it by default", default=None,
    )  # fmt: skip
    shutdown_grace: float = _setting(
        "WORKER_SHUTDOWN_GRACE", _number(0, 86_400), "25", "seconds that running tasks have after SIGTERM", default=25.0
    )
    max_consecutive_errors: int = _setting(
        "WORKER_MAX_CONSECUTIVE_ERRORS", _count(1), "5", "end after this many failed claims in a row", default=5
    )
    request_timeout: float = _setting(
        "WORKER_REQUEST_TIMEOUT", _number(0.1, 600), "10", "seconds that the API has for an answer", default=10.0
    )
    retry_for: float = _setting(
        "WORKER_RETRY_FOR", _number(0, 3600), "15", "seconds for which a failed call is repeated", default=15.0
    )
    report_for: float = _setting(
        "WORKER_REPORT_FOR", _number(0, 86_400), "120", "seconds for which a failed report is repeated", default=120.0
    )
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in SETTINGS:
            object.__setattr__(self, name, _parsed(name, name, getattr(self, name)))

    def __getitem__(self, name: str) -> Any:
        """A setting, or one of the worker's own: from `config`, the environment or the file, in this order."""
        if name in SETTINGS:
            return getattr(self, name)
        return self.extra[name] if name in self.extra else os.environ[name]

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    @classmethod
    def validate(cls) -> "Config":
        """Check the environment and the file. Raises ConfigError, a ValueError. A Config that exists is valid."""
        return cls.load()

    @classmethod
    def load(
        cls, argv: Sequence[str] | None = None, *, settings: Mapping[str, Any] | None = None,
        file: str | Path | None = None, about: str = "A Pitboss worker",
    ) -> "Config":  # fmt: skip
        """`settings`, then the flags in `argv`, then the environment, then `file`, or `.env` if there is one."""
        flags = _from_flags(argv, about) if argv is not None else {}
        chosen = flags.pop("config", ("", file))[1]
        layers = [_from_file(chosen), _from_environment(), flags, _named(settings or {}, "")]
        values: Layer = {name: said for layer in layers for name, said in layer.items()}
        # The environment beats the file here too.
        own = {name: value for name, (_, value) in values.items() if name not in SETTINGS}
        extra = {
            name: os.environ.get(name, value) if name not in (settings or {}) else value for name, value in own.items()
        }
        known = {name: _parsed(name, *said) for name, said in values.items() if name in SETTINGS}
        return cls(**known, extra=extra)


SETTINGS: dict[str, Mapping[str, Any]] = {one.name: one.metadata for one in fields(Config) if one.metadata}
_ENVIRONMENT = {said["env"]: name for name, said in SETTINGS.items()}


def _parsed(name: str, source: str, value: Any) -> Any:
    said = SETTINGS[name]
    try:
        return said["parse"](value)
    except ValueError as error:
        what = (
            f"{source} is required" if value == "" else f"{source} is {'wrong' if name == 'api_key' else repr(value)}"
        )
        flag = f"--{name.replace('_', '-')}"
        fix = f"pass {flag}, or set {said['env']} in the environment, for example {said['env']}={said['example']}"
        raise ConfigError(what, why=str(error), fix=fix) from None


def _named(values: Mapping[str, Any], file: str) -> Layer:
    """Values by setting name. Unknown names belong to the worker's own code, unless one looks like a typing error."""
    for name in values.keys() - SETTINGS.keys():
        if close := difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.8):
            raise ConfigError(
                f'{file or "config"}: there is no setting "{name}"',
                why=f'it is nearly "{close[0]}", so it is probably a typing error',
                fix=f"write {close[0]}, or choose a name that differs more for a setting of your own",
            )
    return {name: (f"{file}: {name}" if file else name, value) for name, value in values.items()}


def _from_environment() -> Layer:
    """An empty value counts as none, but an empty address is an error."""
    found = ((name, env, os.environ.get(env)) for env, name in _ENVIRONMENT.items())
    return {name: (env, value) for name, env, value in found if value or (name == "api_url" and value is not None)}


def _from_flags(argv: Sequence[str], about: str) -> Layer:
    parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
    parser.add_argument(
        "--config", metavar="FILE", help="file with settings: TOML, or NAME=value lines (default: .env)"
    )
    for name, said in SETTINGS.items():
        how: dict[str, Any] = {"metavar": said["example"]}
        if name == "debug":
            how = {"action": "store_const", "const": "true"}
        elif name == "task_type_ids":
            how["nargs"] = "+"
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{said['help']} [{said['env']}]", **how)
    found = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    if "task_type_ids" in found:
        found["task_type_ids"] = ",".join(found["task_type_ids"])
    return {name: (f"--{name.replace('_', '-')}", value) for name, value in found.items()}


def _from_file(chosen: str | Path | None) -> Layer:
    path = Path(chosen or ".env")
    if not chosen and not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            tables = tomllib.loads(text)
            return _named(tables.get("worker", tables), path.name)
    except (OSError, ValueError) as error:
        fix = "pass the name of a TOML file, or of a file with NAME=value lines"
        raise ConfigError(f"cannot read {path}", why=str(error), fix=fix) from None
    found = _env_lines(text, path.name)
    return {_ENVIRONMENT.get(name, name): (f"{path.name}: {name}", value) for name, value in found.items() if value}


def _env_lines(text: str, file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        form = re.fullmatch(r"\s*(?:export\s+)?(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|(.*?))(?:\s+#.*)?\s*", line)
        if not form:
            why = f"{line.strip()[:40]!r} has no NAME=value form"
            raise ConfigError(f"{file}, line {number} cannot be read", why=why, fix="write NAME=value, or # before it")
        found[form[1]] = next((value for value in form.groups()[1:] if value is not None), "")
    return found
