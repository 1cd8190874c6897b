"""Partitions on PostgreSQL: how keys are made, and what keyed claims send, read and wait for."""

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pitboss.engines.postgres.script import Ask, Statements
from pitboss.model.batch import NewBatch
from pitboss.model.canonical import to_json
from pitboss.model.declared import Declared
from pitboss.model.errors import InvalidInput
from pitboss.model.partition import key_parts, partition_key
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import NewResource, PoolRules
from pitboss.model.states import State
from tests.engines.postgres.keyed_yard import WORK, claim, divide, give, keyed, seat
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import Yard, ends
from tests.servers.schema import EmptiedSchema

pytestmark = pytest.mark.fresh_loop(limit=90)

KEYED = [
    "queue_lock_keyed",
    "batch_lock_keyed",
    "keyed_slots",
    "claim_queues",
    "keyed_page_pending",
    "claim_take_keyed",
]

names = st.sampled_from(["a", "b", "Ünï", "_x1"])
characters = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")
plain = st.text(characters, max_size=8)
values = st.one_of(
    plain,
    st.text(characters, min_size=190, max_size=210),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.lists(plain, max_size=2),
    st.dictionaries(plain, plain, max_size=2),
)
params = st.one_of(st.dictionaries(names, values), st.dictionaries(names, plain), values)
templates = st.lists(st.tuples(plain, names), min_size=1, max_size=3).map(
    lambda parts: "".join(text.replace("{", "{{").replace("}", "}}") + f"{{{name}}}" for text, name in parts)
)


def test_keys_are_made_as_the_model_makes_them(emptied_schema: EmptiedSchema) -> None:
    function = f"SELECT {emptied_schema.name}.partition_key(%s::text[], %s::text[], %s::text)"
    with psycopg.connect(emptied_schema.dsn, autocommit=True) as connection:

        @settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(by=templates, given_params=params, ending=plain)
        def same(by: str, given_params: object, ending: str) -> None:
            by += ending.replace("{", "{{").replace("}", "}}")
            text = to_json(given_params)
            parts = key_parts(by)
            row = connection.execute(
                function.encode(), [[text for text, _ in parts], [name for _, name in parts], text]
            ).fetchone()
            assert row == (partition_key(by, text),)

        same()


async def test_a_put_into_queues_with_and_without_partitions(yard: Yard) -> None:
    await divide(yard)
    tasks = [keyed(yard, "a"), yard.new(params='{"k":"b"}'), keyed(yard, "c"), keyed(yard, None)]
    with traffic(yard.engine) as sent:
        await yard.engine.put(tasks)
    assert (sent.statements, sent.round_trips) == ([], 1)
    found = await yard.engine.get([task.id for task in tasks])
    assert [task and task.partition for task in found] == ["a", None, "c", None]


async def test_a_put_with_keys_that_are_known_writes_none(yard: Yard) -> None:
    await divide(yard)
    for _ in range(3):
        await yard.engine.put([keyed(yard, number % 7) for number in range(30)])
    assert await yard.count("SELECT count(*) FROM pitboss.new_partitions") == 7
    await yard.engine.reclaim()
    assert await yard.count("SELECT count(*) FROM pitboss.new_partitions") == 0
    await yard.engine.put([keyed(yard, number % 8) for number in range(30)])
    assert await yard.count("SELECT count(*) FROM pitboss.new_partitions") == 1
    assert [one.key for one in await yard.engine.partitions(WORK)] == [str(number) for number in range(8)]


async def test_a_keyed_claim_costs_as_much_for_ten_slots_as_for_one(yard: Yard) -> None:
    await divide(yard)
    await seat(yard, 10)
    await give(yard, {str(number): number for number in range(10)})
    await yard.engine.put([keyed(yard, number % 10) for number in range(100)])
    with traffic(yard.engine) as sent:
        assert len((await claim(yard, 0)).claims) == 1
    assert (sent.statements, sent.round_trips) == (["claim_next", *KEYED], 4)
    for numbers in (range(1), range(10)):
        with traffic(yard.engine) as sent:
            assert len((await claim(yard, *numbers)).claims) == len(numbers)
        assert (sent.statements, sent.round_trips) == (KEYED, 3)


