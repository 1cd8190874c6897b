"""Group commit: waiting requests are written together, and each succeeds or fails by itself."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from pitboss.engines.sqlite import SqliteEngine
from pitboss.engines.sqlite.act import Act
from pitboss.model.errors import QueueFull, StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import QueueChange
from pitboss.model.states import State
from pitboss.model.task import NewTask, Placed, Unique
from tests.engines.sqlite.store import WallClock, new, opened

pytestmark = pytest.mark.fresh_loop


class Gate:
    """A failpoint that records the places that the writer passes, stops it at one, and fails at others."""

    def __init__(self, stop_at: str = "", fail_at: str = "") -> None:
        self.seen: list[str] = []
        self.stop_at, self.fail_at = stop_at, fail_at
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self.stop_at:
            self.stop_at = ""
            self.reached.set()
            assert self.go_on.wait(10)
        if name == self.fail_at:
            raise ArithmeticError(name)


async def test_requests_that_wait_are_committed_together(tmp_path: Path) -> None:
    gate = Gate(stop_at="wish.before")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        first = asyncio.create_task(engine.wish("a", "1"))
        await asyncio.to_thread(gate.reached.wait, 10)
        puts = [asyncio.create_task(engine.put([new()])) for _ in range(3)]
        await asyncio.sleep(0)
        gate.go_on.set()
        await asyncio.gather(first, *puts)
    after = [name for name in gate.seen if name.startswith("put")]
    assert after == ["put.before", "put.commit"] * 3 + ["put.after"] * 3


async def test_a_refused_request_leaves_the_others_of_its_group_alone(tmp_path: Path) -> None:
    gate = Gate(stop_at="wish.before")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        await engine.change_queue("small", QueueChange(capacity=1))
        first = asyncio.create_task(engine.wish("a", "1"))
        await asyncio.to_thread(gate.reached.wait, 10)
        groups = [[new()], [new(queue="small"), new(queue="small")], [new()]]
        puts = [asyncio.create_task(engine.put(group)) for group in groups]
        await asyncio.sleep(0)
        gate.go_on.set()
        await first
        answers = await asyncio.gather(*puts, return_exceptions=True)
        assert isinstance(answers[1], QueueFull)
        assert [isinstance(answer, list) for answer in answers] == [True, False, True]
        assert (await engine.count(EVERYTHING)).number == 2
        assert {queue.name: queue.waiting for queue in await engine.queues()} == {"default": 2, "small": 0}


async def _put_at_once(engine: SqliteEngine, *groups: list[NewTask]) -> list[list[Placed] | BaseException]:
    """The puts are in one group, because the writer is busy until all of them wait."""
    busy, go_on = threading.Event(), threading.Event()

    def hold(act: Act) -> None:
        busy.set()
        assert go_on.wait(10)

    holding = asyncio.create_task(asyncio.to_thread(engine.run_sync, "hold", hold))
    await asyncio.to_thread(busy.wait, 10)
    puts = [asyncio.create_task(engine.put(group)) for group in groups]
    await asyncio.sleep(0)
    go_on.set()
    await holding
    return await asyncio.gather(*puts, return_exceptions=True)


async def test_puts_that_are_done_together_get_their_own_answers(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        first, twice, last = new(), new(unique=Unique("k")), new()
        answers = await _put_at_once(engine, [first, twice], [], [new(unique=Unique("k")), last], [first])
        assert answers == [
            [Placed(first.id, True, State.HELD, "handler"), Placed(twice.id, True, State.HELD, "handler")],
            [],
            [Placed(twice.id, False, State.HELD, "handler"), Placed(last.id, True, State.HELD, "handler")],
            [Placed(first.id, False, State.HELD, "handler")],
        ]


async def test_of_puts_that_are_done_together_only_the_bad_one_fails(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await engine.change_queue("small", QueueChange(capacity=2))
        answers = await _put_at_once(
            engine, [new(queue="small")], [new(priority=2**70)], [new(queue="small")], [new(queue="small")], [new()]
        )
        assert [type(answer) for answer in answers] == [list, OverflowError, list, QueueFull, list]
        assert {queue.name: queue.waiting for queue in await engine.queues()} == {"default": 1, "small": 2}


@pytest.mark.parametrize("place", ["put.before", "put.commit"])
async def test_a_failure_before_the_commit_writes_nothing(tmp_path: Path, place: str) -> None:
    gate = Gate(fail_at=place)
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        with pytest.raises(ArithmeticError):
            await engine.put([new()])
        gate.fail_at = ""
        assert (await engine.count(EVERYTHING)).number == 0
        assert await engine.queues() == []
        await engine.put([new()])


async def test_a_failure_after_the_commit_leaves_it_written(tmp_path: Path) -> None:
    gate = Gate(fail_at="put.after")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        with pytest.raises(ArithmeticError):
            await engine.put([new()])
        assert (await engine.count(EVERYTHING)).number == 1


async def test_a_request_whose_caller_has_gone_is_not_begun(tmp_path: Path) -> None:
    gate = Gate(stop_at="wish.before")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        first = asyncio.create_task(engine.wish("a", "1"))
        await asyncio.to_thread(gate.reached.wait, 10)
        given_up = asyncio.create_task(engine.put([new()]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        gate.go_on.set()
        await first
        assert (await engine.count(EVERYTHING)).number == 0


async def test_a_disk_error_fails_the_whole_group_and_the_next_one_works(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:

        def broken(act: Act) -> None:
            act.run("queue_create", "half")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error

        with pytest.raises(StoreUnavailable, match="cannot be read or written"):
            await asyncio.to_thread(engine.run_sync, "broken", broken)
        await engine.put([new()])
        assert [queue.name for queue in await engine.queues()] == ["default"]


async def test_several_loops_and_plain_threads_share_one_engine(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:

        def in_a_loop_of_its_own() -> int:
            return len(asyncio.run(engine.put([new(), new()])))

        def in_no_loop() -> int:
            return len(engine.put_sync([new(), new(), new()]))

        calls = [in_a_loop_of_its_own, in_no_loop] * 4
        placed = await asyncio.gather(*(asyncio.to_thread(call) for call in calls))
        assert sum(placed) == 20
        assert (await engine.count(EVERYTHING)).number == 20


async def test_errors_reach_a_plain_thread_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await engine.change_queue("small", QueueChange(capacity=0))
        with pytest.raises(QueueFull):
            await asyncio.to_thread(engine.put_sync, [new(queue="small")])


async def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "s.db", clock=WallClock())
    with pytest.raises(StoreUnavailable, match="not open"):
        await engine.put([new()])
    await engine.open()
    await engine.close()
    await engine.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await engine.count(EVERYTHING)
    await engine.open()
    await engine.put([new()])
    await engine.close()
