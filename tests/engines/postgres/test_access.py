"""Keys, the audit log and remembered requests on PostgreSQL: several writers at once, and acts that are undone."""

import asyncio

import pytest

from pitboss.model.access import ApiKey, AuditEntry, Role
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource
from tests.engines.postgres.traffic import traffic
from tests.engines.postgres.yard import Yard

pytestmark = pytest.mark.fresh_loop(limit=60)

ENTRY = AuditEntry(id="e1", who="ann", act="test")


def _key(number: int, name: str = "ci") -> ApiKey:
    return ApiKey(id=f"k{number}", name=name, digest="d", roles=(Role.WORKER,))


async def test_handlers_that_are_registered_at_once_get_numbers_of_their_own(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(5)]
    await asyncio.gather(
        *(engine.register([HandlerInfo(name=f"h{n}.{i}") for i in range(4)]) for n, engine in enumerate(engines))
    )
    assert sorted(handler.number for handler in await yard.engine.handlers()) == list(range(1, 26))


async def test_registering_the_same_again_writes_nothing(yard: Yard) -> None:
    writes = (
        "SELECT n_tup_ins + n_tup_upd FROM pg_stat_all_tables WHERE schemaname = 'pitboss' AND relname = 'handlers'"
    )
    handlers = [HandlerInfo(name=f"h{number}") for number in range(9)]
    await yard.engine.register(handlers)
    await yard.flush_statistics()
    before = await yard.count(writes)
    await yard.engine.register(handlers)
    await yard.flush_statistics()
    assert await yard.count(writes) == before


async def test_of_keys_that_are_added_at_once_one_gets_the_name(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(5)]
    answers = await asyncio.gather(
        *(engine.add_key(_key(number)) for number, engine in enumerate(engines)), return_exceptions=True
    )
    assert [type(answer) for answer in answers if answer is not None] == [InvalidInput] * 5
    assert len(await yard.engine.api_keys()) == 1


async def test_the_id_of_a_revoked_key_does_not_open_again(yard: Yard) -> None:
    await yard.engine.add_key(_key(1))
    revoked = await yard.engine.revoke_key("k1")
    with pytest.raises(InvalidInput, match="k1"):
        await yard.engine.add_key(_key(1))
    assert await yard.engine.api_keys() == [revoked]


async def test_requests_with_one_key_at_once_get_the_same_ids(yard: Yard) -> None:
    engines = [yard.engine, *await yard.open_many(5)]
    for turn in range(5):
        answers = await asyncio.gather(
            *(engine.remember(f"k{turn}", "body", [str(number)]) for number, engine in enumerate(engines))
        )
        assert len(set(answers)) == 1


async def test_an_act_that_is_undone_stores_no_entry(postgres_dsn: str) -> None:
    def fail(name: str) -> None:
        if name == "add_resources.commit":
            raise RuntimeError(name)

    async with Yard(postgres_dsn, failpoint=fail) as yard:
        with pytest.raises(RuntimeError):
            await yard.engine.audited(ENTRY).add_resources("p", [NewResource(name="m")])
        assert await yard.engine.resource_pools() == []
        assert await yard.engine.audit_log() == []


async def test_an_entry_that_cannot_be_stored_undoes_its_act(yard: Yard) -> None:
    audited = yard.engine.audited(AuditEntry(id="e1", who="a\0n", act="test"))
    for act in (
        audited.change_queue("new", QueueChange(paused=True)),
        audited.register([HandlerInfo(name="new")]),
        audited.forget(["job"]),
        audited.wish("key", "1"),
        audited.declare_pool("new", None),
        audited.change_lane("new", 2),
        audited.add_key(_key(1)),
    ):
        with pytest.raises(InvalidInput):
            await act
    assert await yard.engine.queues() == []
    assert [handler.name for handler in await yard.engine.handlers()] == ["job"]
    assert await yard.engine.wishes() == []
    assert await yard.engine.resource_pools() == []
    assert await yard.engine.lanes() == []
    assert await yard.engine.api_keys() == []


async def test_an_act_that_is_not_audited_costs_nothing_more(yard: Yard) -> None:
    with traffic(yard.engine) as sent:
        await yard.engine.change_queue("q", QueueChange(paused=True))
    assert (sent.statements, sent.round_trips) == (["queue_create", "queue_lock", "queue_write", "queue_list"], 3)
