"""A buffer of facts to be killed: `python -m tests.manager.hooks_alone TARGET` prints the pid of its hook process."""

import asyncio
import sys

from pitboss import wiring
from pitboss.manager.hooks import FactBuffer
from pitboss.model.facts import PoolScaled


async def main() -> None:
    engine = wiring.make_engine("memory://")
    await engine.open()
    buffer = FactBuffer(sys.argv[1], ["pool_scaled"], engine, clock=wiring.SystemClock(), tell=lambda _: None)
    buffer.start()
    buffer.publish(PoolScaled(before=1, after=2))
    told = False
    while True:
        await asyncio.sleep(0.01)
        if buffer.figures().handled and not told:
            told = True
            sys.stdout.write(f"{buffer.figures().pid}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
