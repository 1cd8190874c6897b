"""Managers that are killed with SIGKILL at the step that they are told: `python -m tests.faults.batch_nursery URL`

A step is one more time that any named place in the engine is reached. For each line "STEP NUMBER" it forks a process
that works on the batches of that number, and tells at which place it died, or "done" if it came to its end before that.
Forking spares each of them a start of its own.
"""

import asyncio
import os
import signal
import sys
from typing import cast

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from tests.faults.batch_load import work


class KillAt:
    """A failpoint that ends the process when it is reached for the `step`-th time, under whichever name."""

    def __init__(self, step: int, told: int) -> None:
        self._left, self._told = step, told

    def __call__(self, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(self._told, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)


async def live(url: str, step: int, number: int, told: int) -> None:
    engine = cast("FullStore", wiring.make_engine(url, failpoint=KillAt(step, told)))
    await engine.open()
    await work(engine, [number, number + 1, number + 2])
    await engine.close()


def forked(url: str, step: int, number: int) -> str:
    """The place at which the child died."""
    hears, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hears)
        asyncio.run(live(url, step, number, tells))
        os._exit(0)
    os.close(tells)
    place = os.read(hears, 100).decode()
    os.close(hears)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and place:
        return place
    return "done" if status == 0 else f"ended with {status}"


def main(url: str) -> None:
    say("ready")
    for line in sys.stdin:
        step, number = line.split()
        say(forked(url, int(step), int(number)))


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
