"""Promises about queues: rates, capacity, priority, figures."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from pitboss.model.ids import TaskId
from pitboss.model.limits import Window
from pitboss.model.session import Slot
from pitboss.model.states import WAITING, State
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Creation, Evidence, GivenClaim
from pitboss.testing.checker.violation import Violation, shown
from pitboss.testing.history import FOREVER, Call

RATE = "no rate window is ever exceeded"
CAPACITY = "puts never exceed a queue's capacity"
PRIORITY = "lowest priority number first, then smallest id"
FIGURES = "a queue's figures equal a recount of the ledger"


_Waiting = tuple[int, TaskId, int, int]


class WaitSpan(NamedTuple):
    """A span in which a task surely waited. `fresh`: it began with the put."""

    begin: int
    end: int
    task: TaskId
    fresh: bool


class WaitSpans:
    """The spans of one queue, to count the tasks that surely waited."""

    def __init__(self, spans: list[WaitSpan]) -> None:
        self._begins = sorted(span.begin for span in spans)
        self._ends = sorted(span.end for span in spans)
        self._fresh_begins = sorted(span.begin for span in spans if span.fresh)
        self._fresh_ends = sorted(span.end for span in spans if span.fresh)

    def at_least(self, put: Call, created: int) -> int:
        """How many tasks surely wait after a put that created some."""
        # Tasks that waited through the whole call, and tasks that puts created, in whatever order those overlapped.
        through = bisect_left(self._begins, put.begun) - bisect_right(self._ends, put.ended) + created
        after = bisect_right(self._fresh_begins, put.ended) - bisect_right(self._fresh_ends, put.ended)
        return max(through, after)


def check_queues(seen: Evidence) -> Iterator[Violation]:
    given: dict[str, list[GivenClaim]] = defaultdict(list)
    for claims in seen.given.values():
        # A claim that is given again is the same start.
        for one in {one.claim.token: one for one in reversed(claims)}.values():
            given[one.claim.queue].append(one)
    for queue, claims in given.items():
        yield from _check_rate(seen, queue, claims)
    yield from _check_capacity(seen)
    yield from _check_slots(seen)
    yield from _check_passed_over(seen)
    yield from _check_figures(seen)


def _check_rate(seen: Evidence, queue: str, given: list[GivenClaim]) -> Iterator[Violation]:
    """Count the starts while the queue has one rate; a change begins a new count."""
    changes = [call for call in seen.changes.get(queue, ()) if _sets(call, "rate") and call.phase != "fail"]
    for index, call in enumerate(changes):
        if not isinstance(call.act, acts.ChangeQueue) or isinstance(call.act.change.rate, msgspec.UnsetType):
            continue
        until = changes[index + 1].begun if index + 1 < len(changes) else FOREVER
        within = [one for one in given if one.call.begun > call.ended and one.call.ended < until]
        within.sort(key=lambda one: one.claim.claimed_at)
        for window in call.act.change.rate:
            yield from _check_window(queue, window, within)


def _check_window(queue: str, window: Window, given: list[GivenClaim]) -> Iterator[Violation]:
    for index in range(len(given) - window.count):
        few = given[index : index + window.count + 1]
        if few[-1].claim.claimed_at - few[0].claim.claimed_at < window.per:
            yield Violation(
                invariant=RATE,
                what=f"queue {queue}: {len(few)} starts within {window.per} µs, but only {window.count} are allowed",
                queue=queue,
                lines=tuple(
                    shown(one.call, f"claim {one.claim.id} {one.claim.token} at {one.claim.claimed_at}") for one in few
                ),
            )
            return


def _check_capacity(seen: Evidence) -> Iterator[Violation]:
    if not any(_sets(call, "capacity") for calls in seen.changes.values() for call in calls):
        return
    waiters = {queue: WaitSpans(spans) for queue, spans in _wait_spans(seen).items()}
    for call in seen.calls:
        for queue, created in _created(call).items():
            capacity = _capacity(seen, queue, call)
            if capacity is None:
                continue
            waiting = waiters.get(queue, WaitSpans([])).at_least(call, created)
            if waiting > capacity:
                yield Violation(
                    invariant=CAPACITY,
                    what=f"queue {queue}: {waiting} tasks wait after a put, its capacity is {capacity}",
                    queue=queue,
                    lines=(shown(call, f"put of {created} tasks was accepted"),),
                )


def _created(call: Call) -> Counter[str]:
    if not isinstance(call.act, acts.Put) or not call.answered:
        return Counter()
    pairs = zip(call.act.tasks, call.act.placed, strict=True)
    return Counter(new.queue for new, placed in pairs if placed.created)


def _capacity(seen: Evidence, queue: str, during: Call) -> int | None:
    """The capacity that was surely in force during a call; None if there was none, or if it is not certain."""
    capacity: int | None = None
    for call in seen.changes.get(queue, ()):
        if not isinstance(call.act, acts.ChangeQueue) or not _sets(call, "capacity") or call.phase == "fail":
            continue
        value = call.act.change.capacity
        if call.ended < during.begun and not isinstance(value, msgspec.UnsetType):
            capacity = value
        elif call.begun < during.ended:
            return None
    return capacity


def _sets(call: Call, field: str) -> bool:
    return isinstance(call.act, acts.ChangeQueue) and getattr(call.act.change, field) is not msgspec.UNSET


def _wait_spans(seen: Evidence) -> dict[str, list[WaitSpan]]:
    spans: dict[str, list[WaitSpan]] = defaultdict(list)
    for task, creations in seen.creations.items():
        if seen.may_expire(task):
            continue
        for creation in creations:
            if creation.created:
                spans[creation.new.queue].append(_wait_span(seen, task, creation.call.ended, 0, fresh=True))
        for one in seen.written.get(task, ()):
            repeated = any(
                other is not one and other.settlement.token == one.settlement.token and not other.is_progress
                for other in seen.written[task]
            )
            waits = one.settlement.transition.state in WAITING and not repeated
            if one.applied and waits and not seen.cancels.may_have(task, 0, one.call.ended):
                claim = one.settlement.token.claim
                spans[creations[0].new.queue].append(_wait_span(seen, task, one.call.ended, claim, fresh=False))
    return spans


def _wait_span(seen: Evidence, task: TaskId, begin: int, claim: int, *, fresh: bool) -> WaitSpan:
    """The span from `begin` until the first call that may have claimed or cancelled the task."""
    taken = (one.call.begun for one in seen.given.get(task, ()) if one.claim.token.claim > claim)
    end = min([*taken, seen.cancels.first(task, begin), seen.unknown_claims.first(begin)])
    return WaitSpan(begin, max(begin, end), task, fresh)


def _check_slots(seen: Evidence) -> Iterator[Violation]:
    # A queue with partitions gives a slot its own tasks first.
    divided = {queue.name for queue in seen.final.queues if queue.partitions is not None}
    for call in seen.calls:
        if not isinstance(call.act, acts.Claim) or call.act.claimed is None:
            continue
        slots: dict[int, list[tuple[int, TaskId]]] = defaultdict(list)
        for claim in call.act.claimed.claims:
            asked = call.act.request.slots[claim.slot]
            if asked.order is None and asked.repeat is None and claim.queue not in divided:
                slots[claim.slot].append((claim.priority, claim.id))
        for ranks in slots.values():
            if ranks != sorted(ranks):
                lines = tuple(f"priority {priority} {task}" for priority, task in ranks)
                yield Violation(
                    invariant=PRIORITY, what="a claim's answer is out of order", lines=(shown(call, "claim"), *lines)
                )


def _check_passed_over(seen: Evidence) -> Iterator[Violation]:
    """No claim takes a task while a task that goes first in the same queue surely waits."""
    arrivals = sorted(_arrivals(seen), key=lambda pair: pair[0].begin)
    waiting: dict[str, list[_Waiting]] = defaultdict(list)
    creations: list[Creation] = []
    position = 0
    # A task that no member of a pool fits is passed by, and so is one of another slot's partition.
    passed_by = {queue.name for queue in seen.final.queues if queue.resources or queue.partitions}
    arrivals = [pair for pair in arrivals if pair[1].new.queue not in passed_by]
    for call in _undisturbed_claims(seen):
        while position < len(arrivals) and arrivals[position][0].begin < call.begun:
            span, creation = arrivals[position]
            heappush(waiting[creation.new.queue], (creation.new.priority, creation.new.id, span.end, len(creations)))
            creations.append(creation)
            position += 1
        yield from _passed_over(call, waiting, creations)


def _passed_over(call: Call, waiting: dict[str, list[_Waiting]], creations: list[Creation]) -> Iterator[Violation]:
    act = call.act
    if not isinstance(act, acts.Claim) or act.claimed is None or not all(map(_in_order, act.request.slots)):
        return
    ranked = sorted((claim.priority, claim.id, claim.queue) for claim in act.claimed.claims)
    worst = {queue: (priority, task) for priority, task, queue in ranked}
    for queue, rank in worst.items():
        heap = waiting[queue]
        while heap and heap[0][2] <= call.begun:
            heappop(heap)
        if heap and heap[0][:2] < rank and heap[0][2] > call.ended and _wanted(act, creations[heap[0][3]]):
            first, last = heap[0][:2], rank
            yield Violation(
                invariant=PRIORITY,
                what=f"queue {queue}: {last[1]} (priority {last[0]}) was given before {first[1]} (priority {first[0]})",
                task=first[1],
                queue=queue,
                lines=(shown(creations[heap[0][3]].call, f"put {first[1]}"), shown(call, f"claim {last[1]}")),
            )


def _in_order(slot: Slot) -> bool:
    """It takes the first task of any handler that the request has."""
    return slot.handlers is None and slot.order is None and slot.repeat is None


def _wanted(act: acts.Claim, creation: Creation) -> bool:
    return act.request.handlers is None or creation.new.handler in act.request.handlers


def _arrivals(seen: Evidence) -> Iterator[tuple[WaitSpan, Creation]]:
    lacking: dict[str, int] = {}
    claims = [call for call in seen.calls if isinstance(call.act, acts.Claim) and call.act.request.handlers is not None]
    for task, creations in seen.creations.items():
        for creation in creations:
            pending = creation.placed is not None and creation.created and creation.placed.state is State.PENDING
            if pending and not seen.may_expire(task):
                handler = creation.new.handler
                if handler not in lacking:
                    lacking[handler] = _first_without(claims, handler)
                span = _wait_span(seen, task, creation.call.ended, 0, fresh=True)
                yield span._replace(end=max(span.begin, min(span.end, lacking[handler]))), creation


def _first_without(claims: list[Call], handler: str) -> int:
    """When a claim without this handler first began: from then on its tasks may be held."""
    for call in claims:
        if isinstance(call.act, acts.Claim) and handler not in (call.act.request.handlers or ()):
            return call.begun
    return FOREVER


def _undisturbed_claims(seen: Evidence) -> Iterator[Call]:
    """Claims during which no other call was running, so that no task was locked or changed meanwhile."""
    busy_until = 0
    for index, call in enumerate(seen.calls):
        following = seen.calls[index + 1].begun if index + 1 < len(seen.calls) else FOREVER
        if isinstance(call.act, acts.Claim) and busy_until < call.begun and call.ended < following:
            yield call
        busy_until = max(busy_until, call.ended)


def _check_figures(seen: Evidence) -> Iterator[Violation]:
    recount = Counter((task.queue, task.state) for task in seen.final.tasks)
    figures = {(queue.name, state): n for queue in seen.final.queues for state, n in queue.counts.items() if n}
    for queue, state in sorted({*recount, *figures}):
        shows, has = figures.get((queue, state), 0), recount.get((queue, state), 0)
        if shows != has:
            yield Violation(
                invariant=FIGURES,
                what=f"queue {queue} shows {shows} {state}, the ledger has {has}",
                queue=queue,
                lines=tuple(f"{task.id} {task.state}" for task in seen.final.tasks if task.queue == queue)[:40],
            )
