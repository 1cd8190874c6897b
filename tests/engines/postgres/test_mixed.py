"""Managers that know different handlers share a queue."""

import pytest

from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.states import State
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop


async def test_tasks_for_others_are_skipped(yard: Yard) -> None:
    await yard.engine.register([HandlerInfo(name="other"), HandlerInfo(name="orphan")])
    await yard.engine.open_session(SessionInfo(host="x", handlers=("other",), ttl=3_600_000_000))
    others = yard.news(30, handler="other")
    orphan = yard.new(handler="orphan")
    mine = yard.news(10)
    await yard.engine.put([orphan, *others, *mine])
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=2),), handlers=frozenset({"job"}))
    found = [claim.id for _ in range(5) for claim in (await yard.engine.claim(request)).claims]
    assert found == [task.id for task in mine]
    assert [(task and task.state) for task in await yard.engine.get([orphan.id, others[0].id])] == [
        State.HELD,
        State.PENDING,
    ]


async def test_a_queue_that_lost_its_capacity_takes_quick_puts_again(yard: Yard) -> None:
    await yard.engine.change_queue("q", QueueChange(capacity=1))
    await yard.engine.put([yard.new(queue="q")])
    await yard.engine.change_queue("q", QueueChange(capacity=None))
    await yard.engine.put([yard.new(queue="q")])
    with traffic(yard.engine) as sent:
        await yard.engine.put([yard.new(queue="q")])
    assert (sent.round_trips, sent.statements) == (1, [])
