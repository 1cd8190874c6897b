"""While the store is frozen no request waits for its own connection in turn, in virtual time."""

import asyncio

import pytest

from pitboss.http.store_watch import StoreWatch
from pitboss.model.errors import StoreUnavailable
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual


class Frozen:
    """A store of which every call waits as long as it is frozen, and a server that reads all the time."""

    def __init__(self) -> None:
        self.thawed = asyncio.Event()
        self.probes = 0
        self.reading_since: float | None = None
        self.watch = StoreWatch(self.probe, lambda: self.reading_since)

    async def probe(self) -> None:
        self.probes += 1
        await self.thawed.wait()

    async def request(self) -> float:
        """After how long it is answered with an error."""
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(StoreUnavailable):
            async with self.watch.guard():
                await self.thawed.wait()
        return clock() - began

    async def read(self) -> None:
        await asyncio.sleep(0.5)
        self.reading_since = asyncio.get_running_loop().time()
        await self.thawed.wait()
        self.reading_since = None


def test_requests_to_a_frozen_store_are_all_answered_within_three_and_a_half_seconds() -> None:
    """Regression: they were answered one after the other, the last one after 12 seconds."""

    async def main() -> None:
        store = Frozen()
        store.watch.start()
        reading = asyncio.create_task(store.read())
        took = await asyncio.gather(*(store.request() for _ in range(7)))
        assert all(2.5 < one <= 3.5 for one in took), took
        assert await store.request() == 0
        assert store.probes == 1
        store.thawed.set()
        await asyncio.sleep(1)
        async with store.watch.guard():
            await reading
        await store.watch.stop()

    run_virtual(main(), clock=FakeClock())


def test_a_slow_read_of_a_store_that_takes_new_calls_ends_no_request() -> None:
    async def main() -> None:
        store = Frozen()

        async def well() -> None:
            store.probes += 1

        watch = StoreWatch(well, lambda: 0.0)
        watch.start()
        async with watch.guard():
            await asyncio.sleep(20)
        assert store.probes > 10
        await watch.stop()

    run_virtual(main(), clock=FakeClock())


def test_an_outage_that_passes_within_the_patience_of_engines_ends_no_request() -> None:
    async def main() -> None:
        store = Frozen()
        store.watch.start()
        reading = asyncio.create_task(store.read())
        asyncio.get_running_loop().call_later(2.5, store.thawed.set)
        async with store.watch.guard():
            await store.thawed.wait()
            await asyncio.sleep(10)
        await reading
        await store.watch.stop()

    run_virtual(main(), clock=FakeClock())
