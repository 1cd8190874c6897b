"""Firing, publishing and declaring happen as a whole or not at all, wherever the process fails or is killed."""

import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.access import AuditEntry
from pitboss.model.declared import Declared
from pitboss.model.errors import StoreUnavailable
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.schedule import Firing, Overlap, ScheduleChange, ScheduleSpec, firing
from tests.engines.sqlite.store import asking, new, opened, session_of
from tests.engines.sqlite.test_writer import Gate

pytestmark = pytest.mark.fresh_loop

# Its time comes in 2100, whenever these tests run.
ONCE = ScheduleSpec(name="once", handler="job", at=4_102_444_800_000_000, overlap=Overlap.QUEUE)
SIGNUP = Declared(
    app="shop",
    queues={"q": QueueSettings(capacity=3)},
    schedules=(ONCE,),
    subscriptions=(Subscription(handler="job", pattern="user.*", ordered=True),),
)
EVENTS = [NewEvent(id=f"01900000-0000-7000-8000-00000000000{n}", name="user.signup", key="k") for n in range(3)]
Do = Callable[[SqliteEngine, int], Awaitable[Any]]


async def prepared(engine: SqliteEngine, declared: Declared = SIGNUP) -> int:
    """Declared, with a leader; its term."""
    session = await session_of(engine)
    await engine.declare(declared, session=session.number)
    return (await engine.campaign(session.number)).term


async def firings(engine: SqliteEngine) -> list[Firing]:
    made = [firing(one, None, one.next_at or 0, {}) for one in await engine.schedules()]
    return [one for one in made if one is not None]


async def fire(engine: SqliteEngine, term: int) -> list[bool]:
    return await engine.fire(await firings(engine), term=term)


async def publish(engine: SqliteEngine, term: int) -> object:
    return await engine.publish(EVENTS)


ACTS: dict[str, Do] = {"fire": fire, "publish": publish}
# The last table that the act writes.
TABLES = {"fire": "UPDATE ON pitboss_schedules", "publish": "INSERT ON pitboss_events"}


async def shown(engine: SqliteEngine) -> tuple[object, ...]:
    """Everything that these acts write."""
    with closing(sqlite3.connect(engine.path)) as connection:
        heads = connection.execute("SELECT * FROM pitboss_order_heads").fetchall()
    page = await engine.find(EVERYTHING)
    return page.tasks, await engine.queues(), await engine.schedules(), await engine.events(), heads


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("place", ["before", "commit"])
async def test_a_failure_before_the_commit_writes_nothing(tmp_path: Path, act: str, place: str) -> None:
    gate = Gate()
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        term = await prepared(engine)
        before = await shown(engine)
        gate.fail_at = f"{act}.{place}"
        with pytest.raises(ArithmeticError):
            await ACTS[act](engine, term)
        gate.fail_at = ""
        assert await shown(engine) == before
        await ACTS[act](engine, term)
        assert await shown(engine) != before


@pytest.mark.parametrize("act", ACTS)
async def test_a_failure_between_two_statements_writes_nothing(tmp_path: Path, act: str) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        term = await prepared(engine)
        before = await shown(engine)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"CREATE TRIGGER broken BEFORE {TABLES[act]} BEGIN SELECT RAISE(ABORT, 'broken'); END")
        with pytest.raises(StoreUnavailable, match="broken"):
            await ACTS[act](engine, term)
        assert await shown(engine) == before


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_whose_answer_was_lost_is_done_once(tmp_path: Path, act: str) -> None:
    gate = Gate(fail_at=f"{act}.after")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        term = await prepared(engine)
        asked = await firings(engine)
        with pytest.raises(ArithmeticError):
            await ACTS[act](engine, term)
        gate.fail_at = ""
        done = await shown(engine)
        if act == "fire":
            assert await engine.fire(asked, term=term) == [False]
        else:
            assert not any(one.created for one in await engine.publish(EVENTS))
        assert await shown(engine) == done


_KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.engines.sqlite.store import opened
from tests.engines.sqlite.test_declared_acts import ACTS, prepared

def kill(name):
    if name == sys.argv[3]:
        os._exit(9)

async def main():
    async with opened(Path(sys.argv[1]), failpoint=kill) as engine:
        await ACTS[sys.argv[2]](engine, await prepared(engine))

asyncio.run(main())
"""


def _killed(path: Path, act: str, place: str) -> int:
    command = [sys.executable, "-c", _KILLED, str(path), act, f"{act}.{place}"]
    return subprocess.run(command, cwd=Path(__file__).parents[3], check=False).returncode


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("place", ["commit", "after"])
async def test_a_killed_process_leaves_all_or_nothing(tmp_path: Path, act: str, place: str) -> None:
    path = tmp_path / "s.db"
    assert _killed(path, act, place) == 9
    async with opened(path) as engine:
        tasks = (await engine.count(EVERYTHING)).number
        (schedule,) = await engine.schedules()
        events = len(await engine.events())
        done = (schedule.fired, schedule.next_at) == (1, None) if act == "fire" else events == 3
        assert done == (place == "after")
        assert tasks == ({"fire": 1, "publish": 3}[act] if done else 0)
        assert [queue.waiting for queue in await engine.queues() if queue.name == "default"] == (
            [tasks] if done else []
        )


async def test_a_refused_declaration_leaves_no_part_of_it(tmp_path: Path) -> None:
    gate = Gate(fail_at="declare.commit")
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        session = await session_of(engine)
        with pytest.raises(ArithmeticError):
            await engine.declare(SIGNUP, session=session.number)
        gate.fail_at = ""
        assert (await engine.declarations(), await engine.schedules(), await engine.queues()) == ([], [], [])
        assert await engine.declare(SIGNUP, session=session.number)


async def test_what_operators_do_to_schedules_is_audited(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        acts: list[Callable[[SqliteEngine], Awaitable[object]]] = [
            lambda store: store.put_schedule(ONCE),
            lambda store: store.change_schedule("once", ScheduleChange(paused=True)),
            lambda store: store.change_schedule("once", None),
        ]
        for number, act in enumerate(acts):
            entry = AuditEntry(id=f"{number}", who="ann", act="schedules", target="once")
            await act(engine.audited(entry))
        assert [one.id for one in await engine.audit_log()] == ["2", "1", "0"]


async def test_sessions_that_declared_are_forgotten_with_them(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await prepared(engine)
        with closing(sqlite3.connect(engine.path)) as connection, connection:
            connection.execute("UPDATE pitboss_sessions SET expires_at = 0")
        await engine.reclaim()
        with closing(sqlite3.connect(engine.path)) as connection:
            assert connection.execute("SELECT count(*) FROM pitboss_declarers").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM pitboss_fingerprints").fetchone() == (1,)


async def test_a_fallback_that_is_due_at_once_is_rung(tmp_path: Path) -> None:
    """What follows an expired task may be in a queue at which the claim did not look."""
    async with opened(tmp_path / "s.db") as engine:
        session = await session_of(engine)
        routed = [HandlerInfo(name="job", about='{"fallback":"instead"}'), HandlerInfo(name="instead", queue="other")]
        await engine.register(routed)
        await engine.put([new(expires_in=0)])
        while await engine.wait(["other"], 0.01):
            pass
        assert (await engine.claim(asking(session, queues=("default",)))).claims == []
        assert await engine.wait(["other"], 5)
