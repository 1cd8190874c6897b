"""Puts, claims and assignments in queues with partitions happen as a whole or not at all, wherever a process fails."""

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
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.errors import NotLeader, StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.partition import Partition, PartitionChange, Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.states import State
from tests.engines.sqlite.store import asking, new, opened, session_of
from tests.engines.sqlite.test_writer import Gate

pytestmark = pytest.mark.fresh_loop

DIVIDED = Declared(
    app="shop", queues={"default": QueueSettings(partitions=Partitioning(by="{k}", mode="static"), max_per_key=2)}
)
OWNERS = {"a": "default/0", "b": "default/1", "c": "default/0"}
Do = Callable[[SqliteEngine], Awaitable[Any]]


async def prepared(engine: SqliteEngine) -> None:
    """A leader with the slots 0 and 1, which own the keys a and b; a task and items of both keys."""
    session = await session_of(engine)
    await engine.declare(DIVIDED, session=session.number)
    await engine.take_slots(session.number, "default", "node", [0, 1])
    await engine.put([new(params='{"k":"a"}'), new(params='{"k":"b"}')])
    await engine.create_batch(NewBatch(id="batch"), [new(params=f'{{"k":"{key}"}}') for key in "ab"])
    await engine.assign("default", {"a": "default/0", "b": "default/1"}, term=await term_of(engine))


async def term_of(engine: SqliteEngine) -> int:
    (session,) = await engine.sessions()
    return (await engine.campaign(session.number)).term


async def put(engine: SqliteEngine) -> object:
    return await engine.put([new(params='{"k":"x"}'), new(params='{"k":"y"}')])


async def claim(engine: SqliteEngine) -> object:
    (session,) = await engine.sessions()
    claimed = await engine.claim(asking(session, 2, number=0, queues=("default",)))
    assert len(claimed.claims) == 2
    return claimed


async def take_slots(engine: SqliteEngine) -> object:
    (session,) = await engine.sessions()
    return await engine.take_slots(session.number, "default", "node", [1, 2])


async def assign(engine: SqliteEngine) -> object:
    return await engine.assign("default", {"a": "default/1", "z": "default/0"}, term=await term_of(engine))


async def change_partition(engine: SqliteEngine) -> object:
    entry = AuditEntry(id="1", who="ann", act="partitions", target="a")
    return await engine.audited(entry).change_partition("default", "a", PartitionChange(pinned="default/1"))


ACTS: dict[str, Do] = {
    "put": put,
    "claim": claim,
    "take_slots": take_slots,
    "assign": assign,
    "change_partition": change_partition,
}
# The last table that the act writes.
TABLES = {
    "put": "INSERT ON pitboss_partitions",
    "claim": "UPDATE ON pitboss_batch_counts",
    "take_slots": "INSERT ON pitboss_slots",
    "assign": "UPDATE ON pitboss_partitions",
    "change_partition": "INSERT ON pitboss_audit",
}


async def shown(engine: SqliteEngine) -> tuple[object, ...]:
    """Everything that these acts write."""
    page = await engine.find(EVERYTHING)
    keys, slots = await engine.partitions("default"), await engine.slots()
    return page.tasks, await engine.queues(), keys, slots, await engine.batches(), await engine.audit_log()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("place", ["before", "commit"])
async def test_a_failure_before_the_commit_writes_nothing(tmp_path: Path, act: str, place: str) -> None:
    gate = Gate()
    async with opened(tmp_path / "s.db", failpoint=gate) as engine:
        await prepared(engine)
        before = await shown(engine)
        gate.fail_at = f"{act}.{place}"
        with pytest.raises(ArithmeticError):
            await ACTS[act](engine)
        gate.fail_at = ""
        assert await shown(engine) == before
        await ACTS[act](engine)
        assert await shown(engine) != before


