"""What apps declare."""

from typing import Any

import msgspec

from pitboss.engines.sqlite import schedules
from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.rows import queue_of, queue_row
from pitboss.model.declared import Declared, takes_over
from pitboss.model.duration import Moment
from pitboss.model.event import EventType, Subscription
from pitboss.model.queue import QueueSettings, declared_queue

_queues = msgspec.json.Decoder(dict[str, QueueSettings])
_subscriptions = msgspec.json.Decoder(tuple[Subscription, ...])
_events = msgspec.json.Decoder(tuple[EventType, ...])


def declare(act: Act, declared: Declared, session: int | None, wall: Moment) -> bool:
    """As the contract says."""
    app, fingerprint = declared.app, declared.fingerprint
    row: Any = act.one("app_get", app)
    present = None if row is None else str(row[0])
    alive = {str(row[0]) for row in act.rows("declarer_list_alive", app, act.now)}
    seen = {str(row[0]) for row in act.rows("fingerprint_list", app)}
    if session is not None:
        act.run("declarer_note", app, session, fingerprint)
    if (session is None and present is not None) or not takes_over(fingerprint, present, seen, alive):
        return fingerprint == present
    act.run("fingerprint_add", app, fingerprint)
    _declare_queues(act, declared)
    schedules.declare(act, app, declared.schedules, wall)
    parts = (declared.queues, declared.subscriptions, declared.events)
    act.run("app_put", app, fingerprint, *(msgspec.json.encode(part).decode() for part in parts))
    return True


def declarations(reader: Reader) -> list[Declared]:
    return [
        Declared(
            app=app,
            queues=_queues.decode(queues),
            subscriptions=_subscriptions.decode(subscriptions),
            events=_events.decode(events),
        )
        for app, queues, subscriptions, events in reader.rows("app_list")
    ]


def _declare_queues(act: Act, declared: Declared) -> None:
    """Also withdraws those that the app has and no longer declares."""
    had = [str(row[0]) for row in act.rows("queue_list_of", declared.app)]
    for name in dict.fromkeys([*had, *declared.queues]):
        settings = declared.queues.get(name)
        act.run("queue_create", name)
        row: Any = act.one("queue_get", name)
        act.run("queue_write", *queue_row(declared_queue(queue_of(row, {}), settings)))
        act.run("queue_give_to", name, None if settings is None else declared.app)
        act.rings.add(name)
