"""A process that keeps a store busy while every one of its writes is recorded. Run as a program.

Two engines on one file, several requests at a time, so that groups are committed and writers stand in line; on demand
several such processes. What is asked and answered goes to a history, line by line; the recording sees those lines
between the writes to the store.
"""

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from unittest import mock

from pitboss.engines.sqlite import SqliteEngine, connection, open_store, writer
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Cancelled, Completed, Crashed, Failed, Outcome, Released, Retry, Snooze, decide
from pitboss.model.outcome import progressed as progress_of
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim, NewTask, TaskError, Unique
from pitboss.testing.history import History
from pitboss.testing.recorded import Recorded, recorded

HANDLER = "job"
POLICY = Policy(max_attempts=3)
BROKEN = TaskError(category="net", message="connection reset", fingerprint="f1")
TTL = 30 * SECOND


class WallClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    wall = now


class Load:
    """Everything that clients, a manager and an operator ask of a store, from one seed."""

    def __init__(self, path: Path, history: History, seed: int, size: int) -> None:
        self._path, self._history, self._size = path, history, size
        self._rng, self._clock = Random(seed), WallClock()
        self._ids = IdMaker(self._clock.now, self._rng.getrandbits)
        self._put: list[str] = []

    async def run(self, acts: int) -> None:
        client, manager = await self._opened("client"), await self._opened("manager")
        try:
            await manager.register([HandlerInfo(name=HANDLER)])
            await asyncio.gather(
                self._enqueue(client, acts),
                self._enqueue(client, acts),
                self._enqueue(manager, acts // 2),
                self._manage(manager, acts),
                self._operate(client, acts // 8),
            )
        finally:
            await client.close()
            await manager.close()

    async def _opened(self, name: str) -> Recorded:
        store = SqliteEngine(self._path, clock=self._clock)
        await store.open()
        return recorded(store, self._history, f"{name}-{os.getpid()}-{time.monotonic_ns()}", clock=self._clock)

    async def _enqueue(self, store: Recorded, acts: int) -> None:
        for _ in range(acts):
            tasks = [self._new() for _ in range(self._rng.choice((1, 1, 1, 2, 5)))]
            self._put += [placed.id for placed in await store.put(tasks)]

    async def _manage(self, store: Recorded, acts: int) -> None:
        session = await store.open_session(SessionInfo(host="here", handlers=(HANDLER,), ttl=TTL))
        for number in range(acts):
            slots = (Slot(free=self._rng.randint(1, 4), ahead=self._rng.randint(0, 4)),)
            claimed = await store.claim(ClaimRequest(session=session.number, slots=slots))
            if number % 10 == 9:
                await store.renew(session.number, '{"busy":true}')
                await store.reclaim(100)
            if number % 25 == 24:
                # What this session still holds is for the next one to reclaim.
                await store.end_session(session.number)
                session = await store.open_session(SessionInfo(host="here", handlers=(HANDLER,), ttl=TTL))
            else:
                await asyncio.gather(*(self._settle(store, part) for part in _parted(claimed.claims, self._rng)))

    async def _settle(self, store: Recorded, claims: list[Claim]) -> None:
        if self._rng.random() < 0.2:
            await store.settle([_settled(claim, None, self._rng) for claim in claims])
        await store.settle([_settled(claim, self._outcome(claim), self._rng) for claim in claims])

    async def _operate(self, store: Recorded, acts: int) -> None:
        doings: list[Callable[[str], Awaitable[object]]] = [
            lambda task: store.cancel(by(id=task)),
            lambda task: store.retry(by(id=task)),
            lambda task: store.prune(by(id=task)),
        ]
        for _ in range(acts):
            await asyncio.sleep(0.002)
            if self._put:
                await self._rng.choice(doings)(self._rng.choice(self._put[-30:]))

    def _outcome(self, claim: Claim) -> Outcome:
        follow_ups = (self._new(parent=claim.id),) if self._rng.random() < 0.2 else ()
        return self._rng.choice(
            (
                Completed('{"done":true}', follow_ups),
                Completed("null"),
                Completed("null"),
                Failed(BROKEN),
                Retry(after=0),
                Snooze(delay=0, reason="not now"),
                Cancelled("not wanted"),
                Released(started=True),
                Crashed(alone=False),
            )
        )

    def _new(self, parent: str | None = None) -> NewTask:
        key = f"key-{self._rng.randint(1, 20)}" if self._rng.random() < 0.3 else None
        return NewTask(
            id=self._ids(),
            handler=HANDLER,
            queue=self._rng.choice(("mail", "video")),
            params='{"text":"' + "x" * self._rng.randint(0, self._size) + '"}',
            unique=None if key is None else Unique(key),
            parent=parent,
        )


def _parted(claims: list[Claim], rng: Random) -> list[list[Claim]]:
    middle = rng.randint(0, len(claims))
    return [part for part in (claims[:middle], claims[middle:]) if part]


def _settled(claim: Claim, outcome: Outcome | None, rng: Random) -> Settlement:
    """None is a report of progress."""
    move = progress_of(50, "half") if outcome is None else decide(claim, outcome, POLICY, 0, rng.random())
    return Settlement(id=claim.id, token=claim.token, transition=move, worker="w1", ran=5)


def weaken(how: str) -> None:
    """Plant a bug that a loss of power must bring to light."""
    strong, attempt = connection.connect_writer, writer.Writer._attempt

    def sloppy(path: Path, **options: bool) -> sqlite3.Connection:
        made = strong(path, **options)
        made.execute("PRAGMA synchronous = NORMAL")
        return made

    def hasty(self: writer.Writer, made: sqlite3.Connection, job: writer.Job, alone: bool) -> None:
        attempt(self, made, job, alone)
        self._answer([job])

    match how:
        case "":
            pass
        case "synchronous-normal":
            for module in (open_store, writer):
                mock.patch.object(module, "connect_writer", sloppy).start()
        case "answer-before-commit":
            mock.patch.object(writer.Writer, "_attempt", hasty).start()
        case _:
            raise ValueError(how)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("path", type=Path)
    asked.add_argument("history", type=Path)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--acts", type=int, default=40)
    asked.add_argument("--rounds", type=int, default=1)
    asked.add_argument("--processes", type=int, default=1)
    asked.add_argument("--size", type=int, default=200)
    asked.add_argument("--checkpoint-pages", type=int)
    asked.add_argument("--weak", default="")
    told = asked.parse_args()
    if told.checkpoint_pages:
        mock.patch.object(connection, "_CHECKPOINT_PAGES", told.checkpoint_pages).start()
    weaken(told.weak)
    others = [_another(number) for number in range(1, told.processes)]
    history = History(order=time.monotonic_ns, file=told.history)
    for number in range(told.rounds):
        # Each round opens and closes the file: the last one out empties and removes the write-ahead log.
        asyncio.run(Load(told.path, history, told.seed * 1000 + number, told.size).run(told.acts))
    for other in others:
        if other.wait():
            sys.exit(f"another process ended with {other.returncode}")


def _another(number: int) -> subprocess.Popen[bytes]:
    """The same load from another seed; the last word of a repeated option counts."""
    seed = str(10**6 * number + int.from_bytes(os.urandom(2)))
    command = [sys.executable, "-m", "tests.faults.power_load", *sys.argv[1:], "--processes", "1", "--seed", seed]
    return subprocess.Popen(command)


if __name__ == "__main__":
    main()
