"""A random pool of resources in virtual time, made from one seed: its rules, members, requests and changes. The engine
decides; the oracle and the log check every answer.

Managers claim like a dispatcher: when a task came or ended, and at the moment that the last answer named.
"""

from collections.abc import Callable, Container, Coroutine
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar

import msgspec

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import make_id
from pitboss.model.leasing import open_span
from pitboss.model.outcome import Completed, Failed, Outcome, Released, Rotated, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import (
    Leased,
    NewResource,
    Report,
    ResourceChange,
    ResourceOutcome,
    Shortage,
    UseEnd,
    Want,
)
from pitboss.model.session import Claimed, ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskError
from tests.simulate.resource_log import Log, Pause, Use
from tests.simulate.resource_oracle import Job, Member, Oracle
from tests.simulate.resource_plans import Plan, draw, draw_limits

T = TypeVar("T")
POOL, HANDLER = "proxies", "check"
START: Moment = 1_800_000_000 * SECOND
FOREVER: Span = 10**9 * SECOND
POLICY = Policy(max_attempts=3, max_rotations=3, backoff=Backoff(base=2 * SECOND, jitter=0.0))
BROKEN = TaskError(category="net", message="connection reset")
# A plan that takes more steps never ends.
MOST_EVENTS = 5_000


class SteppedClock:
    """The store's clock. `true` is the real time; `offset` is how far the clock was set ahead or back."""

    def __init__(self) -> None:
        self.true: Moment = 0
        self.offset: Span = 0

    def now(self) -> Moment:
        return START + self.true + self.offset

    wall = now


class Manager:
    def __init__(self, session: int, slots: int) -> None:
        self.session, self.slots, self.busy = session, slots, 0
        self.wakes: Moment | None = None


