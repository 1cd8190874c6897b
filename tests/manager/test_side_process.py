"""A side process by itself, with a program that has nothing to do with hooks."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from pitboss import wiring
from pitboss.manager.child_process import exit_text
from pitboss.manager.side_process import Program, SideProcess, SideState
from pitboss.model.duration import SECOND
from pitboss.model.pool import PoolSpec
from pitboss.testing.plugin import InLoop
from tests.manager.cluster import alive
from tests.manager.side_child import Answer, FromSide, Order, SideSpec, ToSide, from_side_codec

MODULE = "tests.manager.side_child"
QUICK = PoolSpec(name="side", restart_delay=SECOND // 100)
ME = os.getpid()


class Bench(InLoop):
    """One side process, and everything that it said and called."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answers: list[str] = []
        self.replies: list[Callable[[ToSide], None]] = []
        self.ends = 0
        self.given_up = 0
        self.side: SideProcess[FromSide, ToSide]

    async def __aenter__(self) -> "Bench":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.side.stop(0)
        assert not [child for child in psutil.Process().children() if MODULE in child.cmdline()]

    async def start(self, *, rules: PoolSpec = QUICK, **spec: Any) -> SideProcess[FromSide, ToSide]:
        self.side = SideProcess(
            Program("side process", MODULE, SideSpec(manager=ME, **spec), from_side_codec),
            rules=rules,
            clock=wiring.SystemClock(),
            tell=self.told.append,
            heard=self.hear,
            ended=self.ended,
            gave_up=self.gave_up,
        )
        self.side.start()
        return self.side

    async def ready(self, **options: Any) -> SideProcess[FromSide, ToSide]:
        """Started, and ready."""
        side = await self.start(**options)
        await self.until(lambda: side.ready)
        return side

    def hear(self, message: FromSide, reply: Callable[[ToSide], None]) -> None:
        if isinstance(message, Answer):
            self.answers.append(message.text)
            self.replies.append(reply)

    def ended(self) -> str:
        self.ends += 1
        return "two letters are lost"

    def gave_up(self) -> None:
        self.given_up += 1

    async def answer(self, order: str) -> str:
        """What it answers to an order."""
        count = len(self.answers)
        self.side.say(Order(order))
        await self.until(lambda: len(self.answers) > count)
        return self.answers[-1]

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> None:
        limit = asyncio.get_running_loop().time() + within
        while not condition():
            await asyncio.sleep(0.01)
            if asyncio.get_running_loop().time() > limit:
                raise AssertionError(f"{self.side.status}\n{self.told}\n{self.answers}")


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def replaced(bench: Bench, act: Callable[[], object]) -> int:
    """Do something that ends the process; the pid of the next one, once that is ready."""
    before = bench.side.status.pid
    act()
    await bench.until(lambda: bench.side.ready and bench.side.status.pid != before)
    assert not alive(before)
    return bench.side.status.pid


async def test_it_starts_becomes_ready_and_answers(bench: Bench) -> None:
    side = await bench.start()
    assert (side.status.state, side.status.pid) == (SideState.STARTING, 0)
    await bench.until(lambda: side.status.pid)
    assert (side.status.state, side.running, side.ready) == (SideState.STARTING, True, False)
    await bench.until(lambda: side.ready)
    assert (side.status.state, side.running) == (SideState.RUNNING, True)
    assert await bench.answer("hello") == "heard hello"
    assert bench.told == []


async def test_after_a_crash_another_one_starts_and_people_are_told_what_is_lost(bench: Bench) -> None:
    side = await bench.ready()
    await replaced(bench, lambda: side.say(Order("die")))
    assert bench.told == ["the side process ended with exit code 3, and two letters are lost; it starts again in 10ms"]
    assert (side.status.restarts, bench.ends, bench.given_up) == (1, 1, 0)


async def test_a_kill_from_outside_is_a_crash(bench: Bench) -> None:
    side = await bench.ready()
    await replaced(bench, lambda: psutil.Process(side.status.pid).kill())
    assert bench.told[0].startswith("the side process was killed by SIGKILL, and two letters are lost;")


