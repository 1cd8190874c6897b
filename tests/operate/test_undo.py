"""Acts that are undone: what was before is written back, unless someone changed it since."""

from typing import Any

import pytest

from pitboss.model.access import AuditEntry
from pitboss.model.batch import BatchStatus, NewBatch, Pause
from pitboss.model.canonical import to_json
from pitboss.model.errors import NotFound, Refused
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from pitboss.model.resource import NewResource, PoolRules, ResourceChange
from pitboss.model.snapshot import PoolFigures, Snapshot
from pitboss.operate.desired_state import pause_pool, pool_values, scale_pool
from pitboss.operate.pool_rules import limit_resource_pool
from pitboss.operate.queues import find_queue
from pitboss.operate.undo import find_undo_offers, find_undoable, undo, undo_offers, undoing, with_before
from tests.operate.bench import GREET, Bench

POOL = Snapshot(pools=(PoolFigures(name="mail", wanted=1, least=1, most=3, generation=6),))


async def audited(store: Bench, act: str, target: str, **details: Any) -> Any:
    """The store for an act, as every face makes it."""
    entry = AuditEntry(id=store.new_id(), who="ann", act=act, target=target, details=to_json(details, what="details"))
    return store.audited(await with_before(store, entry))


async def undone(store: Bench, act: str) -> str:
    """Undo the newest such act; returns the act that this is."""
    entry = next(one for one in await store.audit_log(limit=50) if one.act == act)
    found = await find_undoable(store, entry.id)
    await undo(await audited(store, undoing(found), found.target), found, by="bob")
    return undoing(found)


async def test_a_pause_of_a_queue_is_undone_once(store: Bench) -> None:
    await store.change_queue("mail", QueueChange())
    await (await audited(store, "queues pause", "mail", reason="x")).change_queue("mail", QueueChange(paused=True))
    assert await undone(store, "queues pause") == "queues resume"
    assert not (await find_queue(store, "mail")).paused
    with pytest.raises(Refused, match="any more") as error:
        await undone(store, "queues pause")
    assert "ann did queues resume mail since" in error.value.why


async def test_a_second_pause_changes_nothing_and_cannot_be_undone(store: Bench) -> None:
    await store.change_queue("mail", QueueChange(paused=True))
    await (await audited(store, "queues pause", "mail")).change_queue("mail", QueueChange(paused=True))
    with pytest.raises(Refused, match="cannot be undone"):
        await undone(store, "queues pause")
    with pytest.raises(NotFound):
        await find_undoable(store, store.new_id())


async def test_limits_of_a_queue_are_as_before_and_the_undo_can_be_undone(store: Bench) -> None:
    await store.change_queue("mail", QueueChange(capacity=5, rate=rate("20/min, 2/s")))
    await (await audited(store, "queues limit", "mail")).change_queue(
        "mail", QueueChange(capacity=None, rate=(), max_per_key=3)
    )
    await undone(store, "queues limit")
    before = await find_queue(store, "mail")
    assert (before.capacity, before.rate, before.limited) == (5, rate("20/min, 2/s"), ("capacity", "rate"))
    await undone(store, "queues limit")
    after = await find_queue(store, "mail")
    assert (after.capacity, after.rate, after.max_per_key) == (None, (), 3)


async def test_limits_and_members_of_a_resource_pool_are_as_before(store: Bench) -> None:
    await store.declare_pool("proxies", PoolRules())
    await store.add_resources("proxies", [NewResource(name=f"p{number}") for number in range(3)])
    await limit_resource_pool(store, "proxies", ["per_hour=20", "min_delay=2s"], by="ann")
    changed = await audited(store, "resources limit", "proxies per_hour=50")
    await limit_resource_pool(changed, "proxies", ["per_hour=50", "concurrency=none"], by="ann")
    await undone(store, "resources limit")
    (pool,) = await store.resource_pools()
    assert pool.limited is not None
    assert pool.limited.values == {"per_hour": 20, "min_delay": 2_000_000}
    off = ResourceChange(enabled=False)
    await store.change_resources("proxies", ["p0"], off)
    await (await audited(store, "resource-pools disable", "proxies/p1")).change_resources("proxies", ["p1"], off)
    assert await undone(store, "resource-pools disable") == "resource-pools enable"
    await (await audited(store, "resources disable", "proxies")).change_resources("proxies", ["p1", "p2"], off)
    await undone(store, "resources disable")
    assert [one.enabled for one in await store.resources("proxies")] == [False, True, True]


async def test_size_and_pause_of_a_worker_pool_are_as_before_on_each_host(store: Bench) -> None:
    await store.manager(POOL)
    host = (await store.sessions())[0].info.host
    await scale_pool(store, store.now, "mail", 2, host=host, by="ann")
    await scale_pool(await audited(store, "worker-pools scale", "mail"), store.now, "mail", 4, by="ann")
    assert await pool_values(store, "mail", "size") == {"": 4}
    await undone(store, "worker-pools scale")
    assert await pool_values(store, "mail", "size") == {host: 2}
    paused = await audited(store, "pools pause", "mail")
    await pause_pool(paused, store.now, "mail", paused=True, by="ann", reason="deploy")
    await undone(store, "pools pause")
    assert await pool_values(store, "mail", "paused") == {}
    assert await pool_values(store, "mail", "paused_reason") == {}


async def test_a_paused_batch_waits_again(store: Bench) -> None:
    await store.register([GREET])
    batch = NewBatch(id=store.new_id())
    await store.create_batch(batch, [store.new()])
    await (await audited(store, "batches pause", batch.id)).act_on_batch(batch.id, Pause())
    assert await undone(store, "batches pause") == "batches resume"
    (one,) = await store.batches([batch.id])
    assert one.status in (BatchStatus.QUEUED, BatchStatus.RUNNING)


async def test_only_the_newest_act_on_a_thing_is_offered(store: Bench) -> None:
    for name in ("mail", "other"):
        await store.change_queue(name, QueueChange())
    for capacity in (1, 2):
        changed = await audited(store, "queues limit", "mail")
        await changed.change_queue("mail", QueueChange(capacity=capacity))
    await (await audited(store, "queues pause", "other")).change_queue("other", QueueChange(paused=True))
    log = await store.audit_log(limit=10)
    assert undo_offers(log) == {log[0].id, log[1].id}
    # A filter or a later page shows only the older one of two acts: it is no offer because of that.
    assert await find_undo_offers(store, log[2:]) == set()
    assert await find_undo_offers(store, log[1:]) == {log[1].id}


async def test_members_that_were_changed_since_among_others_are_not_undone(store: Bench) -> None:
    """The undo of one act on many members would enable again the one that someone disabled alone, later."""
    await store.declare_pool("proxies", PoolRules())
    await store.add_resources("proxies", [NewResource(name=f"p{number}") for number in range(3)])
    off = ResourceChange(enabled=False)
    await (await audited(store, "resources disable", "proxies p0 p1")).change_resources("proxies", ["p0", "p1"], off)
    await (await audited(store, "resource-pools disable", "proxies/p2")).change_resources("proxies", ["p2"], off)
    log = await store.audit_log(limit=10)
    assert undo_offers(log) == {one.id for one in log}, "they are about different members"
    await (await audited(store, "resource-pools enable", "proxies")).change_resources(
        "proxies", ["p0", "p1", "p2"], ResourceChange(enabled=True)
    )
    assert undo_offers(await store.audit_log(limit=10)) == set()
    with pytest.raises(Refused, match="any more"):
        await undone(store, "resources disable")
