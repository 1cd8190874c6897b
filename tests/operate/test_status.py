"""The status of a store: one reading for the verdict, the findings and the page."""

import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.finding import Grade
from pitboss.model.queue import QueueChange
from pitboss.model.resource import NewResource, ResourceChange
from pitboss.model.snapshot import Snapshot
from pitboss.model.states import State
from pitboss.operate import status
from pitboss.operate.status import check_keys, check_store, read_status
from pitboss.operate.status_documents import status_document
from tests.operate.bench import Bench


async def test_a_new_store_needs_a_manager(store: Bench) -> None:
    found = await read_status(store, store.now)
    assert (found.verdict.cause, found.next, found.queues) == ("no-manager", "pitboss up", ())


async def test_the_next_step_follows_the_verdict(store: Bench) -> None:
    await store.add(store.new(), store.new(queue="mail"))
    await store.manager()
    assert (await read_status(store, store.now)).verdict.cause == "healthy"
    await store.change_queue("mail", QueueChange(paused=True))
    assert (await read_status(store, store.now)).next == "pitboss queues resume mail"
    await store.add(store.new("nothing"))
    found = await read_status(store, store.now)
    assert (found.verdict.cause, found.next) == ("held", "pitboss tasks list state:held")
    assert "nothing" in found.verdict.sentence


async def test_tasks_that_wait_too_long_are_late_but_items_of_batches_are_not(store: Bench) -> None:
    await store.manager()
    await store.create_batch(NewBatch(id=store.new_id()), [store.new()])
    await store.add(store.new(queue="other"))
    store.time.advance("6m")
    found = await read_status(store, store.now)
    assert found.verdict.sentence == "1 task waited longer than 5m: there is more work than workers."


async def test_failures_of_the_last_hour_only(store: Bench) -> None:
    await store.add(*(store.new() for _ in range(12)))
    await store.run_all(fail="no")
    await store.manager()
    assert (await read_status(store, store.now)).verdict.cause == "failing"
    store.time.advance("61m")
    await store.manager()
    assert (await read_status(store, store.now)).verdict.cause == "healthy"


async def test_a_busy_store_is_judged_by_a_shorter_time_and_by_its_flows(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: completed tasks that are kept for less than an hour were not in the share that failed."""
    monkeypatch.setattr(status, "_COUNTED", 20)
    for number, age in ((40, 1800), (30, 300), (15, 0)):
        await store.add(*(store.new() for _ in range(number)))
        await store.run_all(fail="no" if age == 0 else None)
        store.time.advance(age or 5)
    await store.prune(by(state=State.COMPLETED), limit=1000)
    assert (await status.read_store(store, store.now)).ended == (60 * SECOND, 15, 15)
    monkeypatch.setattr(status, "_COUNTED", 10_000)
    assert (await status.read_store(store, store.now)).ended == (3600 * SECOND, 85, 15)


async def test_beyond_the_tasks_that_are_read_the_most_frequent_handler_gets_the_rest(store: Bench) -> None:
    await store.manager()
    await store.add(*(store.new("lost") for _ in range(600)), *(store.new("rare") for _ in range(3)))
    found = await read_status(store, store.now)
    assert found.verdict.sentence.startswith("603 tasks held because no worker knows the handler: lost, rare")


async def test_unfinished_batches_and_resource_pools_are_part_of_it(store: Bench) -> None:
    await store.create_batch(NewBatch(id=store.new_id(), name="a"), [store.new()])
    await store.create_batch(NewBatch(id=store.new_id(), name="empty"), [])
    await store.add_resources("proxies", [NewResource(name="p1")])
    found = await read_status(store, store.now)
    assert [one.batch.name for one in found.batches] == ["a"]
    assert [pool.name for pool in found.resource_pools] == ["proxies"]
    document = status_document(found)
    assert document["batches"][0]["waiting"] == "no manager is running on this store"
    assert document["resources"] == [{"name": "proxies", "members": 1, "stages": {"ready": 1}, "next_at": None}]


async def test_doctor_and_status_have_the_same_findings(store: Bench) -> None:
    await store.add(store.new())
    await store.manager(Snapshot(version="1.0"))
    status = await read_status(store, store.now, "2.0")
    durability, *findings = await check_store(store, store.time, "2.0")
    assert durability.check == "durability"
    assert findings == list(status.findings)
    assert {one.check for one in status.findings if one.grade is Grade.WARNING} == {"releases"}


async def test_missing_keys_are_found_without_a_manager_and_by_its_word_with_one(store: Bench) -> None:
    members = [
        NewResource(name="p1", secrets={"password": "s1.aaaaaaaa.x", "cookie": "s1.bbbbbbbb.x"}),
        NewResource(name="p2", secrets={"password": "s1.aaaaaaaa.x"}),
        NewResource(name="off", secrets={"password": "s1.cccccccc.x"}),
    ]
    await store.add_resources("proxies", members)
    await store.add_resources("open", [NewResource(name="o1")])
    await store.change_resources("proxies", ["off"], ResourceChange(enabled=False))
    (found,) = await check_keys(store, {"bbbbbbbb"}, "the file keys", store.now)
    assert (found.check, found.grade) == ("keys", Grade.PROBLEM)
    assert "the file keys lacks the key aaaaaaaa (2 members of proxies)" in found.what
    (found,) = await check_keys(store, {"aaaaaaaa", "bbbbbbbb"}, "the file keys", store.now)
    assert found.grade is Grade.OK
    await store.manager()
    assert await check_keys(store, (), "the file keys", store.now) == []