@pytest.mark.parametrize("act", ACTS)
async def test_a_failure_between_two_statements_writes_nothing(tmp_path: Path, act: str) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        await prepared(engine)
        before = await shown(engine)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"CREATE TRIGGER broken BEFORE {TABLES[act]} BEGIN SELECT RAISE(ABORT, 'broken'); END")
        with pytest.raises(StoreUnavailable, match="broken"):
            await ACTS[act](engine)
        assert await shown(engine) == before


_KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.engines.sqlite.store import opened
from tests.engines.sqlite.test_partition_acts import ACTS, prepared

async def main():
    def kill(name):
        if ready and name == sys.argv[3]:
            os._exit(9)

    ready = []
    async with opened(Path(sys.argv[1]), failpoint=kill) as engine:
        await prepared(engine)
        ready.append(True)
        await ACTS[sys.argv[2]](engine)

asyncio.run(main())
"""


def _killed(path: Path, act: str, place: str) -> int:
    command = [sys.executable, "-c", _KILLED, str(path), act, f"{act}.{place}"]
    return subprocess.run(command, cwd=Path(__file__).parents[3], check=False).returncode


@pytest.mark.parametrize("act", ["claim", "assign"])
@pytest.mark.parametrize("place", ["commit", "after"])
async def test_a_killed_process_leaves_all_or_nothing(tmp_path: Path, act: str, place: str) -> None:
    path, done = tmp_path / "s.db", place == "after"
    assert _killed(path, act, place) == 9
    async with opened(path) as engine:
        found = {one.key: one for one in await engine.partitions("default")}
        (batch,) = await engine.batches()
        if act == "assign":
            assert {key: one.owner for key, one in found.items()} == (
                {"a": "default/1", "b": "default/1", "z": "default/0"} if done else {"a": "default/0", "b": "default/1"}
            )
        else:
            assert found["a"].counts == ({State.RUNNING: 2} if done else {State.HELD: 1, State.PENDING: 1})
            assert batch.counts == ({State.RUNNING: 1, State.HELD: 1} if done else {State.HELD: 2})


async def test_a_leader_whose_term_is_over_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await prepared(engine)
        term, before = await term_of(engine), await shown(engine)
        await engine.resign((await engine.sessions())[0].number)
        with pytest.raises(NotLeader):
            await engine.assign("default", OWNERS, term=term)
        assert await shown(engine) == before


async def test_a_put_in_the_caller_s_transaction_has_keys(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as engine:
        await prepared(engine)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for end, keys in (("ROLLBACK", ["a", "b"]), ("COMMIT", ["a", "b", "new"])):
                connection.execute("BEGIN IMMEDIATE")
                engine.put_within(connection, [new(params='{"k":"new"}')])
                connection.execute(end)
                assert [one.key for one in await engine.partitions("default", counts=False)] == keys


async def test_many_slots_of_one_request_share_a_limit_behind_a_look(tmp_path: Path) -> None:
    """The second slot must know what the first has taken, though nothing was read again in between."""
    async with opened(tmp_path / "s.db") as engine:
        await prepared(engine)
        await engine.put([new(params='{"k":"a"}') for _ in range(5)])
        (session,) = await engine.sessions()
        request = asking(session, 2, number=0, queues=("default",))
        slots = (*request.slots, *request.slots, *asking(session, 5, number=1, queues=("default",)).slots)
        claimed = await engine.claim(type(request)(session=session.number, slots=slots))
        assert [one.slot for one in claimed.claims] == [0, 0, 2, 2]
        assert [one.counts.get(State.RUNNING) for one in await engine.partitions("default")] == [2, 2]


async def test_a_changed_key_is_answered_with_its_tasks(tmp_path: Path) -> None:
    async with opened(tmp_path / "s.db") as engine:
        await prepared(engine)
        found = await engine.change_partition("default", "b", PartitionChange(pinned="default/1"))
        counts = {State.HELD: 1, State.PENDING: 1}
        assert found == Partition(
            queue="default", key="b", owner="default/1", epoch=1, pinned="default/1", counts=counts
        )
