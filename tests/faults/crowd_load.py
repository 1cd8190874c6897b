"""One process of a crowd on one PostgreSQL store, doing whatever may meet on the same rows. Run as a program.

Two engines settle the same claims at the same time, in opposite orders; others put tasks under few unique keys, sweep,
cancel, retry and prune with broad filters, and end sessions that still hold claims.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import msgspec

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, Outcome, Released, Retry, Snooze, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError, Unique
from pitboss.wiring import SystemClock

HANDLER = "job"
QUEUES = ("mail", "video", "scrape")
POLICY = Policy(max_attempts=3, backoff=Backoff(base=1000, jitter=0.0))
_BROKEN = TaskError(category="net", message="connection reset")
_KEYS = 40
_BATCH = 50
# No session is renewed here, so it must outlive the run; sessions end by being ended.
_TTL = 600_000_000
# A session ends, with its claims, after this many rounds that claimed tasks.
_ROUNDS_PER_SESSION = 4


class Deeds(msgspec.Struct):
    """How often each thing was done, and what went wrong."""

    done: dict[str, int]
    errors: list[str]


class Member:
    """One process: two settlers over one session, and one of every other client."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._settlers = [PostgresEngine(dsn), PostgresEngine(dsn)]
        self._other = PostgresEngine(dsn)
        self._rng = Random(seed)
        self._ids = IdMaker(SystemClock().now, Random().getrandbits)
        self._session: Session | None = None
        self._busy = 0
        self._done: Counter[str] = Counter()
        self._errors: list[str] = []

    async def open(self) -> None:
        for engine in (*self._settlers, self._other):
            await engine.open()
        await self._other.register([HandlerInfo(name=HANDLER)])

    async def close(self) -> None:
        for engine in (*self._settlers, self._other):
            await engine.close()

    async def run(self, seconds: float) -> Deeds:
        end = time.monotonic() + seconds
        loops = (
            (self._put, 0.0),
            (self._put, 0.0),
            (self._work, 0.0),
            (self._reclaim, 0.05),
            (self._cancel, 0.05),
            (self._retry, 0.05),
            (self._prune, 0.05),
        )
        await asyncio.gather(*(self._repeat(act, pause, end) for act, pause in loops))
        return Deeds(dict(self._done), self._errors)

    async def _repeat(self, act: Callable[[], Awaitable[None]], pause: float, end: float) -> None:
        while time.monotonic() < end:
            try:
                await act()
            except Exception as error:
                self._errors.append(f"{act.__name__.strip('_')}: {type(error).__name__}: {error}")
            await asyncio.sleep(pause * self._rng.random())

    async def _put(self) -> None:
        await self._other.put([self._new() for _ in range(self._rng.randint(1, _BATCH))])
        self._done["put"] += 1

    async def _work(self) -> None:
        session = self._session = self._session or await self._opened_session()
        slots = (Slot(free=_BATCH),)
        first, second = self._settlers
        both = await asyncio.gather(
            *(one.claim(ClaimRequest(session=session.number, slots=slots)) for one in self._settlers)
        )
        claims = [claim for claimed in both for claim in claimed.claims]
        self._busy += bool(claims)
        if claims and self._busy % _ROUNDS_PER_SESSION == 0:
            await first.end_session(session.number)
            self._session = None
        settlements = [self._settled(claim) for claim in claims]
        verdicts = await asyncio.gather(first.settle(settlements), second.settle(settlements[::-1]))
        self._done["settle"] += 2
        self._done["settlements applied"] += sum(verdict.applied for verdict in verdicts[0])

    async def _opened_session(self) -> Session:
        return await self._other.open_session(SessionInfo(host="here", handlers=(HANDLER,), ttl=_TTL))

    async def _reclaim(self) -> None:
        done = await self._other.reclaim(100)
        self._done["reclaim"] += 1
        self._done["reclaimed"] += done.lost

    async def _cancel(self) -> None:
        changed = await self._other.cancel(by(queue=self._rng.choice(QUEUES), state=["pending", "running"]), limit=20)
        self._done["cancel"] += 1
        self._done["cancelled"] += changed.changed + changed.asked

    async def _retry(self) -> None:
        changed = await self._other.retry(by(state=["failed", "cancelled"]), limit=50)
        self._done["retry"] += 1
        self._done["retried"] += changed.changed

    async def _prune(self) -> None:
        changed = await self._other.prune(by(state=["completed", "cancelled"]), limit=100)
        self._done["prune"] += 1
        self._done["pruned"] += changed.changed

    def _settled(self, claim: Claim) -> Settlement:
        move = decide(claim, self._outcome(), POLICY, 0, 0.5)
        return Settlement(id=claim.id, token=claim.token, transition=move, worker="w1")

    def _outcome(self) -> Outcome:
        follow_ups = (self._new(),) if self._rng.random() < 0.1 else ()
        return self._rng.choice(
            (Completed("null", follow_ups), Failed(_BROKEN), Retry(after=0), Snooze(delay=1000), Released(started=True))
        )

    def _new(self) -> NewTask:
        key = Unique(f"key-{self._rng.randrange(_KEYS)}") if self._rng.random() < 0.5 else None
        return NewTask(id=self._ids(), handler=HANDLER, queue=self._rng.choice(QUEUES), unique=key)


async def miscounted(dsn: str) -> list[str]:
    """Queues whose figures differ from a count of their tasks; nothing else may be going on."""
    engine = PostgresEngine(dsn)
    await engine.open()
    try:
        faults: list[str] = []
        for queue in await engine.queues():
            # With another term it counts the tasks, instead of reading the figures of the queue.
            wanted = by(queue=queue.name, task="*")
            real = {state: (await engine.count(wanted.also(state=state))).number for state in State}
            real = {state: number for state, number in real.items() if number}
            faults += [] if real == queue.counts else [f"{queue.name}: figures {queue.counts}, tasks {real}"]
        return faults
    finally:
        await engine.close()


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