async def test_a_batch_and_a_queue_behind_many_tasks_of_others_cost_as_much_for_ten_slots(yard: Yard) -> None:
    await divide(yard)
    await seat(yard, 11)
    await give(yard, {str(number): number for number in range(11)})
    await yard.engine.put([keyed(yard, 10, priority=-1) for _ in range(1200)])
    await yard.engine.put([keyed(yard, number % 10) for number in range(100)])
    await claim(yard, 0)
    with traffic(yard.engine) as sent:
        assert len((await claim(yard, *range(10))).claims) == 10
    assert sent.statements == [*KEYED[:-1], "keyed_beyond_pending_own", KEYED[-1]]
    items = [keyed(yard, 10, priority=-2) for _ in range(1200)]
    items += [keyed(yard, number % 10, priority=-1) for number in range(100)]
    await yard.engine.create_batch(NewBatch(id="b"), items)
    with traffic(yard.engine) as sent:
        claims = (await claim(yard, *range(10))).claims
    assert [one.batch for one in claims] == ["b"] * 10
    assert sent.statements.count("keyed_beyond_held_own") == 1
    assert len(sent.statements) <= len(KEYED) + 5
    await yard.assert_figures()


async def _pages(yard: Yard, keys: int, tasks: int) -> int:
    """Pages that ten keyed claims of ten slots touch, where that many keys have tasks."""
    await divide(yard)
    await seat(yard, 10)
    await give(yard, {str(key): key % 10 for key in range(keys)})
    for start in range(0, tasks, 500):
        await yard.engine.put([keyed(yard, number % keys) for number in range(start, start + 500)])
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM")
    await claim(yard, *range(10))
    before = await _touched(yard)
    for _ in range(10):
        assert len((await claim(yard, *range(10))).claims) == 10
    return await _touched(yard) - before


async def _touched(yard: Yard) -> int:
    await yard.flush_statistics()
    return await yard.count(
        "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint FROM pg_statio_all_tables"
        " WHERE schemaname = 'pitboss' AND relname IN ('tasks', 'partitions')"
    )


async def test_a_keyed_claim_reads_no_more_because_there_are_many_keys(yard: Yard, postgres_dsn: str) -> None:
    few = await _pages(yard, 100, 10_000)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE pitboss.tasks, pitboss.partitions, pitboss.new_partitions")
    assert await _pages(yard, 10_000, 10_000) < 2 * few


async def test_a_keyed_claim_reads_no_more_because_other_tasks_are_finished(yard: Yard) -> None:
    before = await _pages(yard, 10, 500)
    await yard.engine.put([keyed(yard, number % 10, priority=-1) for number in range(3000)])
    for _ in range(3):
        claims = (await claim(yard, *range(10), free=100)).claims
        await yard.engine.settle(ends(claims))
    with psycopg.connect(yard.dsn, autocommit=True) as connection:
        connection.execute("VACUUM pitboss.tasks")
    start = await _touched(yard)
    for _ in range(10):
        assert len((await claim(yard, *range(10))).claims) == 10
    assert await _touched(yard) - start < 2 * before


async def test_a_put_reads_no_more_because_there_are_many_keys(yard: Yard) -> None:
    """A comparison by the wrong collation would read all of them for each key."""
    await divide(yard)
    await give(yard, {str(key): 0 for key in range(10_000)})
    await yard.engine.put([keyed(yard, 0)])
    before = await _touched(yard)
    await yard.engine.put([keyed(yard, number) for number in range(400)])
    assert await _touched(yard) - before < 400 * 15


async def test_an_engine_that_planned_without_partitions_minds_those_of_another(yard: Yard) -> None:
    other = await yard.open()
    await yard.engine.put([keyed(yard, "a")])
    assert not (await claim(yard, 0, engine=other)).partitioned
    await divide(yard)
    await seat(yard, 2)
    await give(yard, {"a": 0})
    await yard.engine.put([keyed(yard, "a")])
    with traffic(other) as sent:
        claimed = await claim(yard, 1, engine=other)
    assert (claimed.claims, claimed.partitioned) == ([], True)
    assert sent.statements[0] == "claim_next"
    assert len((await claim(yard, 0, engine=other)).claims) == 1


