"""Processes that are killed with SIGKILL at the step that they are told: `python -m tests.faults.failure_nursery URL`

A step is a named place in the engine, or one more statement that it is about to send. For each line "STEP NUMBER" it
forks a process that does the work of that number, and tells where it died, or "done" if it came to its end before that.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, cast

from pitboss import wiring
from pitboss.engines.postgres.script import Ask, Statements
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite.act import Act
from tests.faults.batch_nursery import say
from tests.faults.failure_load import work


class KillAt:
    """Ends the process at the `step`-th place or statement."""

    def __init__(self, step: int, told: int) -> None:
        self._left, self._told = step, told
        self._verb, self._statements = "open", 0

    def __call__(self, name: str) -> None:
        """A named place."""
        self._verb, _, place = name.partition(".")
        self._statements = 0
        self._step(f"{self._verb}.{place}")

    def statement(self) -> None:
        self._statements += 1
        self._step(f"{self._verb}.statement-{self._statements}")

    def _step(self, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(self._told, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)


def watch(kill: KillAt) -> None:
    """Every statement of a verb is a step from now on."""
    cursor: Callable[[Act], Any] = Act._cursor
    asked: Callable[..., Ask] = Statements.asked

    def counted_cursor(act: Act) -> Any:
        kill.statement()
        return cursor(act)

    def counted_asked(statements: Statements, *values: Any, **named: Any) -> Ask:
        kill.statement()
        return asked(statements, *values, **named)

    setattr(Act, "_cursor", counted_cursor)  # noqa: B010
    setattr(Statements, "asked", counted_asked)  # noqa: B010


async def live(url: str, step: int, number: int, told: int) -> None:
    kill = KillAt(step, told)
    engine = cast("FullStore", wiring.make_engine(url, failpoint=kill))
    await engine.open()
    watch(kill)
    await work(engine, number)
    await engine.close()


def forked(url: str, step: int, number: int) -> str:
    """The place at which the child died."""
    hears, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hears)
        try:
            asyncio.run(live(url, step, number, tells))
        except BaseException as error:
            os.write(tells, f"{error!r:.500}".replace("\n", " ").encode())
            os._exit(1)
        os._exit(0)
    os.close(tells)
    place = os.read(hears, 1000).decode()
    os.close(hears)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and place:
        return place
    return "done" if status == 0 else f"ended with {status}: {place}"


def main(url: str) -> None:
    say("ready")
    for line in sys.stdin:
        step, number = line.split()
        say(forked(url, int(step), int(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
