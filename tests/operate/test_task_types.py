"""The registry as one process knows it."""

import asyncio

import pytest

from pitboss.model.errors import StoreUnavailable
from pitboss.model.queue import HandlerInfo
from pitboss.operate.task_types import TaskTypes
from tests.operate.bench import GREET, Bench


class Slow(Bench):
    """Its registry is read only when the test lets it, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.away = asyncio.Event(), False

    async def handlers(self) -> list[HandlerInfo]:
        await self.go.wait()
        if self.away:
            raise StoreUnavailable("the store is away", why="a test", fix="wait")
        return await super().handlers()


async def test_all_callers_wait_for_the_first_reading() -> None:
    """Regression: all but the first got an empty registry. The second source of a process said that its handler was not
    registered."""
    store = Slow()
    await store.register([GREET])
    types = TaskTypes(store, store.time.now)
    asking = [asyncio.create_task(types.all()) for _ in range(3)]
    await asyncio.sleep(0)
    store.go.set()
    assert [list(found) for found in await asyncio.gather(*asking)] == [["greet"]] * 3


async def test_a_first_reading_that_fails_fails_for_all_and_is_repeated() -> None:
    store = Slow()
    await store.register([GREET])
    store.go.set()
    store.away = True
    types = TaskTypes(store, store.time.now)
    answers = await asyncio.gather(types.all(), types.all(), return_exceptions=True)
    assert [type(one) for one in answers] == [StoreUnavailable] * 2
    with pytest.raises(StoreUnavailable):
        await types.all()
    store.away = False
    assert list(await types.all()) == ["greet"]
