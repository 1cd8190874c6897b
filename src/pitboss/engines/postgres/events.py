"""Events: stored once by their id, with a task for each subscription that fits, in one transaction."""

from collections.abc import Sequence
from typing import overload

from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.put import put, put_new
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published, Subscription, subscribers
from pitboss.model.task import NewTask, Placed


class _Tasks(Sequence[NewTask]):
    """The tasks for events, made as they are read: the server creates some while others are made."""

    def __init__(self, wanted: Sequence[tuple[Subscription, NewEvent]]) -> None:
        self._wanted = wanted

    def __len__(self) -> int:
        return len(self._wanted)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...
    @overload
    def __getitem__(self, place: slice) -> list[NewTask]: ...
    def __getitem__(self, place: int | slice) -> NewTask | list[NewTask]:
        if isinstance(place, slice):
            return [subscription.task(event) for subscription, event in self._wanted[place]]
        subscription, event = self._wanted[place]
        return subscription.task(event)


class Publication:
    """The answers to a publish, and what it put."""

    def __init__(self, answers: list[Published], tasks: Sequence[tuple[Subscription, NewEvent]], placed: list[Placed]):
        self.answers, self.placed = answers, placed
        self.queues = [subscription.queue for subscription, _ in tasks]


def publish(
    sql: Statements, events: Sequence[NewEvent], now: Moment | None, *, ring: bool, quickly: bool
) -> Script[Publication]:
    """Store events and put their tasks, which may overfill a queue, within a transaction.

    `quickly`: an error if another call puts one of the tasks meanwhile.
    """
    found = subscribers(tuple(text for (text,) in (yield sql.ask("subscription_list"))))
    wanting = {name: found.of(name) for name in {event.name for event in events}}
    first = {event.id: event for event in reversed(events)}
    known = yield from _store(sql, list(first.values()), wanting, now)
    new = [event for event in events if event.id not in known and first[event.id] is event]
    wanted = [(one, event) for event in new for one in wanting[event.name]]
    placed = (yield from _put(sql, wanted, now, ring=ring, quickly=quickly)) if wanted else []
    created = {event.id for event in new}
    answers = []
    for event in events:
        handlers = known.get(event.id, tuple(one.handler for one in wanting[first[event.id].name]))
        answers.append(Published(event.id, event.id in created, handlers))
        created.discard(event.id)
    return Publication(answers, wanted, placed)


def _store(
    sql: Statements, events: list[NewEvent], wanting: dict[str, list[Subscription]], now: Moment | None
) -> Script[dict[EventId, tuple[str, ...]]]:
    """Store those that are new; the handlers of the others."""
    # All writers store them in the same order.
    events.sort(key=lambda event: event.id)
    handlers = {name: texts([one.handler for one in wants]) for name, wants in wanting.items()}
    rows = yield sql.ask(
        "event_add",
        now,
        ids=texts([event.id for event in events]),
        names=texts([event.name for event in events]),
        datas=texts([event.data for event in events]),
        keys=texts([event.key for event in events]),
        bys=texts([event.by for event in events]),
        handlers=texts([handlers[event.name] for event in events]),
    )
    if not rows:
        return {}
    there = [event_of(row) for row in (yield sql.ask("event_get", ids=texts([row[0] for row in rows])))]
    return {row[0]: () for row in rows} | {event.id: event.handlers for event in there}


def _put(
    sql: Statements,
    wanted: Sequence[tuple[Subscription, NewEvent]],
    now: Moment | None,
    *,
    ring: bool,
    quickly: bool,
) -> Script[list[Placed]]:
    ordered = any(one.ordered and event.key is not None for one, event in wanted)
    tasks: Sequence[NewTask] = _Tasks(wanted)
    if ordered or not quickly:
        tasks = list(tasks)
    if quickly:
        return (yield from put_new(sql, tasks, now, ring=ring, ordered=ordered))
    return (yield from put(sql, tasks, now, ring=ring))


def prune(sql: Statements, before: Moment, limit: int, now: Moment | None, term: int | None) -> Script[int]:
    if term is not None:
        yield from check_term(sql, now, term)
    ((gone,),) = yield sql.ask("event_prune", before=before, limit=limit)
    found: int = gone
    return found


def event_of(row: Row) -> Event:
    number, name, data, key, by, published_at, handlers = row
    return Event(
        id=number, name=name, data=data, key=key, by=by, published_at=published_at, handlers=tuple(handlers or ())
    )
