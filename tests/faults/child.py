"""A process that works on a store until a failpoint kills it with SIGKILL. What it saw is in its history file."""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, Failed, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskError, Unique
from pitboss.testing.failpoints import Failpoints
from pitboss.testing.history import History
from pitboss.testing.recorded import Recorded, recorded
from pitboss.wiring import SystemClock, make_engine

POLICY = Policy(max_attempts=2, backoff=Backoff(base=1000))
ROUNDS = 40


def settlement(claim: Claim, follow_up: NewTask) -> Settlement:
    """Every third attempt fails; every end has a follow-up, so that it is a transaction of several tables."""
    broken = TaskError(category="net", message="connection reset")
    failed = int(claim.id[-1], 16) % 3 == 0
    outcome = Failed(broken, (follow_up,)) if failed else Completed("null", (follow_up,))
    transition = decide(claim, outcome, POLICY, claim.claimed_at, 0.5)
    return Settlement(id=claim.id, token=claim.token, transition=transition, worker="child")


async def work(store: Recorded) -> None:
    ids = IdMaker(SystemClock().now, random.Random(os.getpid()).getrandbits)
    await store.open()
    await store.register([HandlerInfo(name="job")])
    # A capacity makes PostgreSQL put in a transaction, which has a place between writing and committing.
    await store.change_queue("narrow", QueueChange(capacity=10_000))
    session = await store.open_session(SessionInfo(host="child", handlers=("job",)))
    for number in range(ROUNDS):
        unique = Unique(f"k{number % 3}")
        await store.put(
            [
                NewTask(id=ids(), handler="job", queue="narrow", unique=unique),
                NewTask(id=ids(), handler="job", queue="narrow"),
            ]
        )
        claimed = await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=2),)))
        await store.renew(session.number)
        if number % 4:
            follow_ups = [NewTask(id=ids(), handler="job", queue="next") for _ in claimed.claims]
            await store.settle([settlement(*pair) for pair in zip(claimed.claims, follow_ups, strict=True)])
        await store.reclaim()


def main(url: str, file: str, name: str, nth: str) -> None:
    points = Failpoints(die=lambda: os.kill(os.getpid(), signal.SIGKILL))
    points.plan(name, "kill", nth=int(nth))
    history = History(order=time.monotonic_ns, file=Path(file))
    clock = SystemClock()
    asyncio.run(work(recorded(make_engine(url, failpoint=points), history, "child", clock=clock)))


if __name__ == "__main__":
    main(*sys.argv[1:])
