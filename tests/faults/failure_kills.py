"""Declaring, publishing, firing and failing, killed some steps later each time, until a life comes to its end."""

import asyncio
from typing import cast

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from tests.faults import failure_load
from tests.faults.batch_kills import Killed
from tests.faults.children import Child

_MOST = 10_000


async def killed_at_steps(url: str, stride: int, first: int = 1) -> Killed:
    """`stride` is the number of steps from one kill to the next."""
    store = cast("FullStore", wiring.make_engine(url))
    await store.open()
    nursery = Child("tests.faults.failure_nursery", url)
    try:
        await failure_load.prepare(store)
        assert nursery.hear() == "ready"
        return await _killed(store, nursery, first, stride)
    finally:
        nursery.end()
        await store.close()


async def _killed(store: FullStore, nursery: Child, first: int, stride: int) -> Killed:
    places: list[str] = []
    for life, step in enumerate(range(first, _MOST, stride)):
        nursery.tell(f"{step} {step}")
        place = await asyncio.to_thread(nursery.hear)
        assert "ended" not in place, f"step {step}: {place}"
        faults = await failure_load.complaints(store)
        faults += await failure_load.go_on(store, step, repeat=life % 2 == 0)
        if faults:
            return Killed(places, [f"killed at step {step}, {place}:", *faults[:5]])
        if place == "done":
            break
        places.append(place)
        await failure_load.clear(store)
    return Killed(places, [])
