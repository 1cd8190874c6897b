"""The environment variables and the working folder of the process. No other module reads them."""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_settings import EnvSettingsSource

from pitboss.config.alerts import ALERTS, keys_of
from pitboss.config.layers import POOLS, PREFIX, QUEUES, RESOURCES, Layer, flat, variable
from pitboss.config.queues import KEYS as QUEUE_KEYS
from pitboss.config.queues import queue_value, same_queue, spelled_queue
from pitboss.config.settings import SingleSettings
from pitboss.config.sources import KEYS as SOURCE_KEYS
from pitboss.config.sources import SOURCES
from pitboss.model.duration import Span
from pitboss.model.errors import InvalidInput
from pitboss.model.pool_keys import KEYS, same_pool
from pitboss.model.resource_keys import KEYS as RESOURCE_KEYS

_POOL = re.compile(
    rf"{PREFIX}{POOLS}__(?P<pool>[a-z0-9]+(?:_[a-z0-9]+)*)__(?:env__(?P<env>\w+)|(?P<key>\w+))\Z", re.IGNORECASE
)
_QUEUE = re.compile(
    rf"{PREFIX}{QUEUES}__(?P<queue>\w+?)__(?P<key>{'|'.join(key.replace('.', '__') for key in QUEUE_KEYS)})\Z",
    re.IGNORECASE,
)
# A table does not fit into one variable: each of its entries has its own.
_SINGLE_KEYS = tuple(key for key in KEYS if key != "env")
_ALIKE = 0.8
# A rule may be switched off by one word instead of a table of keys.
_RULE_DEPTH = 2
SECRET_KEYS = f"{PREFIX}SECRET_KEYS"
_TRACES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER, _NO_TRACES = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"


class _PoolVariable(NamedTuple):
    name: str
    pool: str
    key: str
    value: str


def working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InvalidInput(
            "the working folder is gone", why="it was removed", fix="change to a folder that exists"
        ) from error


def inherited() -> dict[str, str]:
    """All variables, to pass on to a child process."""
    return dict(os.environ)


def secret_keys() -> tuple[str, ...]:
    """The keys of secrets, newest first. Not a setting, because settings are shown to people."""
    return tuple(part.strip() for part in os.environ.get(SECRET_KEYS, "").split(",") if part.strip())


class ServiceManager(NamedTuple):
    """What systemd tells a service: where it listens, and how often it wants a sign of life."""

    address: str | None = None
    watchdog: Span | None = None


def service_manager() -> ServiceManager:
    """Empty if no service manager waits for this process."""
    address, usec, pid = (os.environ.get(name) for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    meant = pid in (None, "", str(os.getpid()))
    watchdog = int(usec) if usec and usec.isdecimal() and meant else 0
    return ServiceManager(address or None, watchdog or None)


def asks_for_traces() -> bool:
    """Whether the variables of OpenTelemetry say where traces go."""
    told = {name: os.environ.get(name, "").strip().lower() for name in (*_TRACES, _EXPORTER, _NO_TRACES)}
    if told[_NO_TRACES] == "true" or told[_EXPORTER] not in ("", "otlp"):
        return False
    return any(told[name] for name in (*_TRACES, _EXPORTER))


def environment_layer(pools: Collection[str], queues: tuple[str, ...]) -> Layer:
    """The settings in the variables. `pools` and `queues` are those that the file names, in its spelling."""
    try:
        values = EnvSettingsSource(SingleSettings)()
    except Exception as error:  # pydantic-settings has no narrower class for text that it cannot decode
        raise InvalidInput(
            "the environment cannot be read",
            why=str(error),
            fix=f"correct or unset the variable; nested values are written like {variable('retention.failed')}",
        ) from error
    found = flat(values)
    detail = {key: variable(key) for key in found}
    for one in _pool_variables(pools):
        key = f"{POOLS}.{one.pool}.{one.key}"
        found[key], detail[key] = one.value, one.name
    for name, key, value in _queue_variables(queues):
        found[key], detail[key] = value, name
    return Layer("environment", found, detail)


def notes_on_variables(pools: Collection[str], queues: tuple[str, ...]) -> Iterator[str]:
    """Warnings about variables that look like ours but set nothing, or something unexpected."""
    ours = {one.name: one for one in _pool_variables(pools)}
    settings = [variable(key) for key in flat(SingleSettings().model_dump(by_alias=True))]
    named = sorted({*pools, *(one.pool for one in ours.values())})
    known = [*settings, *(variable(f"{POOLS}.{pool}.{key}") for pool in named for key in _SINGLE_KEYS)]
    known += [variable(f"{QUEUES}.{same_queue(queue)}.{key}") for queue in queues for key in QUEUE_KEYS]
    known += [name for name, _, _ in _queue_variables(queues)]
    for name, value in sorted(os.environ.items()):
        if name in ours:
            yield from _note_on_pool(ours[name], pools)
        elif name.startswith(PREFIX) and name not in (*known, SECRET_KEYS) and value and not _is_table_key(name):
            close = difflib.get_close_matches(name, known, n=1)
            yield f"{name} is not a setting and is ignored" + (f"; did you mean {close[0]}?" if close else "")


def _is_table_key(name: str) -> bool:
    """Whether it is a key of a resource pool, a source, or a channel or rule of alerts, whatever its name."""
    key = name.lower().rpartition("__")[2]
    tables = (
        (RESOURCES, RESOURCE_KEYS),
        (SOURCES, SOURCE_KEYS),
        (f"{ALERTS}.channels", keys_of("channels")),
        (f"{ALERTS}.rules", keys_of("rules")),
    )
    if name.startswith(variable(f"{ALERTS}.rules.")) and name.count("__") == _RULE_DEPTH:
        return True
    return any(name.startswith(variable(f"{table}.")) and key in keys for table, keys in tables)


def _note_on_pool(one: _PoolVariable, pools: Collection[str]) -> Iterator[str]:
    if one.pool not in pools:
        close = difflib.get_close_matches(one.pool, [same_pool(name) for name in pools], n=1, cutoff=_ALIKE)
        if close:
            meant = variable(f"{POOLS}.{close[0]}.{one.key}")
            yield f'{one.name} names a pool "{one.pool}", which the file does not have; did you mean {meant}?'


def _pool_variables(pools: Iterable[str]) -> Iterator[_PoolVariable]:
    spelled = {same_pool(name): name for name in pools}
    for name, value in sorted(os.environ.items()):
        match = _POOL.match(name)
        if match is None or not value:
            continue
        pool = match["pool"].lower()
        key = f"env.{match['env']}" if match["env"] else match["key"].lower()
        if match["env"] or key in _SINGLE_KEYS:
            yield _PoolVariable(name, spelled.get(pool, pool), key, value)


def _queue_variables(queues: tuple[str, ...]) -> Iterator[tuple[str, str, Any]]:
    """Each variable of a queue with its dotted keys. One for all states comes before one for a single state."""
    for name, value in sorted(os.environ.items()):
        if name.upper() == variable(QUEUES) and value:
            yield name, QUEUES, value
        match = _QUEUE.match(name)
        if match is None or not value:
            continue
        queue = spelled_queue(match["queue"].lower(), queues)
        for key, one in queue_value(queue, match["key"].lower().replace("__", "."), value):
            yield name, key, one
