"""Shared by the tests of the SQLite engine: a real clock, tasks, and an engine that is closed after use."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.task import NewTask


class WallClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    wall = now


_ids = IdMaker(WallClock().now, Random().getrandbits)


def new(**options: Any) -> NewTask:
    return NewTask(**{"id": _ids(), "handler": "job"} | options)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine(path, **{"clock": WallClock()} | options)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def session_of(engine: SqliteEngine) -> Session:
    """A live session that knows the handler "job", which is registered."""
    await engine.register([HandlerInfo(name="job")])
    return await engine.open_session(SessionInfo(host="here", handlers=("job",)))


def asking(session: Session, free: int = 1, **options: Any) -> ClaimRequest:
    return ClaimRequest(session=session.number, slots=(Slot(free=free, **options),), handlers=frozenset({"job"}))
