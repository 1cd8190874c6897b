"""Managers that exist only in the store: sessions with given snapshots, and one that follows the desired state."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.model.desired_state import DesiredState
from pitboss.model.duration import SECOND
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from tests.cli.command_line import with_store

TASK = "01a1e149-3b64-7000-b242-2d449e482300"


def now() -> int:
    return wiring.SystemClock().now()


def worker(name: str = "download-1", **changes: Any) -> WorkerFigures:
    usual: dict[str, Any] = {
        "name": name,
        "pool": name.rpartition("-")[0],
        "pid": 4000 + int(name.rpartition("-")[2]),
        "started_at": now() - 125 * SECOND,
        "processed": 1234,
        "succeeded": 1230,
        "failed": 4,
        "mean": 250_000,
        "rss": 64 * 1024**2,
        "cpu": 0.25,
    }
    return WorkerFigures(**usual | changes)


def busy(name: str = "download-1", tasks: int = 1, **changes: Any) -> WorkerFigures:
    given = tuple(CurrentTask(id=TASK, handler="fetch", since=now() - 12 * SECOND) for _ in range(tasks))
    return worker(name, state=WorkerState.PROCESSING, running=tasks, tasks=given, **changes)


def crashed(name: str, why: str = "it crashed 6 times; 5 restarts are allowed") -> WorkerFigures:
    return WorkerFigures(name=name, pool=name.rpartition("-")[0], state=WorkerState.CRASHED, crashes=6, why=why)


def pool(name: str = "download", wanted: int = 2, **changes: Any) -> PoolFigures:
    usual: dict[str, Any] = {"name": name, "concurrency": 16, "wanted": wanted, "least": wanted, "most": wanted}
    return PoolFigures(**usual | changes)


def snapshot(*workers: WorkerFigures, pools: tuple[PoolFigures, ...] | None = None, **changes: Any) -> Snapshot:
    """With one pool "download" of these workers, unless pools are given."""
    made = (pool(wanted=len(workers)),) if pools is None else pools
    usual: dict[str, Any] = {"target": "app.py", "version": "0.1.0", "pools": made, "workers": workers}
    return Snapshot(**usual | changes)


def manager(
    shot: Snapshot | None, *, host: str = "box1", pid: int = 100, url: str = "sqlite:///pitboss.db", **info: Any
) -> int:
    """A manager that is alive for an hour; its session's number."""
    usual: dict[str, Any] = {"boot_id": host, "ttl": 3600 * SECOND, "handlers": ("greet",)}
    about = SessionInfo(host=host, pid=pid, **usual | info)

    async def work(store: Store) -> int:
        session = await store.open_session(about)
        if shot is not None:
            await store.renew(session.number, encoded(shot))
        return session.number

    return with_store(work, url)


def encoded(shot: Snapshot) -> str:
    return msgspec.json.encode(shot).decode()


def wishes() -> dict[str, Any]:
    """The desired state, by key."""
    found = with_store(lambda store: store.wishes())
    return {wish.key: msgspec.json.decode(wish.value) for wish in found if wish.value is not None}


def wish(key: str, **value: Any) -> None:
    with_store(lambda store: store.wish(key, msgspec.json.encode(value).decode()))


@contextmanager
def following(session: int, react: Callable[[DesiredState], Snapshot | None]) -> Iterator[None]:
    """A manager that follows the desired state once there is one: it publishes what `react` returns, again and again,
    and ends its session at None."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: with_store(lambda store: _follow(store, session, react, over)))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


async def _follow(
    store: Store, session: int, react: Callable[[DesiredState], Snapshot | None], over: threading.Event
) -> None:
    known = DesiredState()
    while not over.is_set():
        known.take(await store.wishes(known.version))
        if known.version:
            shot = react(known)
            if shot is None:
                await store.end_session(session)
                return
            await store.renew(session, encoded(shot))
        await asyncio.sleep(0.02)
