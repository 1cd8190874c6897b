"""One life after the other, each killed some steps later than the one before, until one comes to its end."""

import asyncio
from typing import NamedTuple, cast

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from tests.faults import batch_load
from tests.faults.children import Child


class Killed(NamedTuple):
    """The places where lives ended, and what was wrong after the first one that left something wrong."""

    places: list[str]
    faults: list[str]


async def killed_at_steps(url: str, stride: int) -> Killed:
    """`stride` is the number of steps from one kill to the next."""
    store = cast("FullStore", wiring.make_engine(url))
    await store.open()
    nursery = Child("tests.faults.batch_nursery", url)
    try:
        await batch_load.prepare(store)
        assert nursery.hear() == "ready"
        return await _killed(store, nursery, stride)
    finally:
        nursery.end()
        await store.close()


async def _killed(store: FullStore, nursery: Child, stride: int) -> Killed:
    places: list[str] = []
    for step in range(1, 10_000, stride):
        number = 10 * step
        nursery.tell(f"{step} {number}")
        place = await asyncio.to_thread(nursery.hear)
        assert "ended" not in place, place
        faults = await batch_load.complaints(store)
        faults += await batch_load.go_on(store, [number, number + 1, number + 2])
        if faults:
            return Killed(places, [f"killed at step {step}, {place}:", *faults[:5]])
        if place == "done":
            break
        places.append(place)
    return Killed(places, [])
