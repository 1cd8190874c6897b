"""Does claiming stay as fast when the store is full? `python -m benchmarks.flat_claim [sqlite|postgres]`

There are two stores: one empty, one with a million finished tasks, 100,000 scheduled, 100,000 held for an unknown
handler and 100,000 pending. Both claim and settle in groups of 100, in turn; the ratio of their speeds counts.
"""

import asyncio
import statistics
import sys
import time

from benchmarks.stores import ENGINES, BarePostgres, Ground, ground
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import NewTask

FINISHED, SCHEDULED, HELD, PENDING = 1_000_000, 100_000, 100_000, 100_000
BATCH = 100
# Long enough that each round pays for its checkpoints; in a short round they may fall outside the measured part.
PER_ROUND = 20_000
ROUNDS = 15
_DAY = 86_400_000_000


async def put_many(there: Ground, count: int, **options: object) -> None:
    for _ in range(count // 10_000):
        await there.engine.put(there.tasks(10_000, **options))


async def run_tasks(there: Ground, count: int, batch: int) -> float:
    """Claim and settle this many tasks; returns tasks per second."""
    session = (await there.engine.open_session(SessionInfo(host="bench", ttl=3_600_000_000))).number
    request = ClaimRequest(
        session=session, slots=(Slot(free=batch, queues=("default",)),), handlers=frozenset({"noop"})
    )
    began, done = time.perf_counter(), 0
    while done < count:
        claims = (await there.engine.claim(request)).claims
        group = [
            Settlement(
                id=claim.id,
                token=claim.token,
                transition=decide(claim, Completed("null"), Policy(), 0, 0.5),
                worker="w",
            )
            for claim in claims
        ]
        await there.engine.settle(group)
        done += len(claims)
    rate = done / (time.perf_counter() - began)
    await there.engine.end_session(session)
    return rate


async def fill(there: Ground) -> None:
    began = time.perf_counter()
    for step in range(FINISHED // 50_000):
        await put_many(there, 50_000)
        await run_tasks(there, 50_000, 1000)
        print(f"\r  {(step + 1) * 50_000:,} finished", end="", file=sys.stderr, flush=True)
    await put_many(there, SCHEDULED, delay=_DAY)
    for _ in range(HELD // 10_000):
        await there.engine.put([NewTask(id=there.new_id(), handler="unknown") for _ in range(10_000)])
    await put_many(there, PENDING)
    print(f"\r  filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)


async def measure(kind: str) -> None:
    async with ground(kind) as empty, ground(kind) as full:
        await fill(full)
        await compare(f"{kind}, right after a million tasks at full speed", empty, full)
        if isinstance(full.bare, BarePostgres):
            # Autovacuum would do this later: the fill left two million old row versions.
            await asyncio.to_thread(full.bare.vacuum)
        await compare(f"{kind}, at rest", empty, full)


async def compare(name: str, empty: Ground, full: Ground) -> None:
    rates: dict[str, list[float]] = {"empty": [], "full": []}
    for _ in range(ROUNDS):
        await put_many(empty, PER_ROUND)
        rates["empty"].append(await run_tasks(empty, PER_ROUND, BATCH))
        rates["full"].append(await run_tasks(full, PER_ROUND, BATCH))
        await put_many(full, PER_ROUND)
    one, other = (statistics.median(rates[store]) for store in ("empty", "full"))
    print(f"| {name} | {one:,.0f} | {other:,.0f} | {other / one:.0%} |", flush=True)


def main() -> None:
    print(f"claim+settle in groups of {BATCH}, tasks per second, medians of {ROUNDS} rounds in turn\n")
    print("| store | empty store | full store | ratio |\n|---|--:|--:|--:|", flush=True)
    for kind in sys.argv[1:] or ENGINES:
        asyncio.run(measure(kind))


if __name__ == "__main__":
    main()
