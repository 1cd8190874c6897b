"""Tasks with a resource in their hand: started at once or given back, and judged."""

import asyncio
from itertools import pairwise

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Completed, Failed, Outcome, Rotated
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, Resource, ResourceOutcome
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.testing.virtual import run_virtual
from tests.dispatch.stage import CoroutineLane, Stage, taking


async def _pool(stage: Stage, members: int, *, min_delay: int = 0) -> None:
    await stage.engine.declare_pool("proxies", PoolRules(limits=Limits(min_delay=min_delay)))
    await stage.engine.add_resources("proxies", [NewResource(name=f"p{number}") for number in range(members)])
    await stage.engine.register([HandlerInfo(name="check", queue="proxies", resources="proxies")])


async def _put(stage: Stage, count: int) -> list[str]:
    tasks = [NewTask(id=stage.new_id(), handler="check", queue="proxies") for _ in range(count)]
    return [placed.id for placed in await stage.engine.put(tasks)]


async def _member(stage: Stage, name: str) -> Resource:
    (found,) = await stage.engine.resources("proxies", [name])
    return found


def test_no_more_run_than_there_are_members_and_the_next_starts_when_one_is_back() -> None:
    stage = Stage()

    async def main() -> int:
        await _pool(stage, 3)
        await _put(stage, 12)
        dispatcher = stage.dispatcher()
        lane = stage.lane(dispatcher, taking(1.0), capacity=50)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()
        return lane.most

    began = stage.clock.now()
    assert run_virtual(main(), clock=stage.clock) == 3
    assert stage.clock.now() - began < 5 * SECOND, "four rounds of a second each, without pauses between"


def test_the_dispatcher_wakes_when_a_member_may_be_used_again() -> None:
    stage = Stage()

    async def main() -> None:
        await _pool(stage, 1, min_delay=7 * SECOND)
        await _put(stage, 4)
        dispatcher = stage.dispatcher()
        stage.lane(dispatcher)
        await dispatcher.start()
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)
    moments = [at for at, _, _ in stage.started]
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert all(7 * SECOND <= gap < 7 * SECOND + 20_000 for gap in gaps), gaps


class Shrinking(CoroutineLane):
    """A worker that has lost its room while the store was asked."""

    def __init__(self, stage: Stage, dispatcher: Dispatcher) -> None:
        super().__init__(stage, dispatcher, "w1", 4, taking(1.0))


def test_what_cannot_start_at_once_goes_back_with_its_member() -> None:
    stage = Stage()

    async def main() -> None:
        await _pool(stage, 4)
        ids = await _put(stage, 4)
        dispatcher = stage.dispatcher()
        lane = Shrinking(stage, dispatcher)
        dispatcher.add_lane(lane)
        claim = stage.engine.claim

        async def shrunk(request: object) -> object:
            claimed = await claim(request)  # type: ignore[arg-type]
            lane.capacity = 1
            return claimed

        stage.engine.claim = shrunk  # type: ignore[assignment, method-assign]
        await dispatcher.start()
        await asyncio.sleep(0.5)
        states = [(await stage.one(one)).state for one in ids]
        assert states.count(State.RUNNING) == 1
        assert states.count(State.PENDING) == 3
        assert sum([(await _member(stage, f"p{number}")).in_use for number in range(4)]) == 1
        await stage.until_finished()
        await dispatcher.stop()

    run_virtual(main(), clock=stage.clock)


def test_what_came_of_it_reaches_the_member() -> None:
    stage = Stage()
    told: dict[str, tuple[Outcome, Report]] = {
        "p0": (Completed("1"), Report(outcome=ResourceOutcome.OK)),
        "p1": (
            Rotated(TaskError(category="rate_limited", message="slow down")),
            Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=60 * SECOND),
        ),
        "p2": (
            Failed(TaskError(category="resource", message="dead", retryable=False)),
            Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="dead"),
        ),
    }

    class Telling(CoroutineLane):
        def start(self, claim: Claim) -> None:
            assert claim.leased is not None
            outcome, report = told[claim.leased.name]
            asyncio.get_running_loop().call_soon(self._tell, claim, outcome, report)

        def _tell(self, claim: Claim, outcome: Outcome, report: Report) -> None:
            self._dispatcher.finish(claim, outcome, worker=self.name, report=report)

    async def main() -> list[Resource]:
        await _pool(stage, 3)
        await _put(stage, 3)
        dispatcher = stage.dispatcher()
        dispatcher.add_lane(Telling(stage, dispatcher, "w1", 3, taking(0)))
        await dispatcher.start()
        await asyncio.sleep(1)
        await dispatcher.stop()
        return await stage.engine.resources("proxies")

    good, limited, dead = run_virtual(main(), clock=stage.clock)
    assert good.record.ok >= 1
    assert limited.record.cooldown_until - limited.last_used_at >= 60 * SECOND
    assert (dead.record.failed >= 1, dead.record.last_error) == (True, "dead")
    assert good.in_use == limited.in_use == dead.in_use == 0
