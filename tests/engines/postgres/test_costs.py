"""What order keys, meta and failures cost: nothing for tasks that have none."""

import pytest

from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import by
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.states import State
from tests.engines.postgres.traffic import Traffic, traffic
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

FAILED = Transition(state=State.FAILED, outcome="failed", charged=True)


def _cost(sent: Traffic) -> tuple[list[str], int]:
    return sent.statements, sent.round_trips


async def test_plain_tasks_cost_one_round_trip_each_time(yard: Yard) -> None:
    await yard.engine.put([yard.new(order_key="k"), yard.new(meta="{}")])
    with traffic(yard.engine) as sent:
        await yard.engine.put(yard.news(20, queue="q"))
    # The text of a put is made from parts, and has no name.
    assert _cost(sent) == ([], 1)
    with traffic(yard.engine) as sent:
        claims = (await yard.claim(20, queues=("q",))).claims
    assert _cost(sent) == (["claim_next"], 1)
    with traffic(yard.engine) as sent:
        await yard.engine.settle(ends(claims))
    assert _cost(sent) == (["settle"], 1)


async def test_tasks_with_meta_cost_no_round_trip_more(yard: Yard) -> None:
    with traffic(yard.engine) as sent:
        await yard.engine.put(yard.news(3, meta="{}"))
    assert _cost(sent) == ([], 1)
    claims = (await yard.claim(3)).claims
    assert [claim.meta for claim in claims] == ["{}"] * 3
    with traffic(yard.engine) as sent:
        await yard.engine.settle(ends(claims))
    assert _cost(sent) == (["settle"], 1)


async def test_failures_without_routes_cost_nothing_more(yard: Yard) -> None:
    await yard.engine.put(yard.news(3))
    claims = (await yard.claim(3)).claims
    with traffic(yard.engine) as sent:
        await yard.engine.settle(ends(claims, FAILED))
    assert _cost(sent) == (["settle"], 1)


async def test_with_routes_only_groups_with_failures_cost_more(yard: Yard) -> None:
    await yard.engine.register([HandlerInfo(name="bury", queue="graves", about='{"dead_letters":["elsewhere"]}')])
    await yard.engine.put(yard.news(6))
    claims = (await yard.claim(6)).claims
    with traffic(yard.engine) as sent:
        await yard.engine.settle(ends(claims[:3]))
    assert _cost(sent) == (["settle"], 1)
    with traffic(yard.engine) as sent:
        await yard.engine.settle([*ends(claims[3:5]), *ends(claims[5:], FAILED)])
    assert sent.statements[:4] == ["settle", "claim_read", "handler_routes", "settle_bound"]
    assert (await yard.engine.count(by(state="completed"))).number == 5
    assert (await yard.engine.count(by(state="failed"))).number == 1
    await yard.assert_figures()


async def test_order_keys_are_locked_in_the_round_trip_of_the_put(yard: Yard) -> None:
    with traffic(yard.engine) as sent:
        await yard.engine.put(yard.news(3, order_key="k"))
    assert _cost(sent) == (["queue_lock_bounded", "order_lock"], 2)


async def test_only_the_tasks_with_order_keys_are_settled_apart(yard: Yard) -> None:
    await yard.engine.put([*yard.news(3), *(yard.new(order_key=key) for key in "abab")])
    claims = (await yard.claim(10)).claims
    assert len(claims) == 5
    with traffic(yard.engine) as sent:
        assert all(answer.applied for answer in await yard.engine.settle(ends(claims)))
    assert sent.statements.count("settle") == sent.statements.count("settle_bound") == 1
    assert sent.statements[:5] == ["settle", "claim_read", "order_lock", "settle_bound", "order_next"]
    again = Transition(state=State.PENDING, outcome="retried", charged=True)
    claims = (await yard.claim(10)).claims
    with traffic(yard.engine) as sent:
        await yard.engine.settle(ends(claims, again))
    assert _cost(sent) == (["settle"], 1)


async def test_a_publish_costs_the_same_for_many_events(yard: Yard) -> None:
    subscription = Subscription(handler="job", pattern="x")
    await yard.engine.declare(Declared(app="a", subscriptions=(subscription,)), session=yard.session.number)
    for number in (1, 50):
        with traffic(yard.engine) as sent:
            await yard.engine.publish([NewEvent(id=yard.new().id, name="x") for _ in range(number)])
        assert _cost(sent) == (["subscription_list", "event_add"], 4)


async def test_firings_cost_the_same_for_many_schedules(yard: Yard) -> None:
    lead = await yard.engine.campaign(yard.session.number)
    for number in (1, 50):
        names = [f"{number}-{n}" for n in range(number)]
        specs = [ScheduleSpec(name=name, handler="job", every=60 * SECOND) for name in names]
        added = [await yard.engine.put_schedule(spec) for spec in specs]
        made = [one for one in (firing(each, None, each.next_at or 0, {}) for each in added) if one is not None]
        with traffic(yard.engine) as sent:
            assert await yard.engine.fire(made, term=lead.term) == [True] * number
        assert _cost(sent) == (["leader_lock_term", "schedule_lock_versions", "schedule_advance"], 3)