async def test_an_engine_that_planned_with_partitions_does_without_them(yard: Yard) -> None:
    await divide(yard, max_per_key=1)
    await yard.engine.put([keyed(yard, "a") for _ in range(3)])
    assert (await claim(yard, None)).claims == []
    await yard.engine.declare(Declared(app="app"), session=yard.session.number)
    claimed = await claim(yard, None, free=2)
    assert (len(claimed.claims), claimed.partitioned) == (2, False)
    with traffic(yard.engine) as sent:
        await claim(yard, None)
    assert sent.statements == ["claim_next"]


async def test_a_claim_begins_again_if_a_queue_gets_partitions_behind_its_lock(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await divide(yard)
    await yard.engine.put([keyed(yard, None)])
    await claim(yard, None, free=0)
    ask, locks = yard.engine._sql.ask, list[object]()

    def asked(name: str, now: int | None = None, /, **values: object) -> Ask:
        if name == "queue_lock_keyed":
            locks.append(values)
            # As if the queue had none yet when it was looked at.
            values |= {"queues": "{}"} if len(locks) == 1 else {}
        return ask(name, now, **values)

    monkeypatch.setattr(yard.engine._sql, "ask", asked)
    assert len((await claim(yard, None)).claims) == 1
    assert len(locks) == 2


async def test_a_task_that_changes_while_it_is_chosen_is_left_out_and_asked_for_soon(yard: Yard) -> None:
    await divide(yard)
    await seat(yard, 1)
    await give(yard, {"a": 0})
    tasks = [keyed(yard, "a") for _ in range(3)]
    await yard.engine.put(tasks)
    await claim(yard, 0, free=0)
    with psycopg.connect(yard.dsn) as busy:

        def before(statement: str) -> None:
            if statement == "claim_take_keyed":
                busy.execute("SELECT FROM pitboss.tasks WHERE id = %s FOR UPDATE", [tasks[0].id])

        with traffic(yard.engine, before):
            claimed = await claim(yard, 0, free=2)
    assert [one.id for one in claimed.claims] == [tasks[1].id]
    assert claimed.next_due is not None
    assert claimed.next_due - claimed.claims[0].claimed_at <= 10_000
    assert [one.id for one in (await claim(yard, 0, free=2)).claims] == [tasks[0].id, tasks[2].id]
    await yard.assert_figures()


async def test_a_plain_queue_beside_one_with_partitions_passes_tasks_that_others_are_taking(yard: Yard) -> None:
    await divide(yard)
    tasks = yard.news(4, queue="plain")
    await yard.engine.put(tasks)
    await claim(yard, None, free=0, queues=(WORK, "plain"))
    with psycopg.connect(yard.dsn) as busy:
        busy.execute("SELECT FROM pitboss.tasks WHERE id = %s FOR UPDATE", [tasks[0].id])
        claims = (await claim(yard, None, free=2, queues=(WORK, "plain"))).claims
    assert [one.id for one in claims] == [tasks[1].id, tasks[2].id]


async def test_many_tasks_that_no_slot_can_take_hide_no_others(yard: Yard) -> None:
    """More than are read at first, of each reason why a slot may not take them."""
    await divide(yard, "affinity", max_per_key=1)
    await seat(yard, 2)
    await give(yard, {"a": 0, "b": 1, "c": 1})
    await yard.engine.register([HandlerInfo(name="other")])
    front = [keyed(yard, "a", priority=-3) for _ in range(40)]
    front += [keyed(yard, "b", priority=-2, handler="other") for _ in range(40)]
    front += [keyed(yard, "c", priority=-1, expires_in=1) for _ in range(40)]
    await yard.engine.put(front)
    wanted = [keyed(yard, "c"), keyed(yard, "d")]
    await yard.engine.put(wanted)
    claims = (await claim(yard, 0, free=3, handlers=("job",))).claims
    assert [one.id for one in claims] == [front[0].id, *(task.id for task in wanted)]
    expired = [task for task in await yard.engine.get([task.id for task in front[80:]]) if task is not None]
    assert {task.state for task in expired} == {State.CANCELLED}


@pytest.mark.parametrize(("mode", "options"), [("affinity", {"max_per_key": 1}), ("static", {"on_missing": "steal"})])
async def test_items_of_others_behind_many_that_no_slot_can_take_are_drawn(
    yard: Yard, mode: str, options: dict[str, Any]
) -> None:
    """Those in front are of a key that is full, or of a slot that is there."""
    await divide(yard, mode, **options)
    await seat(yard, 2)
    await give(yard, {"front": 1, "back": 7})
    items = [keyed(yard, "front") for _ in range(1200)]
    back = [keyed(yard, "back"), keyed(yard, "back too")]
    await yard.engine.create_batch(NewBatch(id="b"), [*items, *back])
    # A key that no slot owns is gone through like this only when a sweep has met it.
    await yard.engine.reclaim()
    assert [one.id for one in (await claim(yard, 1)).claims] == [items[0].id]
    assert [one.id for one in (await claim(yard, 0, free=2)).claims] == [one.id for one in back]
    await yard.assert_figures()


async def test_members_are_given_to_own_tasks_though_others_are_in_front(yard: Yard) -> None:
    await divide(yard)
    await seat(yard, 2)
    await give(yard, {"a": 0, "b": 1})
    await yard.engine.declare_pool("p", PoolRules())
    await yard.engine.add_resources("p", [NewResource(name=f"m{number}") for number in range(4)])
    await yard.engine.register([HandlerInfo(name="scarce", queue=WORK, resources="p")])
    tasks = [keyed(yard, key, handler="scarce") for key in "b" * 30 + "a" * 3]
    await yard.engine.put(tasks)
    claims = (await claim(yard, 0, 1, free=2)).claims
    assert [one.id for one in claims] == [tasks[30].id, tasks[31].id, tasks[0].id, tasks[1].id]
    assert len({one.leased.name for one in claims if one.leased}) == 4
    await yard.engine.settle(ends(claims))
    await yard.assert_figures()


async def test_a_key_with_a_character_that_sorts_otherwise_elsewhere_is_found_behind_others(yard: Yard) -> None:
    await divide(yard, "static")
    await seat(yard, 2)
    owned = ["Z", "a", "é", "~", "漢"]
    await give(yard, {"front": 1} | dict.fromkeys(owned, 0))
    await yard.engine.put([keyed(yard, "front", priority=-1) for _ in range(1000)])
    tasks = {key: keyed(yard, key) for key in reversed(owned)}
    await yard.engine.put([task for key in tasks for task in (tasks[key], keyed(yard, key))])
    found = [(await claim(yard, 0)).claims[0].params for _ in range(6)]
    assert found == [to_json({"k": key}) for key in ("Z", "Z", "a", "a", "~", "~")]
    assert len((await claim(yard, 0, free=9)).claims) == 4


async def test_a_store_of_the_schema_before_gets_partitions(postgres_dsn: str) -> None:
    before = {name: text for name, text in Statements("pitboss", "").migrations().items() if name < "0009"}
    task = "0198c1a0-0000-7000-8000-000000000001"
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(b"CREATE SCHEMA pitboss")
        connection.execute(b"CREATE TABLE pitboss.migrations (version bigint PRIMARY KEY, name text NOT NULL)")
        for number, (name, text) in enumerate(before.items(), start=1):
            connection.execute(text.encode(), prepare=False)
            connection.execute("INSERT INTO pitboss.migrations VALUES (%s, %s)", [number, name])
        connection.execute("INSERT INTO pitboss.queues (name) VALUES (%s)", [WORK])
        connection.execute(
            "INSERT INTO pitboss.tasks (id, priority, created_at, state, queue, handler, params)"
            " VALUES (%s, 0, 1, 'pending', %s, 'job', %s)",
            [task, WORK, '{"k":"a"}'],
        )
    async with Yard(postgres_dsn, listen=False) as yard:
        assert [queue.partitions for queue in await yard.engine.queues()] == [None]
        await divide(yard, "static")
        await yard.engine.put([keyed(yard, "a")])
        claimed = await claim(yard, 5, free=9)
        assert ([one.id for one in claimed.claims], claimed.partitioned) == ([task], True)
        assert [one.counts for one in await yard.engine.partitions(WORK)] == [{State.PENDING: 1}]


async def test_a_template_that_is_none_is_refused(yard: Yard) -> None:
    with pytest.raises(InvalidInput):
        await divide(yard, by="{k!r}")
    assert await yard.engine.queues() == []
