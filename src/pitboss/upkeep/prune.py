"""Deletes finished tasks that are past their age. A queue may declare ages of its own."""

from collections import defaultdict
from collections.abc import Iterator

from pitboss.engines.protocol import Clock, Store
from pitboss.model.duration import Span
from pitboss.model.filter import Filter, Term, by
from pitboss.model.queue import Queue
from pitboss.model.retention import Retention
from pitboss.model.states import State

PRUNE_SECONDS = 60.0
_CHUNK = 1000


async def prune(engine: Store, retention: Retention, clock: Clock, *, term: int | None = None) -> int:
    """Delete a thousand at a time, so that other writers never wait long; returns how many.

    Raises `NotLeader` if `term` is given and over.
    """
    pruned = 0
    for wanted, age in ages(retention, await engine.queues()):
        while True:
            done = await engine.prune(wanted, before=clock.now() - age, limit=_CHUNK, term=term)
            pruned += done.changed
            if not done.more:
                break
    return pruned


def ages(retention: Retention, queues: list[Queue]) -> Iterator[tuple[Filter, Span]]:
    """Which tasks are kept how long: for each state one row for each age that queues declare, and one for the rest."""
    kept = retention.ages()
    for state in (State.COMPLETED, State.CANCELLED, State.FAILED):
        own: dict[Span, list[str]] = defaultdict(list)
        for queue in queues:
            if queue.declared is not None and state in queue.declared.retention:
                own[queue.declared.retention[state]].append(queue.name)
        for age, names in own.items():
            yield by(state=state, queue=names), age
        if state in kept:
            yield _elsewhere(state, [name for names in own.values() for name in names]), kept[state]


def _elsewhere(state: State, besides: list[str]) -> Filter:
    others = (Term(field="queue", values=tuple(besides), negated=True),) if besides else ()
    return Filter((*by(state=state).terms, *others))
