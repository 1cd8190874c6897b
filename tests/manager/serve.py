"""A manager as a process of its own: `python -m tests.manager.serve URL TARGET WORKERS CONCURRENCY TTL`."""

import asyncio
import random
import signal
import sys

import uvloop

from pitboss import wiring
from pitboss.manager.manager import Manager, Plan
from pitboss.model.duration import span
from pitboss.worker.describe import described


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main() -> None:
    url, target, workers, concurrency, ttl = sys.argv[1:6]
    engine = wiring.make_engine(url)
    await engine.open()
    plan = Plan(target=target, workers=int(workers), concurrency=int(concurrency), ttl=span(ttl), drain_seconds=20)
    manager = Manager(
        engine,
        plan,
        described(target),
        make_engine=lambda: wiring.make_engine(url),
        clock=wiring.SystemClock(),
        luck=random.Random(1).random,
        tell=say,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    await manager.run()
    await engine.close()


if __name__ == "__main__":
    uvloop.run(main())
