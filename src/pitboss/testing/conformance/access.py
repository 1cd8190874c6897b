"""Keys of the HTTP API, the audit log, and requests that may be repeated."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from pitboss.engines.protocol import FullStore
from pitboss.model.access import REMEMBERED_FOR, ApiKey, AuditEntry, Role, digest_of
from pitboss.model.batch import Pause
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, ResourceChange
from pitboss.model.task import TaskChange
from pitboss.testing.conformance.bench import Bench

KEY = ApiKey(id="k1", name="ci", digest=digest_of("secret"), roles=(Role.PRODUCER, Role.WORKER), created_by="ann")


class ApiKeys:
    async def test_keys_are_kept(self, bench: Bench) -> None:
        await bench.store.add_key(KEY)
        bench.clock.advance(1)
        other = replace(KEY, id="k2", name="web", roles=(Role.VIEWER,), created_by=None)
        await bench.store.add_key(other)
        began = bench.now - 1_000_000
        assert await bench.store.api_keys() == [replace(KEY, created_at=began), replace(other, created_at=bench.now)]

    async def test_a_revoked_key_stays_in_the_list_and_opens_nothing(self, bench: Bench) -> None:
        await bench.store.add_key(KEY)
        bench.clock.advance(1)
        revoked = await bench.store.revoke_key("k1")
        assert revoked is not None
        assert revoked.revoked_at == bench.now
        assert not revoked.opened_by("secret")
        bench.clock.advance(1)
        assert await bench.store.revoke_key("k1") == revoked
        assert await bench.store.api_keys() == [revoked]
        assert await bench.store.revoke_key("unknown") is None

    async def test_a_name_means_one_key(self, bench: Bench) -> None:
        await bench.store.add_key(KEY)
        with pytest.raises(InvalidInput, match="ci"):
            await bench.store.add_key(replace(KEY, id="k2"))
        await bench.store.revoke_key("k1")
        await bench.store.add_key(replace(KEY, id="k2"))
        assert [key.id for key in await bench.store.api_keys()] == ["k1", "k2"]


Act = Callable[[FullStore, Bench], Awaitable[object]]
ACTS: dict[str, Act] = {
    "cancel": lambda store, _: store.cancel(EVERYTHING),
    "retry": lambda store, _: store.retry(EVERYTHING),
    "prune": lambda store, _: store.prune(EVERYTHING),
    "change_queue": lambda store, _: store.change_queue("default", QueueChange(paused=True)),
    "register": lambda store, _: store.register([HandlerInfo(name="new")]),
    "forget": lambda store, _: store.forget(["job"]),
    "wish": lambda store, _: store.wish("pool.size", "3"),
    "change_lane": lambda store, _: store.change_lane("default", 2),
    "change_tasks": lambda store, _: store.change_tasks(EVERYTHING, TaskChange(priority=1)),
    "declare_pool": lambda store, _: store.declare_pool("proxies", None),
    "limit_pool": lambda store, _: store.limit_pool("known", {"concurrency": 1}),
    "add_resources": lambda store, _: store.add_resources("proxies", [NewResource(name="a")]),
    "change_resources": lambda store, _: store.change_resources("known", None, ResourceChange(enabled=False)),
    "add_key": lambda store, _: store.add_key(KEY),
    "revoke_key": lambda store, _: store.revoke_key("k1"),
    "silence_alert": lambda store, _: store.silence_alert("disk", 1),
}


class Auditing:
    @pytest.mark.parametrize("act", ACTS)
    async def test_an_act_stores_its_entry(self, bench: Bench, act: str) -> None:
        await bench.store.declare_pool("known", None)
        await bench.store.add_resources("known", [NewResource(name="one")])
        entry = _entry(bench, act)
        await ACTS[act](bench.store.audited(entry), bench)
        assert await bench.store.audit_log() == [replace(entry, at=bench.now)]

    async def test_an_act_on_a_batch_stores_its_entry(self, bench: Bench) -> None:
        batch = await bench.create(bench.new())
        entry = _entry(bench, "pause")
        await bench.store.audited(entry).act_on_batch(batch.id, Pause())
        assert [one.id for one in await bench.store.audit_log()] == [entry.id]

    async def test_several_acts_store_it_once_at_the_first(self, bench: Bench) -> None:
        entry = _entry(bench, "retry")
        store = bench.store.audited(entry)
        began = bench.now
        for _ in range(3):
            await store.retry(EVERYTHING)
            bench.clock.advance(1)
        assert await bench.store.audit_log() == [replace(entry, at=began)]

    async def test_an_act_that_fails_stores_nothing(self, bench: Bench) -> None:
        with pytest.raises(NotFound):
            await bench.store.audited(_entry(bench, "pause")).act_on_batch(bench.ids(), Pause())
        await bench.store.add_key(KEY)
        with pytest.raises(InvalidInput):
            await bench.store.audited(_entry(bench, "keys")).add_key(replace(KEY, id="k2"))
        assert await bench.store.audit_log() == []

    async def test_the_first_entry_is_kept(self, bench: Bench) -> None:
        first, second = _entry(bench, "first"), _entry(bench, "second")
        await bench.store.audited(first).audited(second).wish("key", "1")
        assert [one.act for one in await bench.store.audit_log()] == ["first"]

    async def test_the_engine_itself_and_reading_store_nothing(self, bench: Bench) -> None:
        audited = bench.store.audited(_entry(bench, "look"))
        await audited.queues()
        await audited.find(EVERYTHING)
        await audited.api_keys()
        await bench.store.change_queue("default", QueueChange(paused=True))
        assert await bench.store.audit_log() == []

    async def test_the_log_is_read_newest_first_in_pages(self, bench: Bench) -> None:
        entries = [_entry(bench, f"act{number}") for number in range(5)]
        for entry in entries:
            await bench.store.audited(entry).wish("key", "1")
        page = await bench.store.audit_log(limit=2)
        assert [entry.act for entry in page] == ["act4", "act3"]
        rest = await bench.store.audit_log(limit=10, before=page[-1].id)
        assert [entry.act for entry in rest] == ["act2", "act1", "act0"]


class RepeatedRequests:
    async def test_a_key_keeps_what_it_was_first_used_for(self, bench: Bench) -> None:
        first = await bench.store.remember("k", "body", ["1", "2"])
        assert (first.body, first.ids) == ("body", ("1", "2"))
        bench.clock.advance(1)
        assert await bench.store.remember("k", "other", ["3"]) == first
        assert (await bench.store.remember("l", "other", ["3"])).ids == ("3",)

    async def test_after_a_day_it_is_free(self, bench: Bench) -> None:
        await bench.store.remember("k", "body", ["1"])
        bench.clock.advance_to(bench.now + REMEMBERED_FOR - 1)
        await bench.store.reclaim()
        assert (await bench.store.remember("k", "other", ["2"])).ids == ("1",)
        bench.clock.advance_to(bench.now + 1)
        assert (await bench.store.remember("k", "other", ["2"])).ids == ("2",)


def _entry(bench: Bench, act: str) -> AuditEntry:
    return AuditEntry(
        id=bench.ids(), who="ann", act=act, target="default", details='{"limit":1}', source="http 127.0.0.1"
    )


__all__ = ["ApiKeys", "Auditing", "RepeatedRequests"]
