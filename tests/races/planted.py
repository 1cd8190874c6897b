"""Engines that are wrong in one way each. A changed checker or workload must still catch them all."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from pitboss.engines import scan
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.memory.tables import Tables
from pitboss.model.duration import SECOND, Moment
from pitboss.model.lifecycle import claim_on
from pitboss.model.limits import allowed
from pitboss.model.outdone import SentAway
from pitboss.model.resource import Report, UseEnd
from pitboss.model.session import Claimed, ClaimRequest, Reclaimed, Renewal, Session, SessionInfo, Slot
from pitboss.model.settlement import APPLIED, STALE_CLAIM, STALE_TASK, ClaimEnd, SettleAnswer, Settlement
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Claim, NewTask, Placed, Task, Token
from pitboss.testing.clock import FakeClock


class Planted(MemoryEngine):
    """An engine with a bug. `breaks` is a word of the promise that the checker must find broken."""

    breaks = ""
    tables_type: ClassVar[type[Tables]] = Tables

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock, tables=self.tables_type())


def _progress(settlement: Settlement) -> bool:
    return settlement.transition.state is State.RUNNING


class NoFence(Planted):
    """Any session may settle a running task."""

    breaks = "newest claim"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        if task is None or task.state is not State.RUNNING or _progress(settlement):
            return super()._settle(settlement, now)
        token = Token(task.session or 0, task.claim)
        return super()._settle(msgspec.structs.replace(settlement, token=token), now)


class NoFenceOnProgress(Planted):
    """The end is fenced, reports on the way are not."""

    breaks = "newest claim"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        if task is not None and task.state is State.RUNNING and _progress(settlement):
            self.tables.move(task, State.RUNNING, progress=settlement.transition.progress)
            return APPLIED
        return super()._settle(settlement, now)


class EndsTwice(Planted):
    """A claim that has ended may end again, otherwise."""

    breaks = "exactly once"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        token = settlement.token
        ours = task is not None and (task.session, task.claim) == (token.session, token.claim)
        if task is not None and ours and task.state in FINISHED and not _progress(settlement):
            self.tables.move(task, State.RUNNING, finished_at=None, started_at=now)
        return super()._settle(settlement, now)


class LateWriteReopens(Planted):
    """A finished task goes back to waiting when its last holder says so, too late."""

    breaks = "accepted after a refusal|accepted after|exactly once"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        if task is not None and task.state is State.COMPLETED and settlement.transition.state in WAITING:
            self.tables.move(task, State.PENDING, finished_at=None, started_at=None, result=None)
            return APPLIED
        return super()._settle(settlement, now)


class DeadSessionsWrite(Planted):
    """That a session has expired is looked at when it claims, not when it settles."""

    breaks = "live session"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        known = self.tables.sessions.get(settlement.token.session)
        if known is None or known.ended:
            return super()._settle(settlement, now)
        return super()._settle(settlement, min(now, known.expires_at - 1))


class EndedSessionsWrite(Planted):
    """Ending a session does not fence it; only its expiry does."""

    breaks = "live session"

    def _alive(self, session: int, now: Moment) -> bool:
        known = self.tables.sessions.get(session)
        return known is not None and known.info.ttl + known.opened_at > now

    async def end_session(self, session: int) -> None:
        known = self.tables.sessions.get(session)
        if known is not None:
            self.tables.sessions[session] = msgspec.structs.replace(known, ended=True)


class ClaimNumberReused(Planted):
    """A task that was lost is claimed again under the same number."""

    breaks = "one live claim"

    def _lose(self, task: Task, now: Moment) -> State:
        self.tables.write(msgspec.structs.replace(task, claim=task.claim - 1))
        return super()._lose(self.tables.tasks[task.id], now)


class ClaimRace(Planted):
    """Two who claim at once read the same rows before either writes."""

    breaks = "one live claim"

    async def claim(self, request: ClaimRequest) -> Claimed:
        looked = {task.id: task for task in self.tables.in_state(State.PENDING)}
        await asyncio.sleep(0)
        for task in self.tables.in_state(State.RUNNING):
            if task.id in looked and task.started_at == self.clock.now():
                self.tables.write(looked[task.id])
        return await super().claim(request)


class PutDropped(Planted):
    """Now and then a put is acknowledged and not stored."""

    breaks = "no acknowledged put"
    _count = 0

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        placed = await super().put(tasks)
        self._count += 1
        if self._count % 5 == 0 and placed[0].created:
            self.tables.write(msgspec.structs.replace(self.tables.tasks[placed[0].id], state=State.CANCELLED))
            self.tables.remove(self.tables.tasks[placed[0].id])
        return placed


class PutAgainResets(Planted):
    """A repeated put writes the task anew."""

    breaks = "claim|exactly once|record"

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        for new in tasks:
            known = self.tables.tasks.get(new.id)
            if known is not None and known.state in FINISHED:
                self.tables.move(known, State.PENDING, finished_at=None, started_at=None, result=None)
        return await super().put(tasks)


class UniqueRace(Planted):
    """Looks for the key, then inserts: two who do it at once both insert."""

    breaks = "unique key"

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        free = [new.unique.key for new in tasks if new.unique and not self.tables.key_holder(new.unique.key, 0)]
        await asyncio.sleep(0)
        for key in free:
            self.tables.keys.pop(key, None)
        return await super().put(tasks)


class KeyFreedByRetry(Planted):
    """A task that waits for its next attempt has lost its key."""

    breaks = "unique key"

    def _end_claim(
        self, task: Task, end: ClaimEnd, report: Report | None, now: Moment, use_end: UseEnd | None = None
    ) -> list[SentAway]:
        away = super()._end_claim(task, end, report, now, use_end)
        if task.unique_key is not None and end.state in WAITING and end.outcome != "lost":
            self.tables.keys.pop(task.unique_key, None)
        return away


class KeyNeverFreed(Planted):
    """Later tasks are swallowed by one that ended long ago."""

    breaks = "unique key"

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.tables._free_key = lambda task: None  # type: ignore[method-assign]


class WindowOffByOne(Planted):
    """One more than the window allows."""

    breaks = "rate window"

    def _may_take(self, task: Task, now: Moment, *, ahead: bool) -> bool:
        windows = self.tables.queues[task.queue].rate
        if not windows or ahead:
            return super()._may_take(task, now, ahead=ahead)
        wider = [msgspec.structs.replace(window, count=window.count + 1) for window in windows]
        return allowed(wider, self.tables.starts[task.queue], now) != 0


class FixedWindow(Planted):
    """Counts anew at every full ten seconds."""

    breaks = "rate window"

    def _may_take(self, task: Task, now: Moment, *, ahead: bool) -> bool:
        windows = self.tables.queues[task.queue].rate
        if not windows or ahead:
            return super()._may_take(task, now, ahead=ahead)
        starts = self.tables.starts[task.queue]
        return all(
            sum(start // window.per == now // window.per for start in starts) < window.count for window in windows
        )


class WindowForgetsTheLost(Planted):
    """A start that was lost does not count any more."""

    breaks = "rate window"

    def _lose(self, task: Task, now: Moment) -> State:
        if self.tables.starts[task.queue]:
            self.tables.starts[task.queue].pop()
        return super()._lose(task, now)


class LossCharges(Planted):
    """Losing the session costs the task an attempt."""

    breaks = "cost an attempt"

    def _lose(self, task: Task, now: Moment) -> State:
        return super()._lose(self.tables.move(task, State.RUNNING, attempts=task.attempts + 1), now)


class SnoozeCharges(Planted):
    """Every return to waiting costs an attempt."""

    breaks = "cost an attempt"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        transition = msgspec.structs.replace(settlement.transition, charged=True)
        return super()._settle(msgspec.structs.replace(settlement, transition=transition), now)


class FailureIsFree(Planted):
    """A failed attempt is not counted, so the task is tried for ever."""

    breaks = "cost an attempt"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        transition = msgspec.structs.replace(settlement.transition, charged=False)
        return super()._settle(msgspec.structs.replace(settlement, transition=transition), now)


class LossUnrecorded(Planted):
    """A lost run leaves no trace in the record."""

    breaks = "is in the record"

    def _lose(self, task: Task, now: Moment) -> State:
        before = list(self.tables.history[task.id])
        state = super()._lose(task, now)
        self.tables.history[task.id] = before
        return state


class FollowUpThoughRefused(Planted):
    """The follow-ups are stored before the settlement is looked at."""

    breaks = "follow-up"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        for new in settlement.transition.follow_ups:
            self.tables.place(new, now)
        return super()._settle(settlement, now)


class FollowUpLost(Planted):
    """Only the first follow-up is stored."""

    breaks = "follow-up"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        transition = settlement.transition
        fewer = msgspec.structs.replace(transition, follow_ups=transition.follow_ups[:1])
        return super()._settle(msgspec.structs.replace(settlement, transition=fewer), now)


class SettlementForgotten(Planted):
    """A group is rolled back, and yet answered as applied."""

    breaks = "exactly once|one live claim|in the record"
    _forgot = False

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        tasks = [self.tables.tasks.get(one.id) for one in settlements]
        verdicts = await super().settle(settlements)
        if len(settlements) > 1 and not self._forgot:
            self._forgot = True
            for task in tasks:
                if task is not None and task.state is State.RUNNING:
                    self.tables.write(task)
        return verdicts


class ReclaimsTheLiving(Planted):
    """Calls a session dead two seconds before it is."""

    breaks = "one live claim"

    async def reclaim(self, limit: int = 1000) -> Any:
        sessions = dict(self.tables.sessions)
        for number, session in sessions.items():
            early = msgspec.structs.replace(session, expires_at=session.expires_at - 2 * SECOND)
            self.tables.sessions[number] = early
        try:
            return await super().reclaim(limit)
        finally:
            self.tables.sessions.update(sessions)


class RenewalRevives(Planted):
    """A session that has expired comes back when it renews."""

    breaks = "live session"

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        known = self.tables.sessions.get(session)
        if known is not None and not known.ended:
            later = msgspec.structs.replace(known, expires_at=self.clock.now() + 1)
            self.tables.sessions[session] = later
        return await super().renew(session, snapshot)


class SessionNumberReused(Planted):
    """The number of an ended session is given out again."""

    breaks = "live session|newest claim"

    async def open_session(self, info: SessionInfo) -> Session:
        for number, session in list(self.tables.sessions.items()):
            if session.ended:
                del self.tables.sessions[number]
        return await super().open_session(info)


class _AgeOnly(Tables):
    def pending(self, queues: Any, closed: Any = ()) -> Any:
        return iter(sorted(super().pending(queues, closed), key=lambda task: task.id))


class PriorityIgnored(Planted):
    """First come, first served, whatever the priority."""

    breaks = "lowest priority"
    tables_type = _AgeOnly


class _Youngest(Tables):
    def pending(self, queues: Any, closed: Any = ()) -> Any:
        return iter(sorted(super().pending(queues, closed), key=lambda task: task.id, reverse=True))


class YoungestFirst(Planted):
    """Each single claim is in order, but the newest task goes first."""

    breaks = "lowest priority"
    tables_type = _Youngest

    def _fill(self, *args: Any) -> list[Claim]:
        return sorted(super()._fill(*args), key=lambda claim: (claim.priority, claim.id))


class RetryErasesTheRecord(Planted):
    """A task that an operator revives has no past."""

    breaks = "is in the record"

    def _revive(self, task: Task, keep_attempts: bool) -> bool:
        revived = super()._revive(task, keep_attempts)
        if revived:
            self.tables.history[task.id] = []
        return revived


class RetryReopensTheCompleted(Planted):
    """Retry takes whatever is finished."""

    breaks = "exactly once"

    async def retry(self, wanted: Any, **options: Any) -> Any:
        for task in scan.matching(self.tables.in_state(State.COMPLETED), wanted, self.clock.now()):
            self.tables.move(task, State.CANCELLED)
        return await super().retry(wanted, **options)


class CapacityOffByOne(Planted):
    """Room for one more than there is."""

    breaks = "capacity"

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        real = dict(self.tables.queues)
        for name, queue in real.items():
            if queue.capacity is not None:
                self.tables.queues[name] = msgspec.structs.replace(queue, capacity=queue.capacity + 1)
        try:
            return await super().put(tasks)
        finally:
            self.tables.queues.update(real)


class CapacityRace(Planted):
    """Counts, then inserts: two who do it at once both find the last place."""

    breaks = "capacity"

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        now = self.clock.now()
        self.tables.check_room(tasks, now)
        await asyncio.sleep(0)
        return [self.tables.place(new, now) for new in tasks]


class FiguresDrift(Planted):
    """A cancelled task is still counted as waiting."""

    breaks = "figures"

    async def cancel(self, wanted: Any, **options: Any) -> Any:
        before = {name: dict(counts) for name, counts in self.tables.counts.items()}
        changed = await super().cancel(wanted, **options)
        if changed.changed:
            self.tables.counts.update(before)
        return changed


class RefusedButWritten(Planted):
    """A late failure is refused, but overwrites the result all the same."""

    breaks = "exactly once"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        if task is None:
            return STALE_TASK
        if task.state is State.COMPLETED and settlement.transition.state is State.FAILED:
            self.tables.move(task, State.FAILED, outcome=settlement.transition.outcome, result=None)
            return STALE_CLAIM
        return super()._settle(settlement, now)


class LimitsIgnored(Planted):
    """A remote worker may write after the time limit of its claim, as long as no sweep has noticed."""

    breaks = "time limit was over"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        task = self.tables.tasks.get(settlement.id)
        until = None if task is None or task.state is not State.RUNNING else task.claim_expires_at
        return super()._settle(settlement, now if until is None else min(now, until - 1))


class SignsOfLifeForgotten(Planted):
    """A report does not start the time limit again."""

    breaks = "refused only for a reason|before its time limit"

    def _settle(self, settlement: Settlement, now: Moment) -> SettleAnswer:
        before = self.tables.tasks.get(settlement.id)
        answer = super()._settle(settlement, now)
        if before is not None and answer.applied and _progress(settlement):
            task = self.tables.tasks[settlement.id]
            self.tables.write(msgspec.structs.replace(task, claim_expires_at=before.claim_expires_at))
        return answer


class RemoteClaimsDieWithTheirSession(Planted):
    """A sweep takes back what remote workers claimed through a process that is gone."""

    breaks = "before its time limit|one live claim"

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        for task in self.tables.in_state(State.RUNNING):
            if task.claim_expires_at is not None and not self._alive(task.session or 0, self.clock.now()):
                self._lose(task, self.clock.now())
        return await super().reclaim(limit)


class GivenToTwoWorkers(Planted):
    """A key is looked up without its task's state: a claim that was settled is given again, under a new number."""

    breaks = "claimed again after|one live claim|refused only for a reason"

    def _given_again(self, slot: Slot, index: int, now: Moment) -> list[Claim]:
        for task in self.tables.in_state(State.COMPLETED):
            if slot.repeat is not None and task.claim_key == slot.repeat:
                running = self.tables.move(task, State.RUNNING, claim=task.claim + 1, finished_at=None)
                return [claim_on(running, running.session or 0, index)]
        return super()._given_again(slot, index, now)


BUGS: list[type[Planted]] = Planted.__subclasses__()