async def test_one_that_dies_before_it_is_ready_is_given_up_after_its_restarts(bench: Bench) -> None:
    rules = PoolSpec(name="side", restart_delay=SECOND // 100, max_restarts=2)
    side = await bench.start(rules=rules, at_start="die")
    await bench.until(lambda: bench.given_up)
    status = side.status
    assert (status.state, status.pid, status.restarts) == (SideState.CRASHED, 0, 2)
    assert status.why == "it ended with exit code 4, and it crashed 3 times; 2 restarts are allowed"
    assert bench.told[-1] == f"the side process stays down until the manager is reloaded or restarted: {status.why}"
    assert (bench.ends, bench.given_up) == (3, 1)
    side.restart(SideSpec(manager=ME))
    await bench.until(lambda: side.ready)
    assert (side.status.state, side.status.why) == (SideState.RUNNING, "")


async def test_one_that_says_that_it_is_broken_is_given_up_at_once(bench: Bench) -> None:
    side = await bench.start(at_start="break")
    await bench.until(lambda: bench.given_up)
    assert (side.status.why, side.status.restarts) == ("the app cannot be loaded: no settings", 0)
    assert len(bench.told) == 1


@pytest.mark.parametrize("at_start", ["", "freeze"], ids=["ready", "starting"])
async def test_a_silent_one_is_killed_and_the_first_time_replaced_at_once(bench: Bench, at_start: str) -> None:
    side = await bench.start(rules=PoolSpec(name="side", unresponsive=2 * SECOND), at_start=at_start)
    await bench.until(lambda: side.ready or at_start)
    side.say(Order("freeze"))
    await bench.until(lambda: len(bench.told) >= 2)
    assert bench.told[:2] == [
        "the side process has said nothing for 2 s and is killed",
        "the side process was killed by SIGKILL, and two letters are lost; it starts again at once",
    ]


async def test_a_drained_one_finishes_its_work_and_another_one_follows(bench: Bench) -> None:
    side = await bench.ready()
    assert await bench.answer("work") == "working"
    side.drain()
    assert (side.status.state, side.running) == (SideState.DRAINING, False)
    await replaced(bench, lambda: side.say(Order("finish")))
    assert (side.status.restarts, bench.told) == (0, [])


async def test_new_code_takes_over_when_the_old_has_finished_its_work(bench: Bench) -> None:
    side = await bench.ready()
    assert await bench.answer("work") == "working"
    side.restart(SideSpec(manager=ME, name="second"))
    assert await bench.answer("who") == "first"
    await replaced(bench, lambda: side.say(Order("finish")))
    assert await bench.answer("who") == "second"
    assert (side.status.restarts, bench.told) == (0, [])


async def test_a_restart_does_not_wait_for_the_pause_after_a_crash(bench: Bench) -> None:
    side = await bench.ready(rules=PoolSpec(name="side", restart_delay=600 * SECOND))
    side.say(Order("die"))
    await bench.until(lambda: bench.told)
    assert side.status.state is SideState.RESTARTING
    side.restart(SideSpec(manager=ME, name="second"))
    await bench.until(lambda: side.ready)
    assert await bench.answer("who") == "second"


async def test_after_it_retired_none_follows_until_the_next_start(bench: Bench) -> None:
    side = await bench.ready()
    side.retire()
    await bench.until(lambda: side.status.state is SideState.STOPPED)
    side.say(Order("hello"))
    assert (side.status.pid, bench.told, bench.answers) == (0, [], [])
    side.start()
    await bench.until(lambda: side.ready)


async def test_an_answer_goes_to_the_process_that_asked_and_never_to_the_next(bench: Bench) -> None:
    side = await bench.ready()
    assert await bench.answer("hello") == "heard hello"
    bench.replies[0](Order("again"))
    await bench.until(lambda: "heard again" in bench.answers)
    await replaced(bench, lambda: side.say(Order("die")))
    bench.replies[0](Order("too late"))
    assert await bench.answer("anything") == "heard anything"
    assert "heard too late" not in bench.answers


async def test_what_it_started_and_detached_ends_with_it(bench: Bench) -> None:
    side = await bench.ready()
    stray = int((await bench.answer("detach")).partition(" ")[2])
    assert alive(stray)
    await replaced(bench, lambda: side.say(Order("die")))
    await bench.until(lambda: not alive(stray))


async def test_a_stop_waits_for_the_rest_and_lets_it_finish_its_work(bench: Bench) -> None:
    side = await bench.ready()
    pid = side.status.pid
    assert await bench.answer("work") == "working"

    async def finish() -> None:
        assert side.ready
        assert await bench.answer("finish, soon") == "heard finish, soon"
        side.say(Order("finish"))

    await side.stop(20, finish)
    assert not alive(pid)
    assert (side.status.state, side.status.pid, bench.told) == (SideState.STOPPED, 0, [])
    side.start()
    await asyncio.sleep(0)
    assert side.status.pid == 0, "a stop is final"


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("finish", [None, never], ids=["it works", "the rest never comes"])
async def test_a_stop_kills_it_when_the_time_is_over(
    bench: Bench, finish: Callable[[], Awaitable[None]] | None
) -> None:
    side = await bench.ready()
    pid = side.status.pid
    assert await bench.answer("work") == "working"
    loop = asyncio.get_running_loop()
    began = loop.time()
    await side.stop(0.2, finish)
    assert 0.2 <= loop.time() - began < 10
    assert not alive(pid)
    assert side.status.state is SideState.STOPPED


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_stop_while_it_is_made_ends_it(bench: Bench, turns: int) -> None:
    side = await bench.start(at_start="freeze")
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await side.stop(30)
    assert (side.status.state, side.status.pid, bench.told) == (SideState.STOPPED, 0, [])


async def test_a_stop_before_it_is_ready_does_not_wait_for_it(bench: Bench) -> None:
    side = await bench.start(at_start="freeze")
    await bench.until(lambda: side.status.pid)
    pid = side.status.pid
    async with asyncio.timeout(10):
        await side.stop(30)
    assert not alive(pid)


async def test_a_stop_in_the_pause_before_a_restart_ends_at_once(bench: Bench) -> None:
    side = await bench.ready(rules=PoolSpec(name="side", restart_delay=600 * SECOND))
    side.say(Order("die"))
    await bench.until(lambda: bench.told)
    async with asyncio.timeout(10):
        await side.stop(30)
    assert side.status.state is SideState.STOPPED


async def test_a_system_that_refuses_a_process_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, refused = asyncio.create_subprocess_exec, list[int]()

    async def refuses_twice(*command: Any, **options: Any) -> Any:
        if len(refused) < 2:
            refused.append(1)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await spawn(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuses_twice)
    side = await bench.ready()
    assert side.status.restarts == 2
    assert bench.told[0].startswith("the side process cannot be started: Resource temporarily unavailable")


def test_every_exit_has_a_text() -> None:
    assert exit_text(3) == "ended with exit code 3"
    assert exit_text(-9) == "was killed by SIGKILL"
    assert exit_text(-41) == "was killed by signal 41"
