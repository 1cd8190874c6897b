"""Engine speed by batch size, compared with the same row changes in bare SQL: `python -m benchmarks.engine_speed`."""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.stores import ENGINES, Ground, ground
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement

TASKS = {1: 1000, 10: 5000, 100: 20_000, 1000: 40_000}
ROUNDS = 3
Rates = dict[str, float]


async def engine_round(there: Ground, batch: int, count: int) -> Rates:
    """Tasks per second of put, claim and settle, one call after the other."""
    session = (await there.engine.open_session(SessionInfo(host="bench", ttl=3_600_000_000))).number
    spent = {"put": 0.0, "claim": 0.0, "settle": 0.0}
    for _ in range(count // batch):
        tasks = there.tasks(batch)
        spent["put"] += await _timed(partial(there.engine.put, tasks))
    request = ClaimRequest(session=session, slots=(Slot(free=batch, queues=("default",)),))
    done = 0
    while done < count:
        began = time.perf_counter()
        claims = (await there.engine.claim(request)).claims
        spent["claim"] += time.perf_counter() - began
        group = [
            Settlement(
                id=claim.id,
                token=claim.token,
                transition=decide(claim, Completed("null"), Policy(), 0, 0.5),
                worker="w",
                ran=10,
            )
            for claim in claims
        ]
        spent["settle"] += await _timed(partial(there.engine.settle, group))
        done += len(claims)
    await there.engine.end_session(session)
    return {verb: count / seconds for verb, seconds in spent.items()}


def bare_round(there: Ground, batch: int, count: int) -> Rates:
    """The same in bare SQL."""
    spent = {"put": 0.0, "claim": 0.0, "settle": 0.0}
    for _ in range(count // batch):
        ids = [there.new_id() for _ in range(batch)]
        began = time.perf_counter()
        there.bare.put(ids)
        spent["put"] += time.perf_counter() - began
    done = 0
    while done < count:
        began = time.perf_counter()
        claimed = there.bare.claim(batch)
        middle = time.perf_counter()
        there.bare.settle(claimed)
        spent["claim"] += middle - began
        spent["settle"] += time.perf_counter() - middle
        done += len(claimed)
    return {verb: count / seconds for verb, seconds in spent.items()}


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def both(rates: Rates) -> float:
    """Claim and settle together: tasks per second through both."""
    return 1 / (1 / rates["claim"] + 1 / rates["settle"])


def median(rounds: list[Rates]) -> Rates:
    return {verb: statistics.median(one[verb] for one in rounds) for verb in rounds[0]}


async def measure(kind: str) -> list[str]:
    lines = []
    async with ground(kind) as there:
        for batch, count in TASKS.items():
            ours: list[Rates] = []
            bare: list[Rates] = []
            for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine affects both
                ours.append(await engine_round(there, batch, count))
                bare.append(await asyncio.to_thread(bare_round, there, batch, count))
            a, b = median(ours), median(bare)
            row = " | ".join(f"{a[verb]:,.0f} / {b[verb]:,.0f}" for verb in ("put", "claim", "settle"))
            ratio = both(a) / both(b)
            lines.append(f"| {kind} | {batch} | {row} | {both(a):,.0f} / {both(b):,.0f} | {ratio:.0%} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    print("tasks per second, Pitboss / bare SQL; medians of", ROUNDS, "rounds in turn\n")
    print("| engine | batch | put | claim | settle | claim+settle | of bare |")
    print("|---|--:|--:|--:|--:|--:|--:|", flush=True)
    for kind in sys.argv[1:] or ENGINES:
        asyncio.run(measure(kind))


if __name__ == "__main__":
    main()
