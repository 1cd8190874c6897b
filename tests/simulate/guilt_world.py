"""A pool with some members at fault, in virtual time: who is sent away, and how soon.

The memory engine gives the members, counts their uses and judges them, so this measures the product. A member is found
when it is on the blacklist, or known to be at fault while the blacklist has no room.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from pitboss.engines.memory import MemoryEngine
from pitboss.model.comparison import at_fault, suspected
from pitboss.model.duration import SECOND
from pitboss.model.ids import make_id
from pitboss.model.outcome import Completed, Failed, Outcome, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import NewResource, PoolRules, Report, Resource, ResourceOutcome
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.testing.clock import FakeClock
from tests.simulate.resource_world import FOREVER, at_once

POOL, HANDLER = "proxies", "fetch"
POLICY = Policy(max_attempts=3, backoff=Backoff(base=2 * SECOND, jitter=0.0))
USES = 25
_HOPELESS, _NOISE = 0.05, 0.05
_BROKEN = TaskError(category="net", message="it did not work")
_MOST = 100_000
# When a task ends, a number that makes it unique, and its claim; None: look again.
_End = tuple[int, int, Claim | None]


class Plan(NamedTuple):
    """A world. A bad member fails so often; down destinations fail always. `explicit` is the share of failures whose
    exception blames the member at once; `blocked`: bad members are refused by the only destination, not broken."""

    members: int = 20
    bad: int = 3
    rate: float = 0.7
    destinations: int = 10
    down: int = 2
    explicit: float = 0.3
    blocked: bool = False


WORLDS = {
    "3 of 20": Plan(),
    "1 of 4": Plan(members=4, bad=1),
    "8 of 20": Plan(bad=8),
    # Half of the members are refused by the only site that they are used on, so they are at fault.
    "a site blocks half": Plan(bad=10, destinations=1, down=0, blocked=True),
}
# How often a bad member fails, and which share of such members must be found.
BARS = {0.7: 0.95, 0.5: 0.85}
PRECISION = 0.97


class Score(NamedTuple):
    """How many members were at fault, how many of those were found in time, and how many innocents were sent away."""

    bad: int = 0
    found: int = 0
    innocent: int = 0

    @property
    def recall(self) -> float:
        return self.found / self.bad

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.innocent)

    def __str__(self) -> str:
        return f"precision {self.precision:.1%}, recall {self.recall:.1%}"


def total(scores: Iterable[Score]) -> Score:
    return Score(*(sum(column) for column in zip(*scores, strict=True)))


def scored(plan: Plan, seeds: int) -> Score:
    return total(GuiltWorld(plan, seed).run() for seed in range(seeds))


class GuiltWorld:
    """One run of a plan: several tasks at a time, until each member was found or had its uses."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.luck, self.clock = plan, Random(seed), FakeClock()
        self.engine = MemoryEngine(clock=self.clock)
        names = [f"m{number:02}" for number in range(plan.members)]
        self.bad = set(self.luck.sample(names, plan.bad))
        self.found: dict[str, int] = {}
        self._watched = set(names)
        self._number = 0
        self._tasks: dict[str, tuple[int, bool]] = {}
        at_once(self.engine.declare_pool(POOL, PoolRules()))
        at_once(self.engine.add_resources(POOL, [NewResource(name=name) for name in names]))
        at_once(self.engine.register([HandlerInfo(name=HANDLER, queue=POOL, resources=POOL)]))
        info = SessionInfo(host="h", handlers=(HANDLER,), ttl=FOREVER)
        self._session = at_once(self.engine.open_session(info)).number

    def run(self) -> Score:
        ends: list[_End] = []
        while self._watched:
            assert self._number < _MOST, "it does not end"
            back = min(one.available_at for one in self._members(self._watched))
            # While all that are watched cool down, there is no work: their next uses decide.
            if back <= self.clock.now():
                self._claim(ends)
            at, _, claim = heappop(ends) if ends else (back, 0, None)
            self.clock.advance_to(max(at, self.clock.now()))
            if claim is not None:
                self._end(claim)
        in_time = {name for name, uses in self.found.items() if uses <= USES}
        return Score(len(self.bad), len(in_time & self.bad), len(in_time - self.bad))

    def _members(self, names: Iterable[str] | None = None) -> list[Resource]:
        return at_once(self.engine.resources(POOL, None if names is None else list(names)))

    def _claim(self, ends: list[_End]) -> None:
        self._fill()
        slot = Slot(free=self.plan.members, queues=(POOL,))
        claimed = at_once(self.engine.claim(ClaimRequest(session=self._session, slots=(slot,))))
        for claim in claimed.claims:
            self._number += 1
            heappush(ends, (self.clock.now() + self.luck.randint(1, 3 * SECOND), self._number, claim))
        if not ends:
            assert claimed.next_due is not None
            heappush(ends, (claimed.next_due, 0, None))

    def _fill(self) -> None:
        """Keep more tasks waiting than there are members."""
        while len(self._tasks) < 1.2 * self.plan.members:
            self._number += 1
            task = make_id(1_800_000_000_000, self._number, 0)
            self._tasks[task] = self.luck.randrange(self.plan.destinations), self.luck.random() < _HOPELESS
            at_once(self.engine.put([NewTask(id=task, handler=HANDLER, queue=POOL)]))

    def _end(self, claim: Claim) -> None:
        assert claim.leased is not None
        destination, hopeless = self._tasks[claim.id]
        outcome, report = self._fate(claim.leased.name, destination, hopeless)
        transition = decide(claim, outcome, POLICY, self.clock.now(), 0.5)
        one = Settlement(id=claim.id, token=claim.token, transition=transition, resource=claim.leased.id, report=report)
        assert at_once(self.engine.settle([one]))[0].applied
        if transition.state.finished:
            del self._tasks[claim.id]
        self._look()

    def _fate(self, name: str, destination: int, hopeless: bool) -> tuple[Outcome, Report]:
        guilty = name in self.bad and self.luck.random() < self.plan.rate
        away = destination < self.plan.down
        site = f"site{destination}"
        if not (hopeless or guilty or away or self.luck.random() < _NOISE):
            return Completed(), Report(outcome=ResourceOutcome.OK, destination=site)
        kind = ResourceOutcome.TASK_ERROR
        if not hopeless and self.luck.random() < self.plan.explicit:
            kind = ResourceOutcome.BLOCKED if guilty and self.plan.blocked else ResourceOutcome.RESOURCE_ERROR
        return Failed(_BROKEN), Report(outcome=kind, destination=site)

    def _look(self) -> None:
        """After every use: who is known to be at fault by now, and after how many uses?"""
        members = self._members()
        for one in members:
            if one.name in self._watched and self._is_known(one, members):
                self.found[one.name] = one.record.uses
            if one.name in self.found or one.record.uses > USES:
                self._watched.discard(one.name)

    def _is_known(self, member: Resource, members: list[Resource]) -> bool:
        record = member.record
        if record.blacklisted_until > self.clock.now():
            return True
        return suspected(record.compared) and at_fault(
            record.compared, [one.record.compared for one in members if one is not member]
        )
