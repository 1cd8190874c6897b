"""The table of moves, its drawing, and the moves of the engine are the same."""

import re
from pathlib import Path

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.memory.tables import Tables
from pitboss.model.batch import Pause
from pitboss.model.filter import by
from pitboss.model.outcome import Cancelled, Completed, Failed, Released, Retry
from pitboss.model.session import Slot
from pitboss.model.states import FINISHED, MOVES, WAITING, State, may_move
from pitboss.model.task import Task
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.plugin import run_test

FAILED = by(state="failed")
DRAWING = Path(__file__).resolve().parent.parent.parent / "docs" / "states.md"
ARROW = re.compile(r"^ +(\S+) --> (\S+): (.+)$", re.MULTILINE)
Move = tuple[State | None, State]


def drawn() -> dict[Move, tuple[str, ...]]:
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", DRAWING.read_text(encoding="utf-8"), re.DOTALL)
    return {
        (None if source == "[*]" else State(source), State(target)): tuple(causes.split(", "))
        for source, target, causes in ARROW.findall(diagram)
    }


def test_the_drawing_is_the_table() -> None:
    assert drawn() == MOVES


def test_the_drawing_has_no_line_that_is_not_read() -> None:
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", DRAWING.read_text(encoding="utf-8"), re.DOTALL)
    assert len(diagram.splitlines()) == len(MOVES) + 1


def test_every_state_is_waiting_running_or_finished() -> None:
    assert WAITING | {State.RUNNING} | FINISHED == set(State)
    assert not WAITING & FINISHED
    assert {state for state in State if state.finished} == FINISHED
    assert {state for state in State if state.waiting} == WAITING


def test_every_state_can_be_reached_and_only_completed_is_for_ever() -> None:
    assert {target for _, target in MOVES} == set(State)
    assert set(State) - {source for source, _ in MOVES if source} == {State.COMPLETED}
    assert may_move(State.PENDING, State.RUNNING)
    assert not may_move(State.COMPLETED, State.PENDING)


class RecordingTables(Tables):
    """Records every move that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: set[Move] = set()

    def write(self, task: Task) -> Task:
        old = self.tasks.get(task.id)
        self.moves.add((old.state if old else None, task.state))
        return super().write(task)


@pytest.fixture
def moves() -> set[Move]:
    """All moves that the memory engine makes in a run that has every kind of act."""
    recording = RecordingTables()

    async def make(clock: object) -> MemoryEngine:
        return MemoryEngine(clock=bench.clock, tables=recording)

    bench = Bench(make)
    run_test(_live, {"bench": bench})
    return recording.moves


async def _live(bench: Bench) -> None:
    await _wait_in_every_way(bench)
    await _end_in_every_way(bench)
    await _pause_in_every_way(bench)
    await _lose_and_revive(bench)


async def _pause_in_every_way(bench: Bench) -> None:
    """A batch is paused while one item runs, one was drawn and one waits for its time."""
    items = [bench.new(queue="items") for _ in range(3)] + [bench.new(queue="items", delay=9_000_000)]
    batch = await bench.create(*items)
    runs, again = await bench.claim(2, "items")
    await bench.report(again, Retry(after=5_000))
    await bench.ask(Slot(free=1, queues=("items",)), handlers=["none"])
    await bench.act(batch, Pause())
    await bench.report(runs, Released())


async def _wait_in_every_way(bench: Bench) -> None:
    for options in ({"handler": "new"}, {"handler": "new", "delay": 5_000}, {"handler": "gone"}, {"delay": 1_000}):
        await bench.add(**options)
    await bench.cancel((await bench.add(handler="gone")).id)
    await bench.cancel((await bench.add(delay=9_000)).id)
    await bench.cancel((await bench.add()).id)
    await bench.register("new")
    bench.clock.advance(1)
    await bench.ask(handlers=["job"])
    await bench.add(expires_in=1)
    bench.clock.advance(1)
    await bench.claim(9)


async def _end_in_every_way(bench: Bench) -> None:
    for outcome in (Completed(), Failed(BROKEN), Cancelled(), Released(), Retry(after=5_000), Retry(after=0)):
        claim = await bench.started(queue=f"{type(outcome).__name__}.{id(outcome)}", max_attempts=2)
        await bench.progress(claim, 5)
        await bench.report(claim, outcome)
        bench.clock.advance(60)
        for again in await bench.claim(1, claim.queue):
            await bench.report(again, Failed(BROKEN))


async def _lose_and_revive(bench: Bench) -> None:
    kept, asked = await bench.started(queue="x"), await bench.started(queue="y")
    await bench.cancel(asked.id)
    await bench.end(bench.me)
    await bench.reclaim()
    assert await bench.states(kept, asked) == [State.PENDING, State.CANCELLED]
    await bench.retry((await bench.store.find(FAILED, limit=1)).tasks[0].id)
    await bench.retry(asked.id)
    await bench.cancel(asked.id)
    await bench.store.forget(["job"])
    await bench.retry(FAILED)
    await bench.retry(asked.id)


def test_the_memory_engine_makes_every_move_and_no_other(moves: set[Move]) -> None:
    assert {move for move in moves if move[0] != move[1]} | {(State.RUNNING, State.RUNNING)} == set(MOVES)
    assert (State.RUNNING, State.RUNNING) in moves
