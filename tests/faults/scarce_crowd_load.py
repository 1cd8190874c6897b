"""One process of a crowd on one PostgreSQL store, around batches whose items hold members of a pool. Run as a program.

Two engines settle the same claims at the same time, in opposite orders, with reports that cool and blame members;
others make, pause, move, cancel, requeue and delete batches, change members, acquire leases and end sessions.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import msgspec

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.batch import BatchAct, Cancel, Delete, Move, NewBatch, Pause, Requeue, Resume, Start
from pitboss.model.errors import InvalidInput, NotFound, StaleLease
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.limits import Window
from pitboss.model.outcome import Completed, Failed, Outcome, Retry, Rotated, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import (
    Leased,
    Limits,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
    Shortage,
    Want,
)
from pitboss.model.session import ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskError
from pitboss.wiring import SystemClock
from tests.faults.crowd_load import Deeds

HANDLER, POOL, LANES = "check", "proxies", ("one", "two")
POLICY = Policy(max_attempts=3, backoff=Backoff(base=1000, jitter=0.0))
RULES = PoolRules(
    limits=Limits(windows=(Window(50, 100_000),), concurrency=2), max_failures=2, cooldown=1000, blacklist=1000
)
_BROKEN = TaskError(category="net", message="connection reset")
_MEMBERS, _WANTED, _TTL = 20, 20, 600_000_000
_ACTS: tuple[BatchAct, ...] = (
    Pause(),
    Resume(),
    Start(),
    Cancel(),
    Move(to="top"),
    Requeue(),
    Requeue(cancelled=True),
    Delete(),
)


class Member:
    """One process: two settlers over one session, and one of every other client."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._settlers = [PostgresEngine(dsn, connections=2), PostgresEngine(dsn, connections=2)]
        self._other = PostgresEngine(dsn)
        self._rng = Random(seed)
        self._ids = IdMaker(SystemClock().now, Random().getrandbits)
        self._session: Session | None = None
        self._batches: list[str] = []
        self._done: Counter[str] = Counter()
        self._errors: list[str] = []

    async def open(self) -> None:
        for engine in (*self._settlers, self._other):
            await engine.open()
        await self._other.declare_pool(POOL, RULES)
        await self._other.add_resources(POOL, [NewResource(name=f"m{number}") for number in range(_MEMBERS)])
        await self._other.register([HandlerInfo(name=HANDLER, queue=POOL, resources=POOL)])

    async def close(self) -> None:
        for engine in (*self._settlers, self._other):
            await engine.close()

    async def run(self, seconds: float) -> Deeds:
        end = time.monotonic() + seconds
        loops = (
            (self._create, 0.1),
            (self._work, 0.0),
            (self._operate, 0.05),
            (self._change_members, 0.1),
            (self._lease, 0.02),
            (self._sweep, 0.05),
            (self._cancel, 0.2),
            (self._retry, 0.1),
        )
        await asyncio.gather(*(self._repeat(act, pause, end) for act, pause in loops))
        return Deeds(dict(self._done), self._errors)

    async def _repeat(self, act: Callable[[], Awaitable[None]], pause: float, end: float) -> None:
        while time.monotonic() < end:
            try:
                await act()
                self._done[act.__name__.strip("_")] += 1
            except (InvalidInput, NotFound):
                self._done["refused"] += 1
            except Exception as error:
                self._errors.append(f"{act.__name__.strip('_')}: {type(error).__name__}: {error}")
            await asyncio.sleep(pause * self._rng.random())

    async def _create(self) -> None:
        items = [self._new() for _ in range(self._rng.randint(0, 30))]
        batch = NewBatch(id=self._ids(), lane=self._rng.choice(LANES))
        await self._other.create_batch(batch, items)
        self._batches.append(batch.id)
        await self._other.put([self._new()])

    async def _work(self) -> None:
        session = self._session = self._session or await self._opened_session()
        first, second = self._settlers
        request = ClaimRequest(session=session.number, slots=(Slot(free=_WANTED),))
        both = await asyncio.gather(*(one.claim(request) for one in self._settlers))
        claims = [claim for claimed in both for claim in claimed.claims]
        if self._rng.random() < 0.05:
            await first.end_session(session.number)
            self._session = None
        settlements = [self._settled(claim) for claim in claims]
        verdicts = await asyncio.gather(first.settle(settlements), second.settle(settlements[::-1]))
        self._done["settlements applied"] += sum(verdict.applied for verdict in verdicts[0])

    async def _opened_session(self) -> Session:
        return await self._other.open_session(SessionInfo(host="here", handlers=(HANDLER,), ttl=_TTL))

    async def _operate(self) -> None:
        shown = await self._other.batches(limit=30)
        if shown:
            batch = self._rng.choice(shown)
            await self._other.act_on_batch(batch.id, self._rng.choice(_ACTS), limit=10)

    async def _change_members(self) -> None:
        name = f"m{self._rng.randrange(_MEMBERS)}"
        change = self._rng.choice(
            (ResourceChange(reset=True), ResourceChange(enabled=False), ResourceChange(enabled=True), None)
        )
        await self._other.change_resources(POOL, [name] if change is None else None, change)
        await self._other.add_resources(POOL, [NewResource(name=name)])
        await self._other.change_resources(POOL, None, ResourceChange(enabled=True))

    async def _lease(self) -> None:
        lease = self._ids()
        held = await self._other.acquire(POOL, Want(key=f"k{self._rng.randrange(5)}"), 1_000_000, lease=lease)
        if not isinstance(held, Shortage):
            await self._use_unless_replaced(lease, held)
            await self._other.release(lease, self._report())

    async def _use_unless_replaced(self, lease: str, held: Leased) -> None:
        """An operator may have removed the member and added another of the same name; nothing else ends a lease."""
        try:
            await self._other.use(lease)
        except StaleLease:
            found = await self._other.resources(POOL, [held.name])
            if found and found[0].added_at <= held.leased_at:
                raise
            self._done["replaced"] += 1

    async def _sweep(self) -> None:
        await self._other.reclaim(100)

    async def _cancel(self) -> None:
        await self._other.cancel(by(queue=POOL), limit=10)

    async def _retry(self) -> None:
        await self._other.retry(by(state=["failed", "cancelled"]), limit=20)

    def _settled(self, claim: Claim) -> Settlement:
        outcomes: tuple[Outcome, ...] = (Completed("null"), Failed(_BROKEN), Retry(after=0), Rotated(error=_BROKEN))
        move = decide(claim, self._rng.choice(outcomes), POLICY, 0, 0.5)
        report = self._report() if claim.leased else None
        return Settlement(id=claim.id, token=claim.token, transition=move, worker="w1", report=report)

    def _report(self) -> Report:
        destination = self._rng.choice((None, "here", "there"))
        return Report(outcome=self._rng.choice(list(ResourceOutcome)), destination=destination)

    def _new(self) -> NewTask:
        return NewTask(id=self._ids(), handler=HANDLER, queue=POOL)


async def main(dsn: str, seed: int, seconds: float) -> None:
    member = Member(dsn, seed)
    await member.open()
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        deeds = await member.run(seconds)
        sys.stdout.write(msgspec.json.encode(deeds).decode() + "\n")
    finally:
        await member.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
