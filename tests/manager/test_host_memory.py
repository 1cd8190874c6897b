"""The memory of a host: what was learned before is known from the first task on, and a store without answer is none."""

import asyncio
from typing import Any

import pytest

from pitboss.manager.host_memory import HostMemory
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import StoreUnavailable
from pitboss.model.figures import HOUR, RAW, HandlerFigures, Sample, bucket
from pitboss.model.task import Claim, Token
from tests.operate.bench import Bench

GIGA = 1024**3


def claim(task: str = "first") -> Claim:
    return Claim(id=task, token=Token(1, 1), handler="render", queue="q", params="{}", attempt=1)


async def stored(bench: Bench, at: Moment, size: int, number: int = 3) -> None:
    figures = HandlerFigures("q", "render")
    for _ in range(number):
        figures.memory.add(size)
    await bench.add_samples([Sample(at=bucket(at, RAW), session=1, covered=10, handlers=[figures])])


class Away(Bench):
    async def samples(self, *given: Any, **named: Any) -> Any:
        raise StoreUnavailable("it is away", why="the test says so", fix="none")


class Silent(Bench):
    async def samples(self, *given: Any, **named: Any) -> Any:
        await asyncio.sleep(3600)


async def test_a_heavy_handler_is_known_from_the_first_task_on() -> None:
    bench = Bench()
    await stored(bench, bench.now - 60 * SECOND, 6 * GIGA)
    memory = HostMemory(8 * GIGA, lambda: [claim()])
    assert memory.admits(claim("another"))
    await memory.recall(bench, bench.now)
    assert memory.tight
    assert not memory.admits(claim(task="second"))
    (need,) = memory.published()[2].values()
    assert need == pytest.approx(6 * GIGA, rel=0.06)


async def test_it_remembers_how_long_tasks_took() -> None:
    bench = Bench()
    figures = HandlerFigures("q", "render")
    for seconds in (2, 4):
        figures.run.add(seconds * SECOND)
    at = bucket(bench.now - 60 * SECOND, RAW)
    await bench.add_samples([Sample(at=at, session=1, covered=10, handlers=[figures, HandlerFigures("q", "never")])])
    memory = HostMemory(None, list)
    await memory.recall(bench, bench.now)
    assert memory.usual == {"render": 3 * SECOND}


async def test_figures_of_last_week_count_if_there_are_no_newer_ones() -> None:
    bench = Bench()
    await stored(bench, bench.now - 150 * HOUR, 6 * GIGA)
    memory = HostMemory(8 * GIGA, lambda: [claim()])
    await memory.recall(bench, bench.now)
    assert memory.tight
    await stored(bench, bench.now - 60 * SECOND, GIGA // 16)
    memory = HostMemory(8 * GIGA, lambda: [claim()])
    await memory.recall(bench, bench.now)
    assert not memory.tight


async def test_what_is_new_outweighs_what_was_recalled() -> None:
    bench = Bench()
    await stored(bench, bench.now - 60 * SECOND, 6 * GIGA, number=10_000)
    memory = HostMemory(8 * GIGA, lambda: [claim()])
    await memory.recall(bench, bench.now)
    for _ in range(1500):
        memory.learn(claim(), GIGA)
    (need,) = memory.published()[2].values()
    assert need == pytest.approx(GIGA, rel=0.06)


async def test_what_is_learned_is_noted() -> None:
    memory, heard = HostMemory(8 * GIGA, list), list[tuple[Claim, int]]()
    memory.noted = lambda one, size: heard.append((one, size))
    memory.learn(claim(), 5)
    assert heard == [(claim(), 5)]


@pytest.mark.parametrize("store", [Away, Silent])
async def test_a_store_that_does_not_answer_keeps_no_manager_from_starting(
    store: type[Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pitboss.manager.host_memory._RECALL_SECONDS", 0.05)
    memory = HostMemory(8 * GIGA, list)
    async with asyncio.timeout(5):
        await memory.recall(store(), 0)
        await memory.recall(None, 0)
    assert not memory.tight
