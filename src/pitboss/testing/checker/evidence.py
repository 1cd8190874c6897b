"""A history sorted by subject: tasks, sessions, queues, batches, operators."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from pitboss.model.batch import Batch, BatchId, Cancel, Requeue
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter, by
from pitboss.model.ids import TaskId, id_of_run
from pitboss.model.queue import Queue
from pitboss.model.resource import Resource
from pitboss.model.session import Slot
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Attempt, Claim, NewTask, Placed, Task, Token
from pitboss.testing import history as acts
from pitboss.testing.checker.sessions import SessionLives
from pitboss.testing.history import FOREVER, Call, History

FULL_RECORD = 100


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds at the end: tasks, their recorded runs, queues, members and batches."""

    tasks: tuple[Task, ...]
    attempts: dict[TaskId, tuple[Attempt, ...]]
    queues: tuple[Queue, ...]
    resources: tuple[Resource, ...] = ()
    batches: tuple[Batch, ...] = ()


class GivenClaim(NamedTuple):
    """A claim, the call that returned it, and the slot that asked for it."""

    claim: Claim
    call: Call
    slot: Slot

    @property
    def limited(self) -> bool:
        """It lives by a time limit of its own."""
        return self.claim.claim_expires_at is not None

    @property
    def may_be_again(self) -> bool:
        """It may have been given before."""
        return self.slot.repeat is not None


class Creation(NamedTuple):
    """One call that may have created a task: a put, a batch, or a settlement with follow-ups (`follows`).

    `placed` is the answer to a put. A `notice` is put when its batch has ended, with added params.
    """

    new: NewTask
    call: Call
    placed: Placed | None
    follows: "SettleCall | None" = None
    notice: bool = False

    @property
    def created(self) -> bool:
        return self.placed is not None and self.placed.created


class SettleCall(NamedTuple):
    """A settlement and its answer; None if the answer was lost."""

    settlement: Settlement
    answer: SettleAnswer | None
    call: Call

    @property
    def applied(self) -> bool:
        return self.answer is not None and self.answer.applied

    @property
    def refused(self) -> bool:
        return self.answer is not None and not self.answer.applied

    @property
    def unknown(self) -> bool:
        return self.answer is None

    @property
    def is_progress(self) -> bool:
        return self.settlement.transition.state is State.RUNNING

    @property
    def outcome(self) -> str:
        return self.settlement.transition.outcome


class TimeLimit:
    """The time limit of a remote worker's claim. Every report starts it again, at a moment that only its call tells."""

    def __init__(self, given: Sequence[GivenClaim], written: Iterable[SettleCall]) -> None:
        self._until = max(one.claim.claim_expires_at or 0 for one in given)
        # No report came before the first answer, because only that tells the token.
        self._lasts = (given[0].claim.claim_expires_at or 0) - given[0].claim.claimed_at
        self._reports = [one for one in written if one.is_progress and not one.refused]

    def surely_until(self, before: int) -> Moment:
        """Until when it lived at least, by what had happened at that place in the order."""
        sure = (one.call.asked_at for one in self._reports if one.applied and one.call.ended <= before)
        return max([self._until, *(at + self._lasts for at in sure if at is not None)])

    def surely_over(self, at: Moment | None) -> bool:
        """Whether it was over at that moment, whenever the reports took effect."""
        latest = (FOREVER if one.call.answered_at is None else one.call.answered_at for one in self._reports)
        return at is not None and at >= max([self._until, *(moment + self._lasts for moment in latest)])


class CallSpans:
    """Calls by time: which is the first after a place in the order, and may one have happened in a window?"""

    def __init__(self, calls: Iterable[Call]) -> None:
        ordered = sorted(calls, key=lambda call: call.begun)
        self._begun = [call.begun for call in ordered]
        self._latest_end = list(accumulate((call.ended for call in ordered), max))

    def first(self, after: int) -> int:
        """When the first call that was not over at `after` began."""
        index = bisect_right(self._latest_end, after)
        return self._begun[index] if index < len(self._begun) else FOREVER

    def may_have(self, after: int, before: int = FOREVER) -> bool:
        return self.first(after) < before


class OperatorCalls:
    """Operators' calls of one kind: may one of them have changed a task within a window?"""

    def __init__(self, calls: Iterable[tuple[Call, Filter]]) -> None:
        by_id: dict[TaskId, list[Call]] = defaultdict(list)
        broad: list[Call] = []
        for call, wanted in calls:
            named = [term.values for term in wanted.terms if term.field == "id" and not term.negated]
            if named and not any("*" in value for value in named[0]):
                for task in named[0]:
                    by_id[task].append(call)
            else:
                broad.append(call)
        self._by_id = {task: CallSpans(calls) for task, calls in by_id.items()}
        self._broad = CallSpans(broad)

    def first(self, task: TaskId, after: int) -> int:
        named = self._by_id.get(task)
        return min(self._broad.first(after), named.first(after) if named else FOREVER)

    def may_have(self, task: TaskId, after: int, before: int = FOREVER) -> bool:
        return self.first(task, after) < before


