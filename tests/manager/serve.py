"""A manager as a process of its own: `python -m tests.manager.serve URL PLAN [HOST]`, the plan as a file of JSON.

SIGHUP makes it read the plan and the code anew. With HOST it believes that it runs on another host.
"""

import asyncio
import random
import signal
import socket
import sys
from pathlib import Path

import msgspec
import uvloop

from pitboss import wiring
from pitboss.manager.manager import Manager, Plan
from pitboss.worker.describe import Description, described


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def read(place: str) -> Plan:
    return msgspec.json.decode(Path(place).read_bytes(), type=Plan)


async def reload(manager: Manager, place: str) -> None:
    plan = read(place)
    command = [sys.executable, "-m", "pitboss.worker.describe", plan.target]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    description = msgspec.json.decode(out, type=Description)
    if description.error is not None:
        say(f"refused: {description.error}")
        return
    await manager.reload(plan, description)
    say("reloaded")


async def main() -> None:
    url, place, *elsewhere = sys.argv[1:]
    if elsewhere:
        socket.gethostname = lambda: elsewhere[0]
    engine = wiring.make_engine(url)
    await engine.open()
    plan = read(place)
    manager = Manager(
        engine,
        plan,
        described(plan.target),
        make_engine=lambda: wiring.make_engine(url),
        clock=engine.clock,
        luck=random.Random(1).random,
        tell=say,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    reloads: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(asyncio.create_task(reload(manager, place))))
    await manager.run()
    await engine.close()


if __name__ == "__main__":
    uvloop.run(main())
