"""What a crash at a named place leaves behind: all of a call, or nothing."""

import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.outcome import Transition
from pitboss.model.queue import QueueChange
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.settlement import SettleAnswer
from pitboss.model.states import State
from tests.engines.postgres.keyed_yard import WORK, claim, divide, give, keyed, seat
from tests.engines.postgres.yard import DONE, Yard, ends

pytestmark = pytest.mark.fresh_loop


class Crash(Exception):
    pass


class Trap:
    """Crashes once at one place."""

    def __init__(self) -> None:
        self.place = ""

    def __call__(self, name: str) -> None:
        if name == self.place:
            self.place = ""
            raise Crash(name)


@pytest.fixture
def trap() -> Trap:
    return Trap()


@pytest.fixture
def yard(postgres_dsn: str, trap: Trap) -> Yard:
    return Yard(postgres_dsn, failpoint=trap)


@pytest.mark.parametrize(("place", "written"), [("put.before", 0), ("put.commit", 0), ("put.after", 3)])
async def test_a_put(yard: Yard, trap: Trap, place: str, written: int) -> None:
    await yard.engine.change_queue("small", QueueChange(capacity=3))
    tasks = yard.news(3, queue="small")
    trap.place = place
    with pytest.raises(Crash):
        await yard.engine.put(tasks)
    assert (await yard.engine.count(EVERYTHING)).number == written
    placed = await yard.engine.put(tasks)
    assert [one.created for one in placed] == [written == 0] * 3


@pytest.mark.parametrize(("place", "running"), [("claim.before", 0), ("claim.commit", 0), ("claim.after", 2)])
async def test_a_claim(yard: Yard, trap: Trap, place: str, running: int) -> None:
    await yard.engine.put([*yard.news(1, queue="a"), *yard.news(1, queue="b")])
    slots = (Slot(free=1, queues=("a",)), Slot(free=1, queues=("b",)))
    trap.place = place
    with pytest.raises(Crash):
        await yard.engine.claim(ClaimRequest(session=yard.session.number, slots=slots))
    assert (await yard.engine.count(by(state="running"))).number == running


@pytest.mark.parametrize(("place", "done"), [("settle.before", 0), ("settle.commit", 0), ("settle.after", 2)])
async def test_a_settlement_with_a_follow_up(yard: Yard, trap: Trap, place: str, done: int) -> None:
    await yard.engine.put(yard.news(1))
    follow_up = yard.new(queue="next")
    transition = Transition(state=State.COMPLETED, outcome="completed", charged=True, follow_ups=(follow_up,))
    settlements = ends((await yard.claim(1)).claims, transition)
    trap.place = place
    with pytest.raises(Crash):
        await yard.engine.settle(settlements)
    assert (await yard.engine.count(by(state=("completed", "pending")))).number == done
    assert (await yard.engine.settle(settlements))[0].applied
    assert (await yard.engine.count(EVERYTHING)).number == 2


@pytest.mark.parametrize(("place", "owner"), [("assign.before", 0), ("assign.commit", 0), ("assign.after", 1)])
async def test_an_assignment_of_keys(yard: Yard, trap: Trap, place: str, owner: int) -> None:
    await divide(yard)
    await give(yard, {"a": 0, "b": 0})
    trap.place = place
    with pytest.raises(Crash):
        await give(yard, {"a": 1, "b": 1})
    owners = [one.owner for one in await yard.engine.partitions(WORK)]
    assert owners == [f"default/{owner}"] * 2


@pytest.mark.parametrize(
    ("place", "number"), [("take_slots.before", 1), ("take_slots.commit", 1), ("take_slots.after", 3)]
)
async def test_slots_that_are_taken(yard: Yard, trap: Trap, place: str, number: int) -> None:
    await seat(yard, 1)
    trap.place = place
    with pytest.raises(Crash):
        await seat(yard, 3)
    assert len(await yard.engine.slots()) == number


async def test_a_keyed_claim_that_is_not_committed_draws_nothing(yard: Yard, trap: Trap) -> None:
    await divide(yard, "affinity")
    await yard.engine.create_batch(NewBatch(id="b"), [keyed(yard, "a") for _ in range(3)])
    await claim(yard, None, free=0)
    trap.place = "claim.commit"
    with pytest.raises(Crash):
        await claim(yard, None, free=2)
    assert (await yard.engine.count(by(state="held"))).number == 3
    assert len((await claim(yard, None, free=2)).claims) == 2
    await yard.assert_figures()


async def test_a_settlement_that_cannot_be_written_does_not_hold_up_the_others(yard: Yard) -> None:
    await yard.engine.put(yard.news(9))
    claims = (await yard.claim(9)).claims
    bad = Transition(state=State.COMPLETED, outcome="completed", result="\0", charged=True)
    settlements = [*ends(claims[:4]), *ends(claims[4:5], bad), *ends(claims[5:])]
    verdicts = await yard.engine.settle(settlements)
    assert [verdict.applied for verdict in verdicts] == [True] * 4 + [False] + [True] * 4
    assert isinstance(verdicts[4], SettleAnswer)
    assert "cannot be written" in (verdicts[4].why or "")
    assert (await yard.engine.settle(ends(claims[4:5], DONE)))[0].applied
    await yard.assert_figures()
