"""Hot statements keep their plans: on a table without statistics, and with statistics that are wrong.

The plans looked at are the ones that the engine's own connection has prepared and keeps.
"""

import re

import msgspec
import psycopg
import pytest

from pitboss.engines.postgres.script import Ask
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.limits import Window
from pitboss.model.outcome import Transition, progressed
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, Report, ResourceOutcome, Want
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.session import ClaimRequest, Order, Slot
from pitboss.model.states import State
from pitboss.model.task import Unique
from tests.engines.postgres.keyed_yard import claim, divide, give, keyed, seat
from tests.engines.postgres.yard import Yard, ends

pytestmark = pytest.mark.fresh_loop(limit=60)

_HOT = (
    "tasks",
    "attempts",
    "uniques",
    "starts",
    "resources",
    "uses",
    "bindings",
    "leases",
    "order_heads",
    "schedules",
    "events",
    "partitions",
)
_LIES = """
UPDATE pg_class SET reltuples = 1000000000, relpages = 1
WHERE relnamespace = 'pitboss'::regnamespace
    AND relname IN ('queues', 'sessions', 'handlers', 'pools', 'batches', 'lanes');
UPDATE pg_class SET reltuples = 0, relpages = 100000
WHERE relnamespace = 'pitboss'::regnamespace AND (
    relname LIKE 'tasks%' OR relname LIKE 'resources%' OR relname LIKE 'schedules%' OR relname LIKE 'events%'
    OR relname LIKE 'order_heads%' OR relname LIKE 'partitions%')
"""


async def _use(yard: Yard) -> None:
    """Every hot verb once, so that its statement is prepared."""
    await yard.engine.put([*yard.news(20), yard.new(unique=Unique("k")), yard.new(delay=1)])
    claims = (await yard.claim(5)).claims
    again = Transition(state=State.SCHEDULED, outcome="failed", delay=1, charged=True)
    await yard.engine.settle([*ends(claims[:2]), *ends(claims[2:], again)])
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=2),), handlers=frozenset({"else"}))
    await yard.engine.claim(request)
    await _use_scarce(yard)
    await _use_remote(yard)
    await _use_declared(yard)
    await _use_keyed(yard)
    await yard.engine.renew(yard.session.number)
    await yard.engine.reclaim()


async def _use_scarce(yard: Yard) -> None:
    """The same with a batch whose items hold members of a pool."""
    engine = yard.engine
    await engine.declare_pool("p", PoolRules(limits=Limits(windows=(Window(5, 1_000_000),), concurrency=2)))
    await engine.add_resources("p", [NewResource(name=f"m{number}", labels=("eu",)) for number in range(30)])
    await engine.register([HandlerInfo(name="scarce", queue="scarce", resources="p")])
    wants = (None, Want(("eu",)), Want(key="k"))
    items = [yard.new(handler="scarce", queue="scarce", want=want) for want in wants * 4]
    await engine.create_batch(NewBatch(id="b"), items)
    claims = (await yard.claim(6, queues=("scarce",))).claims
    assert all(claim.leased for claim in claims)
    assert len(claims) == 6
    await engine.use(claims[0].token, claims[0].id)
    assert claims[1].leased is not None
    await engine.use(claims[1].token, claims[1].id, instead=claims[1].leased.leased_at)
    again = Transition(state=State.PENDING, outcome="rotated", rotated=True)
    reports = [Report(outcome=outcome, destination="d") for outcome in ResourceOutcome]
    settlements = [*ends(claims[:3]), *ends(claims[3:], again)]
    said = zip(settlements, [*reports, None], strict=True)
    await engine.settle([msgspec.structs.replace(one, report=report) for one, report in said])
    await yard.claim(20, queues=("scarce",))
    held = await engine.acquire("p", Want(), 1_000_000, lease="l")
    assert isinstance(held, Leased)
    await engine.release("l", None)


async def _use_remote(yard: Yard) -> None:
    """The same for remote workers."""
    engine = yard.engine
    await engine.register([HandlerInfo(name="far", queue="far", remote=True)])
    await engine.put(yard.news(20, handler="far", queue="far"))
    for order in (None, Order("created_at", descending=True)):
        slots = [
            Slot(free=1, queues=("far",), handlers=("far",), lasts=60_000_000, worker=name, repeat=name, order=order)
            for name in ("w1", "w2")
        ]
        claims = (await engine.claim(ClaimRequest(session=yard.session.number, slots=tuple(slots)))).claims
        await engine.settle([*ends(claims[:1], progressed()), *ends(claims[1:])])


