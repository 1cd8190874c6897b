"""One process of a crowd around a few order keys: `python -m tests.faults.order_load URL SEED SECONDS LOG`

It puts, publishes, claims, ends in every way, cancels, retries, prunes, and loses its claims. While it has a claim it
is at work for that order key: the file has a line when this begins, and one when it ends.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import msgspec

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Cancelled, Completed, Crashed, Failed, Outcome, Released, Snooze, TimedOut, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, TaskError
from tests.faults.batch_nursery import say
from tests.faults.crowd_load import Deeds

JOB, RARE, LISTEN = "job", "rare", "listen"
HANDLERS = (JOB, RARE, LISTEN)
KEYS = 3
QUEUES = ("a", "b")
POLICY = Policy(max_attempts=3, backoff=Backoff(base=2000, jitter=0.5))
BROKEN = TaskError(category="net", message="connection reset")
FINAL = TaskError(category="bad", message="never", retryable=False)
# More are not put while that many wait.
_MOST = 60
_TTL = 600 * SECOND


async def prepare(store: FullStore) -> None:
    await store.register([HandlerInfo(name=name, queue="a") for name in HANDLERS])
    wanted = Subscription(handler=LISTEN, pattern="x.*", queue="b", ordered=True)
    await store.declare(Declared(app="crowd", subscriptions=(wanted,)))


class Member:
    """One process with one session at a time."""

    def __init__(self, store: FullStore, seed: int, log: str) -> None:
        self._store, self._random = store, Random(seed)
        self._ids = IdMaker(wiring.SystemClock().now, Random().getrandbits)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._session = 0
        self._held: dict[str, tuple[Claim, str]] = {}
        self._stale: list[Claim] = []
        self._put: list[NewTask] = []
        self.done = Counter[str]()

    async def run(self, seconds: float) -> None:
        doings: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (8, self.put),
            (2, self.put_again),
            (3, self.publish),
            (12, self.claim),
            (12, self.settle),
            (1, self.settle_too_late),
            (2, self.cancel),
            (3, self.retry),
            (1, self.lose),
            (1, self.sweep),
            (1, self.prune),
            (1, self.forget),
        ]
        await self._begin()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            one = self._random.choices([do for _, do in doings], [weight for weight, _ in doings])[0]
            await one()
            self.done[one.__name__] += 1
        await self.lose()

    async def put(self) -> None:
        if sum(queue.waiting for queue in await self._store.queues()) < _MOST:
            self._put = [self._new() for _ in range(self._random.choice((1, 1, 2, 4)))]
            await self._store.put(self._put)

    async def put_again(self) -> None:
        """As after a lost answer, beside new ones; unless the first may have been pruned."""
        recent = [one for one in self._put if self._random.random() < 0.5]
        await self._store.put([*recent, self._new()])

    async def publish(self) -> None:
        key = f"k{self._random.randrange(KEYS)}"
        events = [NewEvent(id=self._ids(), name="x.y", key=key) for _ in range(self._random.choice((1, 2)))]
        await self._store.publish(events)
        await self._store.publish(events)

    async def claim(self) -> None:
        free = self._random.choice((1, 2, 3))
        claimed = await self._store.claim(ClaimRequest(session=self._session, slots=(Slot(free=free),)))
        self.done["claimed"] += len(claimed.claims)
        for claim, task in zip(claimed.claims, await self._store.get([one.id for one in claimed.claims]), strict=True):
            key = "" if task is None else task.order_key or ""
            self._held[claim.id] = claim, key
            self._tell("begin", claim, key)

    async def settle(self) -> None:
        """One or many of what it has, which may let several lines go on."""
        chosen = self._random.sample(sorted(self._held), min(len(self._held), self._random.choice((1, 1, 2, 5))))
        ends = []
        for one in chosen:
            claim, key = self._held.pop(one)
            self._tell("end", claim, key)
            self._stale.append(claim)
            ends.append(self._settlement(claim, self._outcome()))
        answers = await self._store.settle(ends)
        self.done["applied"] += sum(answer.applied for answer in answers)

    async def settle_too_late(self) -> None:
        if self._stale:
            claim = self._random.choice(self._stale[-20:])
            await self._store.settle([self._settlement(claim, self._outcome())])

    async def cancel(self) -> None:
        wanted = by(task=self._random.choice(HANDLERS)) if self._random.random() < 0.7 else by(state=State.HELD)
        self.done["cancelled"] += (await self._store.cancel(wanted, limit=self._random.choice((1, 2, 20)))).changed

    async def retry(self) -> None:
        state = self._random.choice((State.FAILED, State.CANCELLED))
        self.done["retried"] += (
            await self._store.retry(by(state=state), limit=self._random.choice((1, 3, 10)))
        ).changed

    async def lose(self) -> None:
        for claim, key in self._held.values():
            self._tell("end", claim, key)
            self._stale.append(claim)
        self._held.clear()
        await self._store.end_session(self._session)
        self.done["lost"] += (await self._store.reclaim()).lost
        await self._begin()

    async def sweep(self) -> None:
        await self._store.reclaim()

    async def prune(self) -> None:
        await self._store.prune(by(state=State.COMPLETED), limit=50)
        if self._random.random() < 0.2:
            await self._store.prune(by(state=State.FAILED), limit=20)
            await self._store.prune(by(state=State.CANCELLED), limit=50)

    async def forget(self) -> None:
        await self._store.forget([RARE])
        await self._store.put([self._new(handler=RARE)])
        await self._store.register([HandlerInfo(name=RARE, queue="a")])

    async def _begin(self) -> None:
        info = SessionInfo(host=f"p{os.getpid()}", handlers=HANDLERS, ttl=_TTL)
        self._session = (await self._store.open_session(info)).number

    def _new(self, **options: Any) -> NewTask:
        pick = self._random
        fields: dict[str, Any] = {
            "id": self._ids(),
            "handler": pick.choice((JOB, JOB, JOB, RARE)),
            "queue": pick.choice(QUEUES),
            "priority": pick.choice((0, 0, 1)),
            "order_key": f"k{pick.randrange(KEYS)}",
        }
        match pick.randrange(8):
            case 0:
                fields["delay"] = pick.randrange(1, 30) * 1000
            case 1:
                fields["expires_in"] = pick.randrange(1, 50) * 1000
            case 2:
                fields["order_key"] = None
            case _:
                pass
        return NewTask(**fields | options)

    def _outcome(self) -> Outcome:
        pick = self._random
        follow_ups = (self._new(),) if pick.random() < 0.2 else ()
        outcomes: list[Outcome] = [
            Completed("1", follow_ups),
            Completed(),
            Failed(BROKEN, follow_ups),
            Failed(FINAL),
            TimedOut(BROKEN),
            Snooze(pick.randrange(1, 5) * 1000),
            Released(),
            Crashed(alone=True),
            Cancelled("enough"),
        ]
        return pick.choices(outcomes, (6, 6, 3, 2, 1, 1, 1, 1, 1))[0]

    def _settlement(self, claim: Claim, outcome: Outcome) -> Settlement:
        transition = decide(claim, outcome, POLICY, claim.claimed_at, self._random.random())
        # The queue is named as a manager does; that is what makes a plain completion one statement.
        return Settlement(id=claim.id, token=claim.token, transition=transition, worker="w", queue=claim.queue)

    def _tell(self, word: str, claim: Claim, key: str) -> None:
        if key:
            os.write(self._log, f"{word} {key} {claim.id} {claim.token} {time.monotonic_ns()}\n".encode())


async def main(url: str, seed: str, seconds: str, log: str) -> None:
    store = cast("FullStore", wiring.make_engine(url))
    await store.open()
    member = Member(store, int(seed), log)
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await member.run(float(seconds))
        errors = []
    except Exception as error:
        errors = [f"{error!r:.500}"]
    await store.close()
    say(msgspec.json.encode(Deeds(dict(member.done), errors)).decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
