"""A history sorted by what it speaks of: tasks, sessions, queues, batches, operators."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from pitboss.model import batch as acts
from pitboss.model.batch import Batch, BatchId
from pitboss.model.filter import Filter, by
from pitboss.model.ids import TaskId
from pitboss.model.queue import Queue
from pitboss.model.resource import Resource
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Attempt, Claim, NewTask, Placed, Task
from pitboss.testing import history as told
from pitboss.testing.checker.lives import Lives
from pitboss.testing.history import FOREVER, Call, History

FULL_RECORD = 100


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds at the end: every task, the runs that each one's record shows, the queues, and what there is
    of members and batches."""

    tasks: tuple[Task, ...]
    attempts: dict[TaskId, tuple[Attempt, ...]]
    queues: tuple[Queue, ...]
    resources: tuple[Resource, ...] = ()
    batches: tuple[Batch, ...] = ()


class Given(NamedTuple):
    """A claim and the call that answered with it."""

    claim: Claim
    call: Call


class Birth(NamedTuple):
    """A task on its way in, by a put, with a batch, or as somebody's follow-up; `placed` is the answer to a put.

    A `notice` is put when its batch has ended, with more params than it was made with.
    """

    new: NewTask
    call: Call
    placed: Placed | None
    follows: "Written | None" = None
    notice: bool = False

    @property
    def created(self) -> bool:
        return self.placed is not None and self.placed.created


class Written(NamedTuple):
    """A settlement and its verdict, None if nobody knows it."""

    settlement: Settlement
    verdict: SettleAnswer | None
    call: Call

    @property
    def applied(self) -> bool:
        return self.verdict is not None and self.verdict.applied

    @property
    def refused(self) -> bool:
        return self.verdict is not None and not self.verdict.applied

    @property
    def unknown(self) -> bool:
        return self.verdict is None

    @property
    def is_progress(self) -> bool:
        return self.settlement.transition.state is State.RUNNING

    @property
    def outcome(self) -> str:
        return self.settlement.transition.outcome


class Spans:
    """Calls of which it is asked whether one of them may have happened within a window, and which is the first."""

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


class Meddling:
    """Calls of one kind by operators; whether one of them may have touched a task within a window."""

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
        self._by_id = {task: Spans(calls) for task, calls in by_id.items()}
        self._broad = Spans(broad)

    def first(self, task: TaskId, after: int) -> int:
        named = self._by_id.get(task)
        return min(self._broad.first(after), named.first(after) if named else FOREVER)

    def may_have(self, task: TaskId, after: int, before: int = FOREVER) -> bool:
        return self.first(task, after) < before


class Evidence:
    """Everything known, by subject. Within a list, in the order in which the calls began."""

    def __init__(self, history: History, final: Final) -> None:
        self.calls = history.calls()
        self.final = final
        self.tasks = {task.id: task for task in final.tasks}
        self.births: dict[TaskId, list[Birth]] = defaultdict(list)
        self.met: list[Birth] = []
        self.given: dict[TaskId, list[Given]] = defaultdict(list)
        self.written: dict[TaskId, list[Written]] = defaultdict(list)
        unknown_claims = [call for call in self.calls if isinstance(call.act, told.Claim) and call.unknown]
        self.unknown_claims = Spans(unknown_claims)
        self.reclaims = Spans(
            call for call in self.calls if isinstance(call.act, told.Reclaim) and call.phase != "fail"
        )
        self.changes: dict[str, list[Call]] = defaultdict(list)
        self.items: dict[BatchId, list[TaskId]] = defaultdict(list)
        for call in self.calls:
            self._file(call)
        self.lives = Lives(self.calls)
        # A batch that is being cancelled may have its items cancelled by any sweep from then on.
        called_off = ((call._replace(ended=FOREVER), items) for call, items in self._acted(acts.Cancel))
        self.cancels = Meddling([*_effective(self.calls, told.Cancel), *called_off])
        self.retries = Meddling([*_effective(self.calls, told.Retry), *self._acted(acts.Requeue)])
        self.prunes = Meddling(_effective(self.calls, told.Prune))
        for claims in self.given.values():
            claims.sort(key=lambda given: given.claim.token.claim)

    @property
    def ids(self) -> list[TaskId]:
        return sorted({*self.births, *self.given, *self.written, *self.tasks})

    def record(self, task: TaskId) -> Sequence[Attempt]:
        return self.final.attempts.get(task, ())

    def may_expire(self, task: TaskId) -> bool:
        """Whether the task has an expiry, so that it may end by itself while it waits."""
        births = self.births.get(task, ())
        return any(birth.new.expires_at is not None or birth.new.expires_in is not None for birth in births)

    def may_be_cancelled(self, task: TaskId, after: int, before: int = FOREVER) -> bool:
        return self.may_expire(task) or self.cancels.may_have(task, after, before)

    def _acted(self, kind: type[acts.Cancel] | type[acts.Requeue]) -> Iterable[tuple[Call, Filter]]:
        """What operators did to the items of whole batches."""
        for call in self.calls:
            act = call.act
            if not isinstance(act, told.ActOnBatch) or not isinstance(act.act, kind) or call.phase == "fail":
                continue
            if items := self.items[act.batch]:
                yield call, by(id=items)

    def _file(self, call: Call) -> None:
        match call.act:
            case told.Put(tasks=tasks, placed=placed):
                self._file_put(call, tasks, placed)
            case told.Claim(claimed=claimed):
                for claim in claimed.claims if claimed else ():
                    self.given[claim.id].append(Given(claim, call))
            case told.Settle(settlements=settlements, verdicts=verdicts):
                self._file_settlements(call, settlements, verdicts)
            case told.CreateBatch():
                self._file_batch(call, call.act)
            case told.ChangeQueue(name=name):
                self.changes[name].append(call)
            case _:
                pass

    def _file_put(self, call: Call, tasks: Sequence[NewTask], placed: Sequence[Placed]) -> None:
        answers: Sequence[Placed | None] = placed or [None] * len(tasks)
        for new, answer in zip(tasks, answers, strict=True):
            birth = Birth(new, call, answer)
            if answer is not None and answer.id != new.id:
                self.met.append(birth)
            else:
                self.births[new.id].append(birth)

    def _file_batch(self, call: Call, act: told.CreateBatch) -> None:
        """Which of the items met other tasks, nobody is told; its notice may come at any time, or never."""
        self.items[act.batch.id] += [new.id for new in act.items]
        notice = act.batch.on_complete
        for new in act.items:
            self.births[new.id].append(Birth(new, call, None))
        if notice is not None:
            self.births[notice.id].append(Birth(notice, call._replace(ended=FOREVER), None, notice=True))

    def _file_settlements(
        self, call: Call, settlements: Sequence[Settlement], verdicts: Sequence[SettleAnswer]
    ) -> None:
        answers: Sequence[SettleAnswer | None] = verdicts or [None] * len(settlements)
        for settlement, verdict in zip(settlements, answers, strict=True):
            if call.phase == "fail":
                verdict = SettleAnswer(False, call.error)
            written = Written(settlement, verdict, call)
            self.written[settlement.id].append(written)
            for new in settlement.transition.follow_ups:
                self.births[new.id].append(Birth(new, call, None, written))


def _effective(
    calls: Iterable[Call], kind: type[told.Cancel] | type[told.Retry] | type[told.Prune]
) -> Iterable[tuple[Call, Filter]]:
    for call in calls:
        if isinstance(call.act, kind) and call.phase != "fail":
            changed = call.act.changed
            if changed is None or changed.changed or changed.asked:
                yield call, call.act.wanted
