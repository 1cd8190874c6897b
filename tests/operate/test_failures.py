"""Failures by cause."""

import pytest

from pitboss.model.errors import NotFound
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.queue import HandlerInfo
from pitboss.operate import failures
from pitboss.operate.documents import failure_group_document
from pitboss.operate.failures import NO_FINGERPRINT, failure_groups, find_failure_cause, find_failure_group
from tests.operate.bench import GREET, Bench


async def test_failures_with_one_cause_are_one_group(store: Bench) -> None:
    await store.add(store.new(), store.new(queue="mail"))
    await store.run_all(fail="no route\nto host")
    store.time.advance("1m")
    (newest,) = await store.add(store.new())
    await store.run_all(fail="no route")
    found = await failure_groups(store, EVERYTHING)
    (group,) = found.groups
    assert (group.count, group.error, group.handler, group.sample) == (3, "OSError", "greet", newest)
    assert group.last - group.first == 60_000_000
    assert not found.more
    assert [one.count for one in (await failure_groups(store, by(queue="mail"))).groups] == [1]
    assert failure_group_document(group)["last"].endswith("Z")


async def test_only_the_newest_failures_are_read(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_READ", 2)
    monkeypatch.setattr(failures, "_PAGE", 2)
    await store.add(*(store.new() for _ in range(3)))
    await store.run_all(fail="no")
    found = await failure_groups(store, by(queue="default"))
    assert (found.groups[0].count, found.more) == (2, True)
    # Without a filter the store counts its groups itself: all groups, and of each no more than that.
    found = await failure_groups(store, EVERYTHING)
    assert (found.groups[0].count, found.groups[0].more, found.more) == (2, True, False)


async def test_groups_of_a_filter_are_those_of_the_store(store: Bench) -> None:
    await store.add(store.new())
    await store.run_all(fail="no")
    for text in ("fingerprint:abcd*", "task:greet", "state:failed", "-fingerprint:ff*", "queue:default", "age:>=0s"):
        assert len((await failure_groups(store, parsed(text))).groups) == 1, text
    for text in ("fingerprint:ff*", "-task:greet", "state:completed", "queue:mail", "finished:>1h"):
        assert (await failure_groups(store, parsed(text))).groups == (), text


async def test_a_large_group_says_that_there_are_more(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.add(*(store.new() for _ in range(3)))
    await store.run_all(fail="no")
    monkeypatch.setattr(failures, "MOST_READ", 2)
    (group,) = (await failure_groups(store, EVERYTHING)).groups
    assert (group.count, group.more) == (2, True)
    assert failure_group_document(group)["more"] is True


async def test_a_group_by_the_beginning_of_its_fingerprint(store: Bench) -> None:
    await store.add(store.new())
    await store.run_all(fail="no")
    assert (await find_failure_group(store, "abcd")).fingerprint == "abcd1234"
    with pytest.raises(NotFound, match="ffff"):
        await find_failure_group(store, "ffff")


async def test_a_cause_has_the_groups_of_all_handlers(store: Bench) -> None:
    await store.add(store.new(), store.new("other"), store.new(), handlers=(GREET, HandlerInfo(name="other")))
    await store.run_all(fail="no")
    found = await find_failure_cause(store, "abcd")
    assert ([one.handler for one in found.groups], found.count, found.more) == (["greet", "other"], 3, False)
    assert found.filter == "state:failed fingerprint:abcd1234"
    assert found.groups[0].filter == "state:failed fingerprint:abcd1234 task:greet"
    for text, count in ((found.filter, 3), (found.groups[0].filter, 2)):
        assert (await store.count(parsed(text))).number == count
    with pytest.raises(NotFound, match="without a fingerprint"):
        await find_failure_cause(store, NO_FINGERPRINT)