class Evidence:
    """Everything known, by subject. Each list is in the order in which the calls began."""

    def __init__(self, history: History, final: Final) -> None:
        self.calls = history.calls()
        self.final = final
        self.tasks = {task.id: task for task in final.tasks}
        self.creations: dict[TaskId, list[Creation]] = defaultdict(list)
        self.met: list[Creation] = []
        self.given: dict[TaskId, list[GivenClaim]] = defaultdict(list)
        self.written: dict[TaskId, list[SettleCall]] = defaultdict(list)
        unknown_claims = [call for call in self.calls if isinstance(call.act, acts.Claim) and call.unknown]
        self.unknown_claims = CallSpans(unknown_claims)
        self._limits_unknown = any(
            slot.lasts is not None
            for call in unknown_claims
            if isinstance(call.act, acts.Claim)
            for slot in call.act.request.slots
        )
        self.reclaims = CallSpans(
            call for call in self.calls if isinstance(call.act, acts.Reclaim) and call.phase != "fail"
        )
        self.changes: dict[str, list[Call]] = defaultdict(list)
        self.items: dict[BatchId, list[TaskId]] = defaultdict(list)
        for call in self.calls:
            self._file(call)
        self.lives = SessionLives(self.calls)
        # Once an operator cancels a batch, any later sweep may cancel its items.
        called_off = ((call._replace(ended=FOREVER), items) for call, items in self._acted(Cancel))
        self.cancels = OperatorCalls([*_effective(self.calls, acts.Cancel), *called_off])
        self.retries = OperatorCalls([*_effective(self.calls, acts.Retry), *self._acted(Requeue)])
        self.prunes = OperatorCalls(_effective(self.calls, acts.Prune))
        for claims in self.given.values():
            claims.sort(key=lambda given: given.claim.token.claim)

    def time_limit(self, task: TaskId, token: Token) -> TimeLimit | None:
        """That of the claim, if it has one and its answer is known."""
        given = [one for one in self.given.get(task, ()) if one.claim.token == token and one.limited]
        written = (one for one in self.written.get(task, ()) if one.settlement.token == token)
        return TimeLimit(sorted(given, key=lambda one: one.call.begun), written) if given else None

    def may_run_out(self, task: TaskId) -> bool:
        """Whether a claim with a time limit may have ended, and so may have made the task failed, without a call."""
        return self._limits_unknown or any(one.limited for one in self.given.get(task, ()))

    @property
    def ids(self) -> list[TaskId]:
        return sorted({*self.creations, *self.given, *self.written, *self.tasks})

    def record(self, task: TaskId) -> Sequence[Attempt]:
        return self.final.attempts.get(task, ())

    def may_expire(self, task: TaskId) -> bool:
        """Whether the task has an expiry, and so may end by itself while it waits."""
        creations = self.creations.get(task, ())
        return any(creation.new.expires_at is not None or creation.new.expires_in is not None for creation in creations)

    def may_be_cancelled(self, task: TaskId, after: int, before: int = FOREVER) -> bool:
        return self.may_expire(task) or self.cancels.may_have(task, after, before)

    def _acted(self, kind: type[Cancel] | type[Requeue]) -> Iterable[tuple[Call, Filter]]:
        """Operators' acts of one kind on whole batches, as calls on their items."""
        for call in self.calls:
            act = call.act
            if not isinstance(act, acts.ActOnBatch) or not isinstance(act.act, kind) or call.phase == "fail":
                continue
            if items := self.items[act.batch]:
                yield call, by(id=items)

    def _file(self, call: Call) -> None:
        match call.act:
            case acts.Put(tasks=tasks, placed=placed):
                self._file_put(call, tasks, placed)
            case acts.Claim(request=request, claimed=claimed):
                for claim in claimed.claims if claimed else ():
                    self.given[claim.id].append(GivenClaim(claim, call, request.slots[claim.slot]))
            case acts.Settle(settlements=settlements, answers=answers):
                self._file_settlements(call, settlements, answers)
            case acts.CreateBatch():
                self._file_batch(call, call.act)
            case acts.ChangeQueue(name=name):
                self.changes[name].append(call)
            case _:
                pass

    def _file_put(self, call: Call, tasks: Sequence[NewTask], placed: Sequence[Placed]) -> None:
        answers: Sequence[Placed | None] = placed or [None] * len(tasks)
        for new, answer in zip(tasks, answers, strict=True):
            creation = Creation(new, call, answer)
            if answer is not None and answer.id != new.id:
                self.met.append(creation)
            else:
                self.creations[new.id].append(creation)

    def _file_batch(self, call: Call, act: acts.CreateBatch) -> None:
        """The answer does not say which items met other tasks. Each run's notice may be put at any time, or never."""
        self.items[act.batch.id] += [new.id for new in act.items]
        notice = act.batch.on_complete
        for new in act.items:
            self.creations[new.id].append(Creation(new, call, None))
        if notice is not None:
            for run in range(1, 2 + sum(_may_start_a_run(one) for one in self.calls)):
                numbered = msgspec.structs.replace(notice, id=id_of_run(notice.id, run))
                creation = Creation(numbered, call._replace(ended=FOREVER), None, notice=True)
                self.creations[numbered.id].append(creation)

    def _file_settlements(self, call: Call, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer]) -> None:
        known: Sequence[SettleAnswer | None] = answers or [None] * len(settlements)
        for settlement, answer in zip(settlements, known, strict=True):
            if call.phase == "fail":
                answer = SettleAnswer(False, call.error)
            written = SettleCall(settlement, answer, call)
            self.written[settlement.id].append(written)
            for new in settlement.transition.follow_ups:
                self.creations[new.id].append(Creation(new, call, None, written))


def _may_start_a_run(call: Call) -> bool:
    """Whether the call may have queued an ended batch again."""
    act = call.act
    return isinstance(act, acts.Retry) or (isinstance(act, acts.ActOnBatch) and isinstance(act.act, Requeue))


def _effective(
    calls: Iterable[Call], kind: type[acts.Cancel] | type[acts.Retry] | type[acts.Prune]
) -> Iterable[tuple[Call, Filter]]:
    for call in calls:
        if isinstance(call.act, kind) and call.phase != "fail":
            changed = call.act.changed
            if changed is None or changed.changed or changed.asked:
                yield call, call.act.wanted
