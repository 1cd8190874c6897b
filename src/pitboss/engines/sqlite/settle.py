"""Writing the ends of claims. A group of plain completions is one statement. Other groups are read in one step, decided
by `model.settlement`, and written by kind."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.batch_lifecycle import conclude, statuses
from pitboss.engines.sqlite.failures import follow, may_be_followed
from pitboss.engines.sqlite.order import release_next
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.returns import Returns, pool_of
from pitboss.engines.sqlite.rows import error_text, names_text
from pitboss.model.batch import BatchStatus
from pitboss.model.figures import kinds_of_end
from pitboss.model.outcome import Transition
from pitboss.model.outdone import SentAway
from pitboss.model.settlement import APPLIED, ClaimEnd, Progress, SettleAnswer, Settlement, StoredTask, effect
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Attempt, TaskError


class ClaimRow(StoredTask, array_like=True):
    """A claimed task, in the order of the columns that the statements name. `capped`: its queue limits how many of its
    key run."""

    row: int
    id: str
    queue: str
    unique_key: str | None
    batch: str | None
    member: int | None
    order_key: str | None
    handler: str
    capped: bool


# Not strict, because SQLite has no booleans.
claim_rows = msgspec.json.Decoder(list[ClaimRow], strict=False)
_names = msgspec.json.Decoder(set[str])
_AT_ONCE = 1000
# Values of a row of `settle_plainly`.
_WIDTH = 5


class Plain(NamedTuple):
    """A group of plain completions, ready to be written: the values of its rows, and their number by queue and
    handler."""

    session: int
    values: list[object]
    numbers: Counter[tuple[str, str]]


def plain(settlements: Sequence[Settlement]) -> Plain | None:
    """The group as `Plain`, which nearly every group is; None if one settlement is not plain.

    Called in the thread that asks, because the writing thread is the busiest one.
    """
    session = settlements[0].token.session if settlements else 0
    if not all(_is_usual(one, session) for one in settlements) or len({one.id for one in settlements}) < len(
        settlements
    ):
        return None
    values: list[object] = []
    for one in settlements:
        values += (one.id, one.token.claim, one.transition.result, one.worker, one.ran)
    return Plain(session, values, Counter((one.queue or "", one.handler or "") for one in settlements))


def settle(act: Act, settlements: Sequence[Settlement], plain: Plain | None) -> list[SettleAnswer]:
    """As the contract says."""
    if plain is not None and _settled_plainly(act, plain):
        return [APPLIED] * len(settlements)
    group = _Group(act)
    answers: list[SettleAnswer] = []
    for start in range(0, len(settlements), _AT_ONCE):
        portion = settlements[start : start + _AT_ONCE]
        group.read(portion)
        answers += [group.settle(settlement) for settlement in portion]
        group.write()
    return answers


def _settled_plainly(act: Act, plain: Plain) -> bool:
    """Write the group without reading it first; False, with nothing written, if it changed fewer rows than expected."""
    row: Any = act.one("settle_begin", plain.session, act.now)
    if row is None:
        return False
    act.savepoint()
    if act.bulk_values("settle_plainly", (act.now, plain.session), plain.values, _WIDTH) * _WIDTH != len(plain.values):
        act.roll_back()
        return False
    act.release_savepoint()
    for (queue, handler), count in plain.numbers.items():
        act.moved(queue, "running", "completed", count)
        act.happened("completed", queue, handler, count)
    if row[0]:
        release_next(act, cast("list[str]", plain.values[::_WIDTH]))
    capped = _names.decode(row[1])
    if capped:
        act.rings |= capped & {queue for queue, _ in plain.numbers}
    return True


def _is_usual(settlement: Settlement, session: int) -> bool:
    transition = settlement.transition
    return (
        transition.state is State.COMPLETED
        and settlement.queue is not None
        and settlement.handler is not None
        and settlement.batch is None
        and settlement.resource is None
        and settlement.report is None
        and settlement.use_end is None
        and settlement.token.session == session
        and transition.outcome == "completed"
        and not transition.follow_ups
        and _is_plain(transition)
    )


class _Group:
    """The settlements of one call. Collects the writes by kind; a task ends at most once in a call."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.tasks: dict[str, ClaimRow] = {}
        self.alive: dict[int, bool] = {}
        self.progress: dict[int, Row] = {}
        self.completed: list[Row] = []
        self.ended: list[Row] = []
        self.freed: list[Row] = []
        self.ordered: list[str] = []
        self.failed: list[str] = []
        self.runs: list[tuple[str, Attempt]] = []
        self.returns = Returns(act)
        self.batches: dict[str | None, BatchStatus] = {}

    def read(self, settlements: Sequence[Settlement]) -> None:
        ids = json_list({settlement.id for settlement in settlements})
        tasks = self.act.decoded("settle_read", claim_rows, ids)
        self.tasks = {task.id: task for task in tasks}
        ending = {settlement.id for settlement in settlements if settlement.use_end is not None}
        self.returns.prefetch(
            (pool_of(task.resource), task.member, task.id in ending)
            for task in tasks
            if task.resource is not None and task.member is not None and task.state is State.RUNNING
        )
        self.batches |= statuses(self.act, {task.batch for task in tasks})

    def settle(self, settlement: Settlement) -> SettleAnswer:
        task = self.tasks.get(settlement.id)
        batch = None if task is None else self.batches.get(task.batch)
        alive = self._alive(settlement.token.session)
        answer, change = effect(task, settlement, alive=alive, batch=batch, now=self.act.now)
        if task is not None and isinstance(change, Progress):
            self._report(task.row, change)
        elif task is not None and isinstance(change, ClaimEnd):
            away = self._end(task, change, settlement)
            return answer._replace(away=tuple(away)) if away else answer
        return answer

    def write(self) -> None:
        """Progress before ends: a task may report and then end in one call."""
        if self.progress:
            self.act.bulk("settle_progress", list(self.progress.values()))
            self.progress.clear()
        for name, rows in (("settle_completed", self.completed), ("settle_end", self.ended), ("key_free", self.freed)):
            if rows:
                self.act.bulk(name, rows)
                rows.clear()
        if self.runs:
            self.act.record(self.runs)
            self.runs.clear()
        if self.ordered:
            release_next(self.act, self.ordered)
            self.ordered.clear()
        if self.failed:
            follow(self.act, self.failed)
            self.failed.clear()
        self.returns.write()

    def _report(self, row: int, change: Progress) -> None:
        """Several reports of one task are written as one. Without a percentage the one before stays."""
        before = self.progress.get(row)
        said = before[1:3] if before is not None and change.progress is None else change[:2]
        self.progress[row] = (row, *said, change.claim_expires_at)

    def _alive(self, session: int) -> bool:
        alive = self.alive.get(session)
        if alive is None:
            alive = self.alive[session] = self.act.one("session_alive", session, self.act.now) is not None
        return alive

    def _end(self, task: ClaimRow, end: ClaimEnd, settlement: Settlement) -> list[SentAway]:
        follow_ups = settlement.transition.follow_ups
        if self.act.touched and (follow_ups or task.unique_key is not None or task.order_key is not None):
            # A batch that has just ended puts its task first: both may want the same key.
            self.write()
            conclude(self.act)
        away = self._give_back(task, end, settlement)
        self._note(task, end, settlement.transition)
        if follow_ups:
            # Written first: a follow-up may take the unique key that its task has just freed, or stand in its line.
            self.write()
            put_follow_ups(self.act, follow_ups)
        return away

    def _give_back(self, task: ClaimRow, end: ClaimEnd, settlement: Settlement) -> list[SentAway]:
        if task.resource is None or task.member is None:
            return []
        pool, completed = pool_of(task.resource), end.state is State.COMPLETED
        return self.returns.take_back(
            pool, task.member, settlement.report, task.tried, settlement.use_end, completed=completed
        )

    def _note(self, task: ClaimRow, end: ClaimEnd, transition: Transition) -> None:
        if end.state is State.COMPLETED and _is_plain(transition):
            self.completed.append((task.row, end.outcome, end.result, end.worker, end.started_at, end.finished_at))
        else:
            self.ended.append(_end_row(task.row, end))
        if end.run is not None:
            self.runs.append((task.id, end.run))
        if end.state in FINISHED and task.unique_key is not None:
            self.freed.append((task.id, task.unique_key))
        if end.state in FINISHED and task.order_key is not None:
            self.ordered.append(task.id)
        if may_be_followed(end.state, end.reason):
            self.failed.append(task.id)
        if end.state is State.PENDING or task.capped:
            self.act.rings.add(task.queue)
        self.act.moved(task.queue, "running", end.state.value, batch=task.batch)
        for kind in kinds_of_end(end.state, charged=transition.charged, lost=transition.lost):
            self.act.happened(kind, task.queue, task.handler)
        task.state, task.outcome = end.state, end.outcome


def _is_plain(transition: Transition) -> bool:
    return transition.error is None and transition.reason is None and not transition.lost and not transition.crashed


def _end_row(row: int, end: ClaimEnd) -> Row:
    """As `settle_end` takes it; the 0 or 1 before the error says whether it changes."""
    changed = end.error is not msgspec.UNSET
    error = end.error if isinstance(end.error, TaskError) else None
    return (
        row,
        end.state.value,
        end.outcome,
        end.attempts,
        end.losses,
        end.crashes,
        end.result,
        int(changed),
        error_text(error),
        None if error is None else error.fingerprint,
        end.reason,
        end.run_at,
        end.worker,
        end.started_at,
        end.finished_at,
        names_text(end.tried),
        end.rotations,
    )
