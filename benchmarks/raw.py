"""The upper limit: bare SQL that changes the same rows in groups of the same size, with one client and no queue."""

import asyncio

from benchmarks.engine_speed import bare_round, both
from benchmarks.stores import ground

_TASKS = {1: 2000, 1000: 50_000, 10_000: 50_000}


async def measure(kind: str, scale: float) -> dict[str, float]:
    """Rows per second, by group size: put, and claim with settle."""
    rates: dict[str, float] = {}
    for batch, count in _TASKS.items():
        # A new store for each size: a PostgreSQL connection keeps the plans that it made for groups of another size.
        async with ground(kind) as there:
            rounds = max(1, round(count * scale) // batch)
            found = await asyncio.to_thread(bare_round, there, batch, rounds * batch)
            rates[f"put {batch}"] = found["put"]
            rates[f"run {batch}"] = both(found)
    return rates