async def _use_declared(yard: Yard) -> None:
    """Order keys, failures that are followed, schedules and events."""
    engine = yard.engine
    await engine.register([HandlerInfo(name="bury", queue="graves", about='{"dead_letters":["*"]}')])
    await engine.put([yard.new(queue="o", order_key=key, meta="{}") for key in "aabb"])
    claims = (await yard.claim(5, queues=("o",))).claims
    failed = Transition(state=State.FAILED, outcome="failed", charged=True)
    await engine.settle([*ends(claims[:1]), *ends(claims[1:], failed)])
    subscription = Subscription(handler="job", pattern="x", ordered=True)
    await engine.declare(Declared(app="a", subscriptions=(subscription,)), session=yard.session.number)
    event = NewEvent(id=yard.new().id, name="x", key="k")
    for _ in range(2):
        await engine.publish([event])
    lead = await engine.campaign(yard.session.number)
    schedule = await engine.put_schedule(ScheduleSpec(name="s", handler="job", every=60_000_000))
    made = firing(schedule, None, schedule.next_at or 0, {})
    assert made is not None
    assert await engine.fire([made], term=lead.term) == [True]
    await engine.due_schedules()
    await engine.prune_events(0)


async def _use_keyed(yard: Yard) -> None:
    """Queues with partitions: own tasks near and far, those of others, and items of batches."""
    engine = yard.engine
    for mode in ("static", "affinity"):
        await divide(yard, mode, max_per_key=5, on_missing="steal")
        await seat(yard, 2)
        await give(yard, {"near": 0, "far": 0, "front": 1})
        await engine.put([keyed(yard, key, priority=-1) for key in ["near"] * 3 + ["front"] * 1000])
        await engine.put([keyed(yard, "far"), keyed(yard, "ownerless"), keyed(yard, "far", delay=60_000_000)])
        items = [keyed(yard, key, priority=-1) for key in ["near"] * 3 + ["front"] * 1000]
        await engine.create_batch(NewBatch(id=mode, lane=mode), [*items, keyed(yard, "far")])
        for _ in range(2):
            claims = (await claim(yard, 0, 1, None, free=4)).claims
            assert claims
            await engine.settle(ends(claims[1:]))


async def _plans(yard: Yard) -> dict[str, str]:
    (pipeline,) = yard.engine._writing._idle
    connection = pipeline.connection
    rows = await (
        await connection.execute("SELECT name, statement, parameter_types::text[] FROM pg_prepared_statements")
    ).fetchall()
    plans = {}
    for name, statement, types in rows:
        if "pitboss" not in statement:
            continue
        values = ", ".join(f"NULL::{kind}" for kind in types)
        explain = f'EXPLAIN (COSTS OFF) EXECUTE "{name}"({values})' if types else f'EXPLAIN EXECUTE "{name}"'
        lines = await (await connection.execute(explain.encode(), prepare=False)).fetchall()
        plans[statement] = "\n".join(line for (line,) in lines)
    return plans


def _assert_steady(plans: dict[str, str]) -> None:
    assert len(plans) >= 8
    for statement, plan in plans.items():
        for table in _HOT:
            assert not re.search(rf"(Seq|Bitmap Heap) Scan on {table}\b", plan), f"{statement}\n{plan}"
    claims = [plan for statement, plan in plans.items() if "SKIP LOCKED" in statement and "pooled" in statement]
    assert len(claims) == 3
    for plain in claims:
        assert "Index Scan using tasks_pending" in plain
        assert "Tid Scan on tasks" in plain
    settles = [plan for statement, plan in plans.items() if "judged" in statement]
    assert len(settles) == 2
    for settle in settles:
        assert "Index Scan using tasks_pkey" in settle
        assert "Hash Join" not in settle
        assert "Tid Scan on tasks" in settle
    _assert_scarce(plans)
    _assert_remote(plans)
    _assert_declared(plans)
    _assert_keyed(plans)


def _assert_keyed(plans: dict[str, str]) -> None:
    """Keys are looked up by the whole key, and tasks by line, or by line and key."""
    pages = [plan for statement, plan in plans.items() if "head AS MATERIALIZED" in statement and "helped" in statement]
    assert len(pages) == 4
    for page in pages:
        assert re.search(r"partitions_pkey.*\n.*\(queue = \S+line_queue\) AND \(key = ", page)
        assert "using tasks_keyed_running" in page
        assert "Tid Scan on tasks" in page
    assert sum("Index Scan using tasks_pending" in page for page in pages) == 2
    assert sum("Index Scan using tasks_items_held" in page for page in pages) == 2
    behind = {statement: plan for statement, plan in plans.items() if "after_priority" in statement}
    assert len(behind) == 3
    for statement, plan in behind.items():
        own = r"partitions_by_owner.*\n.*\(owner = \S+\) AND "
        of_keys = own if "p.owner = a.slot" in statement else r"partitions_pkey.*\n.*\("
        assert re.search(of_keys + r"\(queue = \S+\) AND \(key >= ", plan)
        assert re.search(r"tasks_keyed_(pending|held).*\n.*\(partition = \S+\.key\).*ROW\(priority, id\) > ", plan)
        assert "Sort" not in plan
    taken = _plan_of(plans, "AS f (seen, resource")
    assert taken.count("Tid Scan on tasks") == 2
    assert "using tasks_items_live" in _plan_of(plans, "GROUP BY partition ) AS few")


