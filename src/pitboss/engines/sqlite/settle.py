"""Writing what came of claims. All rows of a call are read in one step, decided here, and written by kind."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.engines.sqlite.gates import conclude, statuses
from pitboss.engines.sqlite.history import record
from pitboss.engines.sqlite.put import put_follow_ups
from pitboss.engines.sqlite.returning import Returns, pool_of
from pitboss.engines.sqlite.rows import error_text, names_of, names_text
from pitboss.model.batch import BatchStatus
from pitboss.model.batching import HELD_BY_BATCH, Waiting
from pitboss.model.leasing import tried_after
from pitboss.model.outcome import Transition
from pitboss.model.settlement import APPLIED, STALE_CLAIM, STALE_SESSION, STALE_TASK, SettleAnswer, Settlement
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt


class Held(msgspec.Struct, array_like=True):
    """What a settlement needs to know of its task, in the order of the columns that the statement names."""

    row: int
    id: str
    queue: str
    state: str
    session: int | None
    claim: int
    attempts: int
    losses: int
    crashes: int
    unique_key: str | None
    cancel_asked: int
    outcome: str | None
    reason: str | None
    run_at: int | None
    started_at: int | None
    batch: str | None
    resource: str | None
    member: int | None
    tried: str | None
    rotations: int


_held = msgspec.json.Decoder(list[Held])
_AT_ONCE = 1000
# Values of a row of `settle_plainly`.
_WIDTH = 5


class Plain(NamedTuple):
    """A group of plain successes, ready to be written: the values of its rows, and how many there are of each queue."""

    session: int
    values: list[object]
    queues: Counter[str]


def plain(settlements: Sequence[Settlement]) -> Plain | None:
    """Nearly every group there is; None if one of them needs a closer look.

    For the thread that asks: the one that writes has more to do than any other.
    """
    session = settlements[0].token.session if settlements else 0
    if not all(_is_usual(one, session) for one in settlements) or len({one.id for one in settlements}) < len(
        settlements
    ):
        return None
    values: list[object] = []
    for one in settlements:
        values += (one.id, one.token.claim, one.transition.result, one.worker, one.ran)
    return Plain(session, values, Counter(one.queue or "" for one in settlements))


def settle(act: Act, settlements: Sequence[Settlement], plain: Plain | None) -> list[SettleAnswer]:
    """As the contract says."""
    if plain is not None and _settled_plainly(act, plain):
        return [APPLIED] * len(settlements)
    desk = _Desk(act)
    verdicts: list[SettleAnswer] = []
    for start in range(0, len(settlements), _AT_ONCE):
        portion = settlements[start : start + _AT_ONCE]
        desk.read(portion)
        verdicts += [desk.settle(settlement) for settlement in portion]
        desk.write()
    return verdicts


def _settled_plainly(act: Act, plain: Plain) -> bool:
    """Write them without reading them first; False, with nothing written, if one is not as expected.

    Whether all rows were, the number of changed rows tells.
    """
    if act.one("session_alive", plain.session, act.now) is None:
        return False
    act.mark()
    if act.bulk_values("settle_plainly", (act.now, plain.session), plain.values, _WIDTH) * _WIDTH != len(plain.values):
        act.back_to_mark()
        return False
    act.unmark()
    for queue, count in plain.queues.items():
        act.moved(queue, "running", "completed", count)
    return True


def _is_usual(settlement: Settlement, session: int) -> bool:
    transition = settlement.transition
    return (
        transition.state is State.COMPLETED
        and settlement.queue is not None
        and settlement.batch is None
        and settlement.resource is None
        and settlement.report is None
        and settlement.token.session == session
        and transition.outcome == "completed"
        and not transition.follow_ups
        and _is_plain(transition)
    )


class _Desk:
    """The settlements of one call. Writes are gathered by kind; a task is settled for good at most once in a call."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.tasks: dict[str, Held] = {}
        self.alive: dict[int, bool] = {}
        self.progress: dict[int, Row] = {}
        self.completed: list[Row] = []
        self.moved: list[Row] = []
        self.freed: list[Row] = []
        self.runs: list[tuple[str, Attempt]] = []
        self.returns = Returns(act)
        self.batches: dict[str | None, BatchStatus] = {}

    def read(self, settlements: Sequence[Settlement]) -> None:
        ids = json_list({settlement.id for settlement in settlements})
        tasks = self.act.decoded("settle_read", _held, ids)
        self.tasks = {task.id: task for task in tasks}
        self.returns.expect(
            (pool_of(task.resource), task.member)
            for task in tasks
            if task.resource is not None and task.member is not None and task.state == "running"
        )
        self.batches |= statuses(self.act, {task.batch for task in tasks})

    def settle(self, settlement: Settlement) -> SettleAnswer:
        token, transition = settlement.token, settlement.transition
        task = self.tasks.get(settlement.id)
        if task is None:
            return STALE_TASK
        ours = task.session == token.session and task.claim == token.claim
        running = task.state == "running"
        if ours and not running and task.outcome == transition.outcome:
            return APPLIED
        if not self._alive(token.session):
            return STALE_SESSION
        if not ours or not running:
            return STALE_CLAIM
        if transition.state is State.RUNNING:
            self.progress[task.row] = (task.row, transition.progress, transition.note)
            return APPLIED
        if self.act.touched and (transition.follow_ups or task.unique_key is not None):
            # What a batch that has just ended leaves behind comes first: both may want the same key.
            self.write()
            conclude(self.act)
        self._apply(task, settlement)
        if transition.follow_ups:
            # Written first: a follow-up may take the unique key that its task has just freed.
            self.write()
            put_follow_ups(self.act, transition.follow_ups)
        return APPLIED

    def write(self) -> None:
        """Progress before ends: a task may report and then end in one call."""
        if self.progress:
            self.act.bulk("settle_progress", list(self.progress.values()))
            self.progress.clear()
        for name, rows in (
            ("settle_completed", self.completed),
            ("settle_moved", self.moved),
            ("key_free", self.freed),
        ):
            if rows:
                self.act.bulk(name, rows)
                rows.clear()
        if self.runs:
            record(self.act, self.runs)
            self.runs.clear()
        self.returns.write()

    def _alive(self, session: int) -> bool:
        alive = self.alive.get(session)
        if alive is None:
            alive = self.alive[session] = self.act.one("session_alive", session, self.act.now) is not None
        return alive

    def _apply(self, task: Held, settlement: Settlement) -> None:
        transition, now = settlement.transition, self.act.now
        started = task.started_at if settlement.ran is None else now - settlement.ran
        state = State.CANCELLED if task.cancel_asked and transition.state in WAITING else transition.state
        tried = self._given_back(task, settlement)
        if state is State.COMPLETED and _is_plain(transition):
            self.completed.append((task.row, transition.outcome, transition.result, settlement.worker, started, now))
        else:
            state = self._apply_fully(task, settlement, state, started, tried)
        if state in FINISHED and task.unique_key is not None:
            self.freed.append((task.id, task.unique_key))
        if state is State.PENDING:
            self.act.rings.add(task.queue)
        self.act.moved(task.queue, "running", state.value, batch=task.batch)
        task.state, task.outcome = state.value, transition.outcome

    def _given_back(self, task: Held, settlement: Settlement) -> str | None:
        """Its member is free again; the names of those that the task has tried, as they are stored."""
        if task.resource is None or task.member is None:
            return task.tried
        report, tried = settlement.report, names_of(task.tried)
        self.returns.take_back(pool_of(task.resource), task.member, report, tried)
        if report is None:
            return task.tried
        return names_text(tried_after(tried, task.resource.partition("/")[2], report.outcome))

    def _apply_fully(
        self, task: Held, settlement: Settlement, state: State, started: int | None, tried: str | None
    ) -> State:
        """The state that it comes to: a batch may hold what would wait."""
        transition, now = settlement.transition, self.act.now
        over, completed = state in FINISHED, state is State.COMPLETED
        if not over and transition.recorded:
            self.runs.append((task.id, _run(task, settlement, started, now)))
        later = state is State.SCHEDULED and transition.delay
        run_at = now + later if later else task.run_at
        place = Waiting(state, task.reason if state is not transition.state else transition.reason)
        if not over and self.batches.get(task.batch) not in (None, BatchStatus.RUNNING):
            place = HELD_BY_BATCH
        self.moved.append(
            (
                task.row,
                place.state.value,
                transition.outcome,
                task.attempts + (1 if over or transition.charged else 0),
                task.losses + transition.lost,
                task.crashes + transition.crashed,
                transition.result,
                error_text(transition.error),
                transition.error.fingerprint if transition.error else None,
                1 if over or transition.error else 0,
                place.reason,
                run_at,
                settlement.worker,
                started if over else None,
                now if over else None,
                None if completed else tried,
                0 if completed else task.rotations + transition.rotated,
            )
        )
        return place.state


def _is_plain(transition: Transition) -> bool:
    return transition.error is None and transition.reason is None and not transition.lost and not transition.crashed


def _run(task: Held, settlement: Settlement, started: int | None, now: int) -> Attempt:
    return Attempt(
        claim=task.claim,
        attempt=task.attempts + 1,
        outcome=settlement.transition.outcome,
        started_at=started or now,
        ended_at=now,
        session=task.session,
        worker=settlement.worker,
        error=settlement.transition.error,
    )
