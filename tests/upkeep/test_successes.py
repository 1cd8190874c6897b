"""The last success of a schedule is known even when the task of that run is kept for a shorter time than a tick."""

from typing import NamedTuple

from pitboss.engines.memory import MemoryEngine
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.duration import SECOND, Moment
from pitboss.model.filter import EVERYTHING
from pitboss.model.meta import read_meta
from pitboss.model.outcome import Completed, Failed, Outcome, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.retention import Retention
from pitboss.model.schedule import Schedule, ScheduleSpec
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, TaskError
from pitboss.testing.clock import FakeClock
from pitboss.upkeep.all_duties import all_duties
from pitboss.upkeep.fire import Firer
from pitboss.upkeep.successes import note_successes

HOUR = 3600 * SECOND
NO = Failed(TaskError(category="error", type="OSError", message="no", fingerprint="abcd1234", retryable=False))


class Plan(NamedTuple):
    """Finished tasks are kept for a minute only."""

    retention: Retention = Retention(completed=60 * SECOND, failed=60 * SECOND)
    max_store_size: int | None = None
    min_free_disk: int | None = None
    alerts: AlertsSpec | None = None


class Leader:
    """A manager that leads, and works; its duties are called by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryEngine(clock=self.clock)
        self.said: list[str] = []
        self._duties = {one.name: one for one in all_duties(self.store, Plan, clock=self.clock, warn=self.said.append)}

    async def start(self) -> Moment:
        """The first tick of a schedule that runs every hour."""
        await self.store.register([HandlerInfo(name="job")])
        info = SessionInfo(host="here", handlers=("job",), ttl=1000 * HOUR)
        self.session = (await self.store.open_session(info)).number
        self.term = (await self.store.campaign(self.session)).term
        first = (await self.store.put_schedule(ScheduleSpec(name="hourly", handler="job", every=HOUR))).next_at
        assert first is not None
        return first

    async def tick(self) -> Claim:
        """An hour later: the task of the tick, claimed."""
        self.clock.advance("1h")
        await Firer(self.store, self.store, self.clock, warn=self.said.append).fire(self.term)
        (claim,) = (await self.store.claim(ClaimRequest(session=self.session, slots=(Slot(free=1),)))).claims
        return claim

    async def end(self, claim: Claim, outcome: Outcome) -> None:
        transition = decide(claim, outcome, Policy(), self.clock.now(), 0.5)
        await self.store.settle([Settlement(id=claim.id, token=claim.token, transition=transition)])

    async def prune(self) -> None:
        """Long after the end, and long before the next tick."""
        self.clock.advance("2m")
        await self._duties["prune"].work(self.term)
        assert (await self.store.count(EVERYTHING)).number == 0

    async def schedule(self) -> Schedule:
        (schedule,) = await self.store.schedules()
        return schedule


async def test_a_run_that_is_pruned_before_the_next_tick_counts_as_the_last_success() -> None:
    """It was looked for at the next tick only, when its task was gone: the last success stayed unknown."""
    leader = Leader()
    first = await leader.start()
    await leader.end(await leader.tick(), Completed())
    await leader.prune()
    schedule = await leader.schedule()
    assert (schedule.last_success, schedule.open, schedule.fired) == (first, (), 1)
    mark = read_meta((await leader.tick()).meta).tick
    assert mark is not None
    assert (mark.scheduled_for, mark.last_success) == (first + HOUR, first)
    assert leader.said == []


async def test_a_run_that_failed_and_is_pruned_is_no_success() -> None:
    leader = Leader()
    first = await leader.start()
    for outcome in (Completed(), NO):
        await leader.end(await leader.tick(), outcome)
        await leader.prune()
    schedule = await leader.schedule()
    assert (schedule.last_success, schedule.open, schedule.fired) == (first, (), 2)


async def test_while_nothing_has_ended_nothing_is_written() -> None:
    leader = Leader()
    await leader.start()
    await leader.tick()
    before = await leader.schedule()
    await note_successes(leader.store, leader.store, leader.store, leader.term)
    assert await leader.schedule() == before
    assert len(before.open) == 1
