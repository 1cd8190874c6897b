"""The lead on PostgreSQL: of many managers one has it, and a fenced write and a takeover wait for each other."""

import asyncio
import random
from collections import defaultdict

import psycopg
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.queue import Changed
from pitboss.model.session import SessionInfo
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
_ROUNDS = 25


async def _held_up(yard: Yard, calls: int = 1) -> None:
    """Wait until this many calls wait for a lock."""
    while await yard.count(_BLOCKED) < calls:
        pass


async def _finished(yard: Yard) -> str:
    (task,) = yard.news(1)
    await yard.engine.put([task])
    await yard.engine.settle(ends((await yard.claim(1)).claims))
    return task.id


async def test_no_term_begins_while_the_last_one_writes(yard: Yard) -> None:
    task, other = await _finished(yard), await yard.open()
    successor = await other.open_session(SessionInfo(host="other"))
    lead = await yard.engine.campaign(yard.session.number)
    async with await psycopg.AsyncConnection.connect(yard.dsn) as holder:
        await holder.execute("SELECT 1 FROM pitboss.tasks WHERE id = %s FOR UPDATE", [task])
        pruning = asyncio.create_task(yard.engine.prune(EVERYTHING, term=lead.term))
        await _held_up(yard)
        await other.end_session(yard.session.number)
        campaign = asyncio.create_task(other.campaign(successor.number))
        await _held_up(yard, 2)
        assert not campaign.done()
        await holder.commit()
    assert await pruning == Changed(changed=1)
    assert (await campaign).term == lead.term + 1


async def test_a_write_that_waits_for_a_takeover_is_refused(yard: Yard) -> None:
    await _finished(yard)
    lead = await yard.engine.campaign(yard.session.number)
    async with await psycopg.AsyncConnection.connect(yard.dsn) as successor:
        await successor.execute("UPDATE pitboss.leader SET term = term + 1")
        pruning = asyncio.create_task(yard.engine.prune(EVERYTHING, term=lead.term))
        await _held_up(yard)
        await successor.commit()
    with pytest.raises(NotLeader):
        await pruning
    assert (await yard.engine.count(EVERYTHING)).number == 1


async def test_a_leader_that_renews_while_another_looks_keeps_the_lead(yard: Yard) -> None:
    """Its session looks expired, but its renewal came in time and is about to commit."""
    other = await yard.open()
    challenger = await other.open_session(SessionInfo(host="other"))
    lead = await yard.engine.campaign(yard.session.number)
    far = (await yard.engine.renew(yard.session.number)).expires_at
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("UPDATE pitboss.sessions SET expires_at = 1 WHERE number = %s", [lead.session])
    async with await psycopg.AsyncConnection.connect(yard.dsn) as renewal:
        await renewal.execute("UPDATE pitboss.sessions SET expires_at = %s WHERE number = %s", [far, lead.session])
        campaign = asyncio.create_task(other.campaign(challenger.number))
        await _held_up(yard)
        await renewal.commit()
    assert (await campaign).session == lead.session


async def test_asking_while_there_is_a_leader_waits_for_no_lock(yard: Yard) -> None:
    lead = await yard.engine.campaign(yard.session.number)
    other = await yard.open()
    challenger = await other.open_session(SessionInfo(host="other"))
    async with await psycopg.AsyncConnection.connect(yard.dsn) as holder:
        await holder.execute("SELECT 1 FROM pitboss.leader FOR UPDATE")
        assert (await yard.engine.campaign(yard.session.number)).term == lead.term
        assert (await other.campaign(challenger.number)).session == lead.session
        assert await other.leader() is not None


async def test_in_a_crowd_every_term_has_one_leader_and_none_is_left_out(yard: Yard) -> None:
    leaders: dict[int, set[int]] = defaultdict(set)
    pruned = 0

    async def reign(engine: PostgresEngine) -> None:
        nonlocal pruned
        for _ in range(_ROUNDS):
            session = await engine.open_session(SessionInfo(host="x"))
            lead = await engine.campaign(session.number)
            leaders[lead.term].add(lead.session)
            await engine.put(yard.news(1))
            await engine.cancel(by(queue="default"), limit=2)
            try:
                pruned += (await engine.prune(EVERYTHING, term=lead.term, limit=3)).changed
            except NotLeader:
                assert not lead.mine
            if lead.mine and random.random() < 0.5:
                await engine.resign(session.number)
            await engine.end_session(session.number)
            with pytest.raises(SessionLost):
                await engine.campaign(session.number)

    await asyncio.gather(*map(reign, await yard.open_many(6)))
    assert all(len(sessions) == 1 for sessions in leaders.values())
    assert sorted(leaders) == list(range(1, len(leaders) + 1))
    assert pruned > 0
    assert await yard.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    await yard.assert_figures()
