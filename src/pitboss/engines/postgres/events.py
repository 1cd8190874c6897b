"""Events: stored once by their id, with a task for each subscription that fits, in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.put import put, put_new
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published, Subscription, subscribers
from pitboss.model.task import NewTask, Placed
from pitboss.model.usage import check_taking

# Tasks that are made while the events are stored.
_MADE_BEFORE = 1000
_STEP = 100
_Wanted = list[tuple[Subscription, NewEvent]]


class _Tasks(Sequence[NewTask]):
    """The tasks for events, made as they are read: the server creates some while others are made."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self._made: list[NewTask] = []

    def make_some(self) -> Iterator[None]:
        """Make the first ones, in steps."""
        for start in range(0, min(len(self._wanted), _MADE_BEFORE), _STEP):
            self._made += self[start : start + _STEP]
            yield

    def __len__(self) -> int:
        return len(self._wanted)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...
    @overload
    def __getitem__(self, place: slice) -> list[NewTask]: ...
    def __getitem__(self, place: int | slice) -> NewTask | list[NewTask]:
        if isinstance(place, int):
            return self[place : place + 1][0]
        if place.stop is not None and place.stop <= len(self._made):
            return self._made[place]
        return [subscription.task(event) for subscription, event in self._wanted[place]]


class Publication:
    """The answers to a publish, and what it put."""

    def __init__(self, answers: list[Published], tasks: _Wanted, placed: list[Placed]) -> None:
        self.answers, self.placed = answers, placed
        self.queues = [subscription.queue for subscription, _ in tasks]


def publish(
    sql: Statements, events: Sequence[NewEvent], now: Moment | None, *, ring: bool, quickly: bool
) -> Script[Publication]:
    """Store events and put their tasks, which may overfill a queue, within a transaction.

    `quickly`: an error if another call puts one of the tasks meanwhile.
    """
    rows = yield sql.ask("subscription_list")
    check_taking(rows[0][0])
    found = subscribers(tuple(text for _, text in rows if text is not None))
    wanting = {name: found.of(name) for name in {event.name for event in events}}
    first: dict[EventId, int] = {}
    for place, event in enumerate(events):
        first.setdefault(event.id, place)
    new = [events[place] for place in first.values()]
    wanted = [(one, event) for event in new for one in wanting[event.name]]
    tasks = _Tasks(wanted)
    known = yield from _store(sql, new, wanting, now, tasks)
    if known:
        wanted = [(one, event) for one, event in wanted if event.id not in known]
        tasks = _Tasks(wanted)
    placed = (yield from _put(sql, wanted, tasks, now, ring=ring, quickly=quickly)) if wanted else []
    handlers = {event.id: tuple(one.handler for one in wanting[event.name]) for event in new} | known
    answers = [
        Published(event.id, event.id not in known and first[event.id] == place, handlers[event.id])
        for place, event in enumerate(events)
    ]
    return Publication(answers, wanted, placed)


def _store(
    sql: Statements,
    events: Sequence[NewEvent],
    wanting: Mapping[str, list[Subscription]],
    now: Moment | None,
    tasks: _Tasks,
) -> Script[dict[EventId, tuple[str, ...]]]:
    """Store those that are new, and make the first tasks meanwhile; the handlers of those that were stored before."""
    # All writers store them in the same order.
    events = sorted(events, key=lambda event: event.id)
    handlers = {name: texts([one.handler for one in wants]) for name, wants in wanting.items()}
    asked = sql.ask(
        "event_add",
        now,
        ids=texts([event.id for event in events]),
        names=texts([event.name for event in events]),
        datas=texts([event.data for event in events]),
        keys=texts([event.key for event in events]),
        bys=texts([event.by for event in events]),
        handlers=texts([handlers[event.name] for event in events]),
    )
    rows = yield asked._replace(meanwhile=tasks.make_some())
    if not rows:
        return {}
    there = [event_of(row) for row in (yield sql.ask("event_get", ids=texts([row[0] for row in rows])))]
    return {row[0]: () for row in rows} | {event.id: event.handlers for event in there}


def _put(
    sql: Statements, wanted: _Wanted, tasks: _Tasks, now: Moment | None, *, ring: bool, quickly: bool
) -> Script[list[Placed]]:
    ordered = any(one.ordered and event.key is not None for one, event in wanted)
    if not quickly:
        return (yield from put(sql, tasks[:], now, ring=ring))
    return (yield from put_new(sql, tasks[:] if ordered else tasks, now, ring=ring, ordered=ordered))


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
