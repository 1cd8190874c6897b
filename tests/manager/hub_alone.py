"""A hub in a process of its own, to be killed: `python -m tests.manager.hub_alone TARGET` prints its hooks' pid."""

import asyncio
import sys

from pitboss import wiring
from pitboss.manager.hub import Hub
from pitboss.model.facts import PoolScaled


async def main() -> None:
    engine = wiring.make_engine("memory://")
    await engine.open()
    hub = Hub(sys.argv[1], ["pool_scaled"], engine, clock=wiring.SystemClock(), tell=lambda _: None)
    hub.start()
    hub.publish(PoolScaled(before=1, after=2))
    told = False
    while True:
        await asyncio.sleep(0.01)
        if hub.figures().handled and not told:
            told = True
            sys.stdout.write(f"{hub.figures().pid}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
