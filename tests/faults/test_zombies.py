"""A process that is stopped past its session and then goes on: whatever it says about its tasks is refused."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from pitboss.engines.protocol import Store
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.wiring import SystemClock, make_engine
from tests.faults.children import Child
from tests.faults.stores import MakeUrl
from tests.faults.zombie import HANDLER, TTL, WORDS, Spoken

pytestmark = pytest.mark.fresh_loop(limit=60)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, make_url: MakeUrl) -> str:
    return make_url(request.param)


@asynccontextmanager
async def _stopped(url: str) -> AsyncIterator[tuple[Store, Child, list[str]]]:
    """A store, a process that holds claims and stands still beyond its session, and its tasks."""
    engine = make_engine(url)
    await engine.open()
    await engine.register([HandlerInfo(name=HANDLER)])
    new_id = IdMaker(SystemClock().now, Random().getrandbits)
    tasks = [NewTask(id=new_id(), handler=HANDLER) for _ in WORDS]
    await engine.put(tasks)
    zombie = Child("tests.faults.zombie", url)
    try:
        session = int(await asyncio.to_thread(zombie.hear))
        assert [one.ended for one in await engine.sessions() if one.number == session] == [False]
        zombie.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, zombie.pid, os.WSTOPPED | os.WNOWAIT)
        yield engine, zombie, [task.id for task in tasks]
    finally:
        zombie.end()
        await engine.close()


async def _speaks(zombie: Child) -> Spoken:
    zombie.process.send_signal(signal.SIGCONT)
    zombie.tell("speak")
    return msgspec.json.decode(await asyncio.to_thread(zombie.result, 30), type=Spoken)


async def _reclaimed(engine: Store) -> int:
    """Sweep until the session is over; how many tasks were taken from it."""
    lost = 0
    while not lost:
        await asyncio.sleep(0.05)
        lost = (await engine.reclaim()).lost
    return lost


async def _taken_over(engine: Store) -> list[Claim]:
    session = await engine.open_session(SessionInfo(host="successor", handlers=(HANDLER,)))
    claimed = await engine.claim(ClaimRequest(session=session.number, slots=(Slot(free=len(WORDS)),)))
    return claimed.claims


async def test_it_is_refused_after_another_took_over(url: str) -> None:
    async with _stopped(url) as (engine, zombie, tasks):
        assert await _reclaimed(engine) == len(WORDS)
        claims = await _taken_over(engine)
        before = await engine.get(tasks)
        spoken = await _speaks(zombie)
        assert spoken.accepted == dict.fromkeys(WORDS, False)
        assert all(spoken.why.values())
        assert not spoken.renewed
        assert not spoken.claimed
        assert await engine.get(tasks) == before
        moves = [decide(claim, Completed('"right"'), Policy(), 0, 0.5) for claim in claims]
        pairs = zip(claims, moves, strict=True)
        done = await engine.settle([Settlement(id=one.id, token=one.token, transition=move) for one, move in pairs])
        assert all(verdict.applied for verdict in done)
        for task in await engine.get(tasks):
            assert task is not None
            assert (task.state, task.result, task.attempts, task.losses) == (State.COMPLETED, '"right"', 1, 1)


async def test_it_is_refused_before_anybody_swept(url: str) -> None:
    async with _stopped(url) as (engine, zombie, tasks):
        await asyncio.sleep(1.2 * TTL / 1_000_000)
        assert all(one.expires_at < SystemClock().now() for one in await engine.sessions())
        spoken = await _speaks(zombie)
        assert spoken.accepted == dict.fromkeys(WORDS, False)
        assert not spoken.renewed
        assert await _reclaimed(engine) == len(WORDS)
        assert [task.state for task in await engine.get(tasks) if task] == [State.PENDING] * len(WORDS)


async def test_it_is_refused_after_its_tasks_ended_elsewhere(url: str) -> None:
    async with _stopped(url) as (engine, zombie, tasks):
        await _reclaimed(engine)
        claims = await _taken_over(engine)
        move = decide(claims[0], Completed('"right"'), Policy(), 0, 0.5)
        await engine.settle([Settlement(id=one.id, token=one.token, transition=move) for one in claims])
        ended = await engine.get(tasks)
        spoken = await _speaks(zombie)
        assert spoken.accepted == dict.fromkeys(WORDS, False)
        assert await engine.get(tasks) == ended
