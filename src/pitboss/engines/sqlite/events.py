"""Events: an event and the tasks for its subscribers are written together, many at a time."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.readers import Reader
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published, subscribers
from pitboss.model.task import NewTask
from pitboss.model.usage import check_taking

_met = msgspec.json.Decoder(list[tuple[str, tuple[str, ...]]])
_handlers = msgspec.json.Decoder(tuple[str, ...])
# Greater than every id.
_LAST = "\U0010ffff"


def publish(act: Act, events: Sequence[NewEvent]) -> list[Published]:
    """As the contract says."""
    met: Any = act.one("event_met", json_list(event.id for event in events))
    check_taking(met[1])
    known = dict(_met.decode(met[0]))
    wanted = subscribers(tuple(str(row[0]) for row in act.rows("app_subscriptions")))
    tasks: list[NewTask] = []
    rows: list[Row] = []
    answers: list[Published] = []
    for event in events:
        handlers = known.get(event.id)
        if handlers is not None:
            answers.append(Published(event.id, False, handlers))
            continue
        new = wanted.tasks(event)
        known[event.id] = handlers = tuple(task.handler for task in new)
        tasks += new
        rows.append((event.id, event.name, event.data, event.key, event.by, act.now, json_list(handlers)))
        answers.append(Published(event.id, True, handlers))
    put_follow_ups(act, tasks)
    act.bulk("event_add", rows)
    return answers


def listed(
    reader: Reader, ids: Sequence[EventId] | None, name: str | None, limit: int, before: str | None
) -> list[Event]:
    """As the contract says."""
    if ids is not None:
        found = {event.id: event for event in map(_event_of, reader.rows("event_list_named", json_list(ids)))}
        return [found[one] for one in ids if one in found]
    last = _LAST if before is None else before
    named = ("event_list", last, limit) if name is None else ("event_list_of", last, limit, name)
    return [_event_of(row) for row in reader.rows(*named)]


def prune(act: Act, before: Moment, limit: int, term: int | None) -> int:
    """As the contract says."""
    if term is not None:
        check_term(act, term)
    return act.run("event_forget", before, limit)


def _event_of(row: Sequence[Any]) -> Event:
    event_id, name, data, key, by, published_at, handlers = row
    return Event(
        id=event_id,
        name=name,
        data=data,
        key=key,
        by=by,
        published_at=published_at,
        handlers=_handlers.decode(handlers),
    )
