"""Fills a small disk of its own with a store, and prints what happened. Run as a program in a mount namespace."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.wiring import SystemClock

HANDLER = "job"
_DISK, _BALLAST = 6 << 20, 2 << 20
_DONE = Transition(state=State.COMPLETED, outcome="completed", result="null", charged=True)


class Found(msgspec.Struct):
    """What was seen. `whole` says each time that the store held exactly what was acknowledged."""

    acknowledged: int = 0
    errors: list[str] = []
    whole: list[bool] = []
    integrity: str = ""
    settled: int = 0
    second_store: str = ""


class Trial:
    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / "s.db"
        self._ids = IdMaker(SystemClock().now, Random(1).getrandbits)
        self._acked: set[str] = set()
        self.found = Found()

    async def run(self) -> None:
        ballast = self._folder / "ballast"
        ballast.write_bytes(bytes(_BALLAST))
        engine = await self._opened()
        await engine.register([HandlerInfo(name=HANDLER)])
        await self._fill(engine)
        await self._check(engine)
        self.found.second_store = await self._second_store()
        await engine.close()
        # A start on a full disk: what is there can be read, and nothing is lost by looking at it.
        engine = await self._opened()
        await self._check(engine)
        ballast.unlink()
        await self._put(engine, 20)
        await self._work(engine)
        await self._check(engine)
        await engine.close()
        self.found.acknowledged = len(self._acked)

    async def _opened(self) -> SqliteEngine:
        engine = SqliteEngine(self._path, clock=SystemClock())
        await engine.open()
        return engine

    async def _fill(self, engine: SqliteEngine) -> None:
        """Two clients at once, so that their puts share a transaction, until nothing fits any more."""
        while len(self.found.errors) < 4:
            puts = [self._put(engine, 10), self._put(engine, 3)]
            answers = await asyncio.gather(*puts, return_exceptions=True)
            for error in answers:
                if isinstance(error, BaseException) and not isinstance(error, StoreUnavailable):
                    raise error
                self.found.errors += [str(error)] if error else []

    async def _put(self, engine: SqliteEngine, count: int) -> None:
        text = '"' + "x" * 5000 + '"'
        tasks = [NewTask(id=self._ids(), handler=HANDLER, params=text) for _ in range(count)]
        await engine.put(tasks)
        self._acked |= {task.id for task in tasks}

    async def _work(self, engine: SqliteEngine) -> None:
        session = await engine.open_session(SessionInfo(host="here", handlers=(HANDLER,)))
        claims = (await engine.claim(ClaimRequest(session=session.number, slots=(Slot(free=50),)))).claims
        done = await engine.settle([Settlement(id=one.id, token=one.token, transition=_DONE) for one in claims])
        self.found.settled = sum(verdict.applied for verdict in done)

    async def _check(self, engine: SqliteEngine) -> None:
        stored = {task.id for task in (await engine.find(EVERYTHING, limit=100_000)).tasks}
        counted = sum(sum(queue.counts.values()) for queue in await engine.queues())
        self.found.whole.append(stored == self._acked and counted == len(stored))
        with contextlib.closing(sqlite3.connect(self._path)) as raw:
            self.found.integrity = raw.execute("PRAGMA integrity_check").fetchone()[0]

    async def _second_store(self) -> str:
        with (self._folder / "rest").open("wb", buffering=0) as rest, contextlib.suppress(OSError):
            while rest.write(bytes(4096)):
                pass
        engine = SqliteEngine(self._folder / "other.db", clock=SystemClock())
        try:
            await engine.open()
        except StoreUnavailable as error:
            return str(error)
        finally:
            await engine.close()
            (self._folder / "rest").unlink()
        return ""


def main(folder: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    trial = Trial(folder)
    asyncio.run(trial.run())
    sys.stdout.write(msgspec.json.encode(trial.found).decode() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
