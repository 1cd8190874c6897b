"""The limits of a queue: which of them an operator set, and what is declared."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from pitboss.client.queue_flows import read_forecasts
from pitboss.engines.protocol import Queues, Store
from pitboss.model.duration import Moment, Span, spoken
from pitboss.model.errors import NotFound
from pitboss.model.limits import Window
from pitboss.model.partition import Partitioning
from pitboss.model.queue import LIMITS, Queue, QueueChange, QueueSettings
from pitboss.model.queue_forecast import QueueForecast
from pitboss.model.retention import FOREVER
from pitboss.model.text import counted
from pitboss.operate.lookup import did_you_mean

_NONE = "none"


class LimitReading(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that is set: by whom, and what is declared. Both values are for people."""

    key: str
    value: str
    source: Literal["declared", "operator"]
    declared: str


async def find_queue(store: Queues, name: str) -> Queue:
    """The queue of this name."""
    known = {queue.name: queue for queue in await store.queues()}
    if name in known:
        return known[name]
    raise NotFound(
        f'there is no queue "{name}"',
        why=f"the queues are {', '.join(known)}" if known else "the first task of a queue creates it",
        fix=did_you_mean(name, known, "check the name; pitboss queues list shows the queues"),
    )


class QueueReading(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and what becomes of its backlog."""

    queue: Queue
    forecast: QueueForecast


async def read_queues(store: Store, now: Moment) -> list[QueueReading]:
    queues = await store.queues()
    forecasts = await read_forecasts(store, now, queues=queues)
    return [QueueReading(queue=one, forecast=forecasts[one.name]) for one in queues]


async def read_queue(store: Store, name: str, now: Moment) -> QueueReading:
    """`NotFound` if there is no such queue."""
    queue = await find_queue(store, name)
    forecasts = await read_forecasts(store, now, queues=[queue])
    return QueueReading(queue=queue, forecast=forecasts[name])


async def limit_queue(store: Queues, name: str, change: QueueChange) -> Queue:
    """Set limits above what is declared, or withdraw them. Only the former creates a queue that does not exist."""
    if all(getattr(change, key) is msgspec.UNSET for key in LIMITS):
        await find_queue(store, name)
    return await store.change_queue(name, change)


def limit_readings(queue: Queue) -> tuple[LimitReading, ...]:
    """Each limit that is declared or that an operator set."""
    declared = queue.declared or QueueSettings()
    found = []
    for key in LIMITS:
        value, said = limit_text(queue, key), limit_text(declared, key)
        if key in queue.limited:
            found.append(LimitReading(key=key, value=value, source="operator", declared=said))
        elif value != _NONE:
            found.append(LimitReading(key=key, value=value, source="declared", declared=said))
    return tuple(found)


def limit_text(whose: Queue | QueueSettings, key: str) -> str:
    if key == "rate":
        return rate_text(whose.rate) or _NONE
    number: int | None = getattr(whose, key)
    return _NONE if number is None else f"{number:,}"


def partitioning_text(spec: Partitioning) -> str:
    """ "by {state}, static: 10 slots, 51 keys; missing slots: hold"."""
    said = f"by {spec.by}, {spec.mode}"
    if spec.mode != "static":
        return said
    keys = sum(len(keys) for keys in spec.table.values())
    return f"{said}: {counted(len(spec.table), 'slot')}, {counted(keys, 'key')}; missing slots: {spec.on_missing}"


def rate_text(windows: Sequence[Window]) -> str:
    return ", ".join(f"{window.count}/{spoken(window.per)}" for window in windows)


def retention_text(age: Span) -> str:
    return "forever" if age >= FOREVER else spoken(age)