class World:
    """One run. `faults` lists everything that was wrong."""

    def __init__(
        self,
        seed: int,
        make_engine: Callable[[SteppedClock], FullStore] | None = None,
        do: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
        without: Container[str] = (),
        *,
        lasting: bool = True,
    ) -> None:
        self.luck = Random(seed)
        # Uses last or not, whatever else is drawn: a seed that once found a fault still draws the same plan.
        self.lasting = Random(~seed) if lasting else None
        self.plan: Plan = draw(self.luck, self.lasting)
        self.clock = SteppedClock()
        self.engine = make_engine(self.clock) if make_engine else MemoryEngine(clock=self.clock)
        self._do, self._without = do or at_once, without
        self.log, self.faults, self.idle = Log(), list[str](), 0
        self.oracle = Oracle(self.plan.rules, (self._member(new) for new in self.plan.members))
        self.jobs: dict[str, Job] = {}
        # By task: the moment under which its newest use is remembered, as far as its holder knows.
        self._open: dict[str, Moment] = {}
        # When each waiting task may be given; 0 once that moment has come, even if the clock is set back later.
        self._due: dict[str, Moment] = {}
        self._events: list[tuple[Moment, int, Callable[[], object]]] = []
        self._numbered = 0
        self._managers: list[Manager] = []

    def run(self) -> list[str]:
        self._prepare()
        for _ in range(MOST_EVENTS):
            if not self._events or self.faults:
                break
            self.clock.true, _, act = heappop(self._events)
            woken = act()
            for manager in [woken] if isinstance(woken, Manager) else self._managers:
                self._ask(manager)
        else:
            self.faults.append(f"no end after {MOST_EVENTS} events")
        return self.faults or [*self.log.violations(), *self._disagreements()]

    # Requests to the pool.

    def _prepare(self) -> None:
        self._do(self.engine.declare_pool(POOL, self.plan.rules))
        self._do(self.engine.add_resources(POOL, self.plan.members))
        self._do(self.engine.register([HandlerInfo(name=HANDLER, queue=POOL, resources=POOL)]))
        for slots in self.plan.managers:
            info = SessionInfo(host="m", handlers=(HANDLER,), ttl=FOREVER)
            self._managers.append(Manager(self._do(self.engine.open_session(info)).number, slots))
        for at, want in self.plan.tasks:
            self._later(at, partial(self._put, want))
        for at, want in self.plan.leases:
            self._later(at, partial(self._acquire, want))
        for at, kind in (one for one in self.plan.troubles if one[1] not in self._without):
            self._later(at, getattr(self, f"_trouble_{kind}"))

    def _later(self, delay: Span, act: Callable[[], object]) -> None:
        self._numbered += 1
        heappush(self._events, (self.clock.true + delay, self._numbered, act))

    def _put(self, want: Want) -> None:
        task = make_id(1_800_000_000_000, len(self.jobs), 0)
        self.jobs[task] = Job(task, want)
        self._due[task] = 0
        self._do(self.engine.put([NewTask(id=task, handler=HANDLER, queue=POOL, want=want)]))

    def _ask(self, manager: Manager) -> None:
        while not self.faults and manager.busy < manager.slots:
            slot = Slot(free=manager.slots - manager.busy, queues=(POOL,))
            request = ClaimRequest(session=manager.session, slots=(slot,), handlers=frozenset({HANDLER}))
            now = self.clock.now()
            self._due = {task: due if due > now else 0 for task, due in self._due.items()}
            claimed = self._do(self.engine.claim(request))
            for claim in claimed.claims:
                self._given(manager, claim)
            if not claimed.claims:
                self._check_idle(claimed)
                self._wake_at(manager, claimed.next_due)
                return

    def _given(self, manager: Manager, claim: Claim) -> None:
        assert claim.leased is not None
        manager.busy += 1
        self._note(f"{claim.id} was not due" if self._due.pop(claim.id, 1) else None)
        took, late = self.plan.service(self.luck), self.luck.random() < self.plan.late
        self._open[claim.id] = claim.leased.use_at
        self._check_given(claim.leased, self.jobs[claim.id], made=not late, lasts=took // 3)
        if late:
            self._later(took // 3, partial(self._use_late, claim, took // 2 - took // 3))
        if self.luck.random() < self.plan.more_uses:
            self._later(took // 2, partial(self._use_again, claim, took - took // 2))
        self._later(took, partial(self._end, manager, claim))

    def _wake_at(self, manager: Manager, due: Moment | None) -> None:
        if due is None:
            return
        true = due - START - self.clock.offset
        if due <= self.clock.now():
            self.faults.append(f"told to come back at {due}, and it is {self.clock.now()}")
        elif manager.wakes is None or not self.clock.true < manager.wakes <= true:
            manager.wakes = true
            self._later(true - self.clock.true, lambda: manager)

    def _use_again(self, claim: Claim, lasts: Span) -> None:
        assert claim.leased is not None
        name, now = claim.leased.name, self.clock.now()
        member = self.oracle.members[name]
        if not member.enabled:
            return
        end = UseEnd(self._open[claim.id]) if self.lasting else None
        answer = self._do(self.engine.use(claim.token, claim.id, ends=end))
        self.oracle.end_use(name, end, now)
        if isinstance(answer, Shortage):
            if self.oracle.surely_from(member) <= now or answer.until is None or answer.until <= now:
                self.faults.append(f"{name} could have been used again at {now}: {answer}")
            return
        self._note(self.oracle.too_early(name, now))
        self._log_use(name, given=False, lasts=lasts)
        self._used(claim, answer)

    def _used(self, claim: Claim, answer: Moment) -> None:
        assert claim.leased is not None
        name = claim.leased.name
        self.oracle.use(name, answer + open_span(self.oracle.limits(self.oracle.members[name])), self.clock.now())
        self._open[claim.id] = answer + claim.leased.open_for

    def _use_late(self, claim: Claim, lasts: Span) -> None:
        """The use that came with the claim happens only now."""
        assert claim.leased is not None
        name, at, now = claim.leased.name, claim.leased.use_at, self.clock.now()
        member = self.oracle.members[name]
        if not member.enabled:
            return
        counted = len(member.uses)
        answer = self._do(self.engine.use(claim.token, claim.id, instead=at))
        if isinstance(answer, Shortage):
            known = not self.plan.troubles and at in self.oracle.newest(member)
            opens = self.oracle.surely_from(self.oracle.without(member, at) if known else member)
            if opens <= now or answer.until is None or answer.until <= now:
                self.faults.append(f"{name}, given at {at}, could have been used at {now}: {answer}")
            return
        (stored,) = self._do(self.engine.resources(POOL, [name]))
        # The gap before a moved use was kept when it was given, unless the member was used since.
        moved, newest = stored.record.uses == counted, member.uses[-1] == at
        if moved:
            self.oracle.members[name] = self.oracle.without(member, at)
        self._note(self.oracle.too_early(name, now, rested=moved and newest))
        self._log_use(name, given=False, lasts=lasts)
        self._used(claim, answer)

    def _end(self, manager: Manager, claim: Claim) -> None:
        assert claim.leased is not None
        manager.busy -= 1
        outcome, report = self._fate(claim.leased.name)
        transition = decide(claim, outcome, POLICY, self.clock.now(), 0.5)
        if not transition.state.finished:
            self._due[claim.id] = self.clock.now() + transition.delay if transition.delay else 0
        end = self._use_end(self._open.pop(claim.id))
        settlement = Settlement(
            id=claim.id,
            token=claim.token,
            transition=transition,
            resource=claim.leased.id,
            report=report,
            use_end=end,
        )
        (verdict,) = self._do(self.engine.settle([settlement]))
        self._note(None if verdict.applied else f"settlement refused: {verdict.why}")
        self.oracle.end_use(claim.leased.name, end, self.clock.now())
        completed = isinstance(outcome, Completed)
        self._taken_back(claim.leased.name, self.jobs[claim.id], report, completed=completed)

    def _use_end(self, at: Moment) -> UseEnd | None:
        """What a holder says at its end. Some die, and cannot say it."""
        return UseEnd(at) if self.lasting is not None and self.lasting.random() < 0.8 else None

    def _fate(self, name: str) -> tuple[Outcome, Report | None]:
        kind = self.plan.fate(self.luck, name)
        error = BROKEN.message if self.luck.random() < 0.5 else None
        if kind is None:
            return Released(started=True), None
        wait = self.plan.retry_after(self.luck) if kind is ResourceOutcome.RATE_LIMITED else None
        report = Report(outcome=kind, retry_after=wait, error=error)
        if kind is ResourceOutcome.OK:
            return Completed(), report
        return (Rotated(BROKEN) if kind is ResourceOutcome.RATE_LIMITED else Failed(BROKEN)), report

    def _acquire(self, want: Want) -> None:
        lease, now = f"own-{self._numbered}", self.clock.now()
        job = Job(lease, want)
        answer = self._do(self.engine.acquire(POOL, want, FOREVER, lease=lease))
        if isinstance(answer, Leased):
            self._check_given(answer, job)
            self._later(self.plan.service(self.luck), partial(self._release, answer, job))
        else:
            self._check_missed(job, now, self.oracle.openings(), f"{answer}")

    def _release(self, leased: Leased, job: Job) -> None:
        _, report = self._fate(leased.name)
        end = self._use_end(leased.use_at)
        self._note(None if self._do(self.engine.release(job.id, report, end)) else f"{job.id} is not held")
        self.oracle.end_use(leased.name, end, self.clock.now())
        self._taken_back(leased.name, job, report)

    # Changes to the pool.

    def _trouble_new_rules(self) -> None:
        rules = msgspec.structs.replace(self.oracle.rules, limits=draw_limits(self.luck, self.lasting))
        self._do(self.engine.declare_pool(POOL, rules))
        self.oracle.change_rules(rules, self.clock.now())
        for name in self.oracle.members:
            self.log.new_regime(name)

    def _trouble_own_limits(self) -> None:
        name = self._anybody()
        own = draw_limits(self.luck, self.lasting) if self.luck.random() < 0.7 else None
        self._do(self.engine.change_resources(POOL, [name], ResourceChange(limits=own)))
        self.oracle.change_limits(name, own, self.clock.now())
        self.log.new_regime(name)

    def _trouble_disable(self) -> None:
        name = self._anybody()
        self._enable(name, False)
        self._later(self.luck.choice([1, 7, 40]) * SECOND, partial(self._enable, name, True))

    def _enable(self, name: str, on: bool) -> None:
        self._do(self.engine.change_resources(POOL, [name], ResourceChange(enabled=on, reason="drill")))
        self.oracle.members[name].enabled = on

    def _trouble_reset(self) -> None:
        name = self._anybody()
        self._do(self.engine.change_resources(POOL, [name], ResourceChange(reset=True)))
        self.oracle.reset(name)
        self.log.new_regime(name)

    def _trouble_new_label(self) -> None:
        """A change that has nothing to do with limits must not lift any."""
        name = self._anybody()
        labels = (*sorted(self.oracle.members[name].labels), "new")
        self._do(self.engine.change_resources(POOL, [name], ResourceChange(labels=labels)))
        self.oracle.members[name].labels |= {"new"}

    def _trouble_new_member(self) -> None:
        new = NewResource(name=f"late-{self._numbered}", limits=draw_limits(self.luck, self.lasting))
        self._do(self.engine.add_resources(POOL, [new]))
        self.oracle.members[new.name] = self._member(new)

    def _trouble_clock_forward(self) -> None:
        self.clock.offset += self.luck.choice([1, 5, 60, 3600]) * SECOND
        for name in self.oracle.members:
            self.log.new_regime(name)

    def _trouble_clock_back(self) -> None:
        self.clock.offset -= self.luck.choice([1, 5, 60]) * SECOND

    def _anybody(self) -> str:
        return self.luck.choice(sorted(self.oracle.members))

    # Checks.

    def _check_given(self, leased: Leased, job: Job, *, made: bool = True, lasts: Span = 0) -> None:
        now = self.clock.now()
        self._note(self.oracle.objection(leased.name, job, now))
        if made:
            self._log_use(leased.name, given=True, lasts=lasts)
        self.oracle.give(leased.name, job, leased.use_at, now)

    def _check_idle(self, claimed: Claimed) -> None:
        """Nothing was given: no member fits any waiting task, and none will before the moment that was named."""
        self.idle += 1
        now, openings = self.clock.now(), self.oracle.openings()
        waiting = [self.jobs[task] for task, due in self._due.items() if not due]
        needed = [due for due in self._due.values() if due]
        # Tasks that want the same have the same chances.
        for job in {(job.want, job.tried): job for job in waiting}.values():
            needed += self._check_missed(job, now, openings, "nothing was given")
        if needed and (claimed.next_due is None or claimed.next_due > min(needed)):
            self.faults.append(f"there is something to give at {min(needed)}, the answer said {claimed.next_due}")

    def _check_missed(self, job: Job, now: Moment, openings: dict[str, Moment], what: str) -> list[Moment]:
        """When it can be given a member; a fault if that is now."""
        candidates = [member.name for member in self.oracle.candidates(job, now) if member.name in openings]
        ready = [name for name in candidates if openings[name] <= now]
        if ready:
            self.faults.append(f"missed at {now}: {job} could have had {ready}; {what}")
        return [openings[name] for name in candidates]

    def _taken_back(self, name: str, job: Job, report: Report | None, *, completed: bool = False) -> None:
        told = None if report is None else report.retry_after
        if told is not None:
            span = min(told, self.oracle.rules.cooldown_cap)
            self.log.paused(name, Pause(self.clock.true, span, "told to wait"))
        self.log.ended(name, self.clock.true)
        self.oracle.take_back(name, job, report, self.clock.now(), completed=completed)

    def _log_use(self, name: str, *, given: bool, lasts: Span) -> None:
        """The far side sees it within the guard, or while it is open; its holder goes on for `lasts`."""
        member, true = self.oracle.members[name], self.clock.true
        limits = self.oracle.limits(member)
        arrived = true + self.luck.randint(0, limits.guard)
        if self.lasting is not None and (open_for := open_span(limits)):
            arrived += self.lasting.choice([0, min(lasts, open_for), self.lasting.randint(0, min(lasts, open_for))])
        self.log.used(name, Use(true, arrived, limits, member.in_use, given))

    def _disagreements(self) -> list[str]:
        """At the end every task has ended, and the store's counts equal those of the log."""
        tasks = self._do(self.engine.find(EVERYTHING, limit=1000)).tasks
        left = [task.id for task in tasks if not task.state.finished]
        found = [f"{len(left)} tasks did not end: {left[:3]}"] if left else []
        for stored in self._do(self.engine.resources(POOL)):
            member = self.oracle.members[stored.name]
            if (stored.in_use, stored.record.uses) != (member.in_use, len(member.uses)):
                found.append(f"{stored} against {member}")
        return found

    def _note(self, fault: str | None) -> None:
        if fault is not None:
            self.faults.append(fault)

    def _member(self, new: NewResource) -> Member:
        return Member(new.name, labels=frozenset(new.labels), own=new.limits)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The memory engine never waits in these calls, so they need no event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError(f"{work} waits")
