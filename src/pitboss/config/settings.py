"""All settings, with types and defaults."""

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from pitboss.config.alerts import AlertSettings
from pitboss.config.http import HttpSettings
from pitboss.config.layers import PREFIX
from pitboss.config.sources import SourceSettings, named_sources
from pitboss.config.values import age, duration, whole
from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.log_settings import LEVELS
from pitboss.model.pool import size
from pitboss.model.pool_keys import MOST_CONCURRENCY, MOST_WORKERS, NO_LIMIT, checked_pool_name
from pitboss.model.queue import checked_name
from pitboss.model.resource import KeyValue
from pitboss.model.resource_keys import checked_keys
from pitboss.model.retention import Retention

DEFAULT_STORE = "sqlite:///pitboss.db"
DEFAULT_LOGS = "logs"


def _cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _names(value: Any) -> Any:
    """A list of names, or text with commas, as in an environment variable."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(checked_name(part, "queue, task or pool") if isinstance(part, str) else part for part in parts)


def _node(value: Any) -> Any:
    """The manager's name; None: that of the host."""
    return checked_name(value, "node") if isinstance(value, str) else value


def _timeout(value: Any) -> Span | None:
    found = None if value is None or value == NO_LIMIT else duration(value)
    if found == 0:
        raise InvalidInput(
            "0 is not a time limit", why="a task needs some time to run", fix='write a time, or "none" for no limit'
        )
    return found


def _no_limit(value: Any) -> Any:
    return None if value == NO_LIMIT else whole(value)


def _size_or_none(value: Any) -> int | None:
    return None if value is None or value == NO_LIMIT else size(value)


def _size_or_0(value: Any) -> int:
    return 0 if value in (0, "0") and not isinstance(value, bool) else size(value)


def _level(value: Any) -> str:
    level = value.lower() if isinstance(value, str) else value
    if not isinstance(level, str) or level not in LEVELS:
        raise InvalidInput(
            f"{value!r:.60} is not a log level",
            why=f"the levels are {', '.join(LEVELS)}",
            fix='write one of them in quotes, such as "info"',
        )
    return level


def _resources(value: Any) -> dict[str, dict[str, KeyValue]]:
    """Checked values by pool and key."""
    tables = value if isinstance(value, Mapping) else {}
    if not isinstance(value, Mapping) or not all(isinstance(keys, Mapping) for keys in tables.values()):
        raise InvalidInput(
            "this is not a table",
            why="a resource pool is a table of keys",
            fix="write [resources.NAME], and its keys below it",
        )
    return {checked_pool_name(name): checked_keys(keys) for name, keys in tables.items()}


Names = Annotated[tuple[str, ...], BeforeValidator(_names), NoDecode]
Positive = Annotated[int, Field(ge=1)]
Whole = Annotated[int, BeforeValidator(whole)]
Duration = Annotated[Span, PlainValidator(duration)]
Age = Annotated[Span | None, PlainValidator(age)]
Size = Annotated[int, PlainValidator(size)]
SizeOrNone = Annotated[int | None, PlainValidator(_size_or_none)]
_KEPT = Retention()


class RetentionSettings(BaseModel):
    """How long finished tasks, the logs and figures are kept; "forever" keeps them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    completed: Age = _KEPT.completed
    cancelled: Age = _KEPT.cancelled
    failed: Age = _KEPT.failed
    events: Age = _KEPT.events
    figures_10s: Age = _KEPT.figures_10s
    figures_1m: Age = _KEPT.figures_1m
    figures_1h: Age = _KEPT.figures_1h
    happenings: Age = _KEPT.happenings
    audit: Age = _KEPT.audit


class DefaultSettings(BaseModel):
    """What applies to handlers and queues that do not say otherwise. `backoff` is the pause before a first retry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: Annotated[Positive | None, BeforeValidator(whole)] = None
    timeout: Annotated[Span | None, PlainValidator(_timeout)] = None
    backoff: Annotated[Span | None, PlainValidator(duration)] = None
    queue_capacity: Annotated[Positive | None, BeforeValidator(_no_limit)] = None


class SingleSettings(BaseSettings):
    """All settings except pools and queues. In the environment they are `PITBOSS_…`, with `__` between nested names."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        validate_default=False,
        frozen=True,
        extra="forbid",
    )

    app: str | None = None
    node: Annotated[str | None, BeforeValidator(_node)] = None
    store: str = DEFAULT_STORE
    workers: Whole = Field(default_factory=_cores, ge=1, le=MOST_WORKERS)
    concurrency: Whole = Field(default=16, ge=1, le=MOST_CONCURRENCY)
    only_queues: Names = ()
    only_pools: Names = ()
    on_start: Names = ()
    drain: Duration = span("30s")
    host_memory: SizeOrNone = None
    max_store_size: SizeOrNone = None
    min_free_disk: Annotated[int, PlainValidator(_size_or_0)] = size("500MB")
    logs: str = Field(default=DEFAULT_LOGS, min_length=1)
    log_level: Annotated[str, PlainValidator(_level)] = "info"
    log_size: Size = size("200MB")
    log_age: Duration = span("14d")
    secrets_file: str | None = Field(default=None, min_length=1)
    resources: Annotated[dict[str, dict[str, Any]], BeforeValidator(_resources)] = {}
    defaults: DefaultSettings = DefaultSettings()
    retention: RetentionSettings = RetentionSettings()
    http: HttpSettings = HttpSettings()
    alerts: AlertSettings = AlertSettings()
    sources: Annotated[dict[str, SourceSettings], BeforeValidator(named_sources)] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `loading` has merged the layers already.
        return (init_settings,)

    def kept(self) -> Retention:
        return Retention(**dict(self.retention))


class Settings(SingleSettings):
    """All settings. `pools` and `queues` hold the keys that file and environment set; `config.pools` and
    `config.queue_settings` add those of the code."""

    pools: dict[str, dict[str, Any]] = {}
    queues: dict[str, dict[str, Any]] = {}