def _assert_declared(plans: dict[str, str]) -> None:
    def plan_of(sign: str) -> str:
        return _plan_of(plans, sign)

    following = plan_of("following AS MATERIALIZED")
    assert "Index Scan using tasks_in_order" in following
    assert "Sort" not in following.split("tasks_in_order")[0].rsplit("Limit", 1)[-1]
    assert following.count("Tid Scan on order_heads") == 2
    assert "Tid Scan on tasks" in following
    due = plan_of("next_at > wall")
    assert due.count("using schedules_due") == 2
    assert "Sort" not in due
    assert "Index Scan using schedules_pkey" in plan_of("WHERE name = wanted.name FOR UPDATE")
    assert "Tid Scan on schedules" in plan_of("s.ctid = n.place")
    assert "using events_by_time" in plan_of("WHERE published_at <")
    assert "using events_pkey" in plan_of("WHERE id = wanted.event")


def _assert_remote(plans: dict[str, str]) -> None:
    def plan_of(sign: str) -> str:
        return _plan_of(plans, sign)

    assert "Index Scan using tasks_repeatable" in plan_of("claim_key = k.key")
    assert plan_of("looked_at AS MATERIALIZED").count("Tid Scan on tasks") == 2
    for sweep in (plan_of("requests WHERE at <= now -"), plan_of("AS found LIMIT")):
        assert "using tasks_limited" in sweep
        assert re.search(r"\(session = s\w*\.number\) AND \(claim_expires_at IS NULL\)", sweep)


def _plan_of(plans: dict[str, str], sign: str) -> str:
    (plan,) = (plan for statement, plan in plans.items() if sign in statement)
    return plan


def _assert_scarce(plans: dict[str, str]) -> None:
    def plan_of(sign: str) -> str:
        return _plan_of(plans, sign)

    ready = plan_of("labels @> marks")
    assert "Index Scan using resources_ready" in ready
    assert "Sort" not in ready
    candidates = plan_of("wanted_queues AS MATERIALIZED")
    assert "Index Scan using tasks_pending" in candidates
    assert "Tid Scan on tasks" in plan_of("AS f (place, resource")
    written = plan_of("blacklisted_until = f.blacklisted_until")
    assert "Index Scan using resources_pkey" in written
    assert "Tid Scan on resources" in written
    assert "uses_pkey" in written
    drawn = plan_of("short AS MATERIALIZED")
    assert "tasks_items_held" in drawn
    assert "tasks_items_live" in drawn


async def test_plans_on_fresh_tables_without_statistics(yard: Yard) -> None:
    await _use(yard)
    _assert_steady(await _plans(yard))


async def test_plans_with_statistics_of_an_empty_table(yard: Yard) -> None:
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    await _use(yard)
    await yard.engine.put(yard.news(5000))
    _assert_steady(await _plans(yard))


async def test_plans_with_statistics_that_lie(yard: Yard) -> None:
    await yard.engine.put(yard.news(3000))
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        for lie in _LIES.split(";"):
            connection.execute(lie.encode())
    await _use(yard)
    _assert_steady(await _plans(yard))


async def test_a_claim_reads_no_more_rows_because_others_are_finished_scheduled_or_held(yard: Yard) -> None:
    await yard.engine.put([*yard.news(2000, delay=10**12), *yard.news(2000, handler="unknown"), *yard.news(2100)])
    await yard.engine.settle(ends((await yard.claim(2000)).claims))
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM pitboss.tasks")
    before = await _read(yard)
    await yard.claim(10)
    assert await _read(yard) - before < 300


async def _read(yard: Yard) -> int:
    """Pages of tasks and its indexes that were touched so far."""
    await yard.flush_statistics()
    return await yard.count(
        "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_all_tables"
        " WHERE schemaname = 'pitboss' AND relname = 'tasks'"
    )


async def test_nothing_is_looked_for_ahead_where_a_member_is_needed(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such tasks are only given to free slots: a long line of them must not be read and locked for nothing."""
    engine = yard.engine
    await engine.add_resources("p", [NewResource(name=f"m{number}") for number in range(30)])
    await engine.register([HandlerInfo(name="scarce", queue="scarce", resources="p")])
    await engine.put([yard.new(handler="scarce", queue="scarce") for _ in range(500)])
    await yard.claim(1, queues=("scarce",))
    asked: list[str] = []
    ask = engine._sql.ask

    def noted(name: str, now: int | None = None, **named: object) -> Ask:
        asked.append(name)
        return ask(name, now, **named)

    monkeypatch.setattr(engine._sql, "ask", noted)
    request = ClaimRequest(session=yard.session.number, slots=(Slot(free=1, ahead=50, queues=("scarce",)),))
    assert len((await engine.claim(request)).claims) == 1
    assert asked == [
        "claim_queues",
        "claim_candidates",
        "member_lock_ready",
        "pool_rules",
        "claim_take_bound",
        "member_write",
    ]
