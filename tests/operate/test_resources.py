"""Resource pools and members as people read them."""

import msgspec
import pytest

from pitboss.client.waiting import pool_views
from pitboss.model.comparison import noted
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Condition, NewResource, Record, ResourceChange, Want
from pitboss.model.resource_keys import checked_keys, rules_of
from pitboss.operate.documents import member_document, member_page_document, resource_pool_document
from pitboss.operate.pool_rules import limit_resource_pool
from pitboss.operate.resources import (
    change_members,
    find_members,
    find_resource_pool,
    holders_of,
    list_resource_pools,
    neediest,
    read_member,
    read_resource_pool,
)
from tests.operate.bench import Bench

URL = '{"url":"http://ann:geheim@10.0.0.1:80"}'


async def fill(store: Bench) -> None:
    members = [NewResource(name=name, fields=URL, secrets={"token": "sealed"}) for name in ("p1", "p2", "p3")]
    await store.add_resources("proxies", members)
    await store.change_resources("proxies", ["p3"], ResourceChange(enabled=False, reason="not paid"))


async def test_a_pool_with_its_members_and_queues(store: Bench) -> None:
    await fill(store)
    await store.register([HandlerInfo(name="check", queue="checks", resources="proxies")])
    await store.add(store.new("check", queue="checks"), handlers=())
    pool = await read_resource_pool(store, "proxies", store.now)
    assert (pool.queues, pool.shortage, pool.next_at) == (("checks",), None, None)
    assert (pool.count(Condition.READY), pool.count(Condition.DISABLED)) == (2, 1)
    assert [one.name for one in await list_resource_pools(store, store.now)] == ["proxies"]
    assert resource_pool_document(pool)["conditions"] == {"ready": 2, "disabled": 1}


async def test_the_pool_that_needs_most_is_first(store: Bench) -> None:
    await fill(store)
    await store.add_resources("accounts", [NewResource(name=name) for name in ("a1", "a2", "a3", "a4")])
    well, short = sorted(await list_resource_pools(store, store.now), key=lambda one: one.name, reverse=True)
    assert (well.usable, well.scarce, well.back_at) == (2, False, None)
    await store.change_resources("accounts", ["a1", "a2", "a3"], ResourceChange(enabled=False))
    pools = await list_resource_pools(store, store.now)
    assert [(one.name, one.usable, one.scarce) for one in neediest(pools)] == [
        ("accounts", 1, True),
        ("proxies", 2, False),
    ]
    table = store.tables.pools["accounts"]
    for name, seconds in (("a3", 40), ("a4", 20)):
        later = store.now + seconds * SECOND
        record = Record(cooldown_until=later)
        table.write(msgspec.structs.replace(table.all[name], enabled=True, available_at=later, record=record))
    (short,) = [one for one in await list_resource_pools(store, store.now) if one.name == "accounts"]
    assert (short.usable, short.back_at) == (0, store.now + 20 * SECOND)


async def test_a_member_never_shows_a_secret(store: Bench) -> None:
    await fill(store)
    page = await read_member(store, "proxies", "p3", store.now)
    assert (page.reading.condition, page.reading.why, page.held_by) == (Condition.DISABLED, "not paid", ())
    text = str(member_page_document(page))
    assert "geheim" not in text
    assert "sealed" not in text
    assert "'token': '***'" in text


async def test_a_member_that_is_at_fault_is_shown_even_if_it_is_still_used(store: Bench) -> None:
    """The blacklist may have no room for it."""
    await fill(store)
    pool = store.tables.pools["proxies"]
    for name, uses in (("p1", "xx.xx"), ("p2", "....x....")):
        compared = 0
        for use in uses:
            compared = noted(compared, failed=use == "x")
        pool.write(msgspec.structs.replace(pool.all[name], record=Record(compared=compared)))
    bad, good, out = (await read_resource_pool(store, "proxies", store.now)).members
    assert (bad.at_fault, good.at_fault, out.at_fault) == (True, False, False)
    assert (bad.condition, bad.why) == (Condition.READY, "failed 4 of 5 tasks that then succeeded with others")
    assert (good.why, good.evidence) == (None, (1, 9))
    document = member_document(bad)
    assert (document["at_fault"], document["failed_by_comparison"], document["compared"]) == (True, 4, 5)


async def test_members_are_changed_and_removed(store: Bench) -> None:
    await fill(store)
    view = await find_resource_pool(store, "proxies")
    await change_members(store, "proxies", find_members(view, ["p3", "p3"]), ResourceChange(enabled=True))
    assert await change_members(store, "proxies", find_members(view, ["p1", "p2"]), None) == ["p1", "p2"]
    pool = await read_resource_pool(store, "proxies", store.now)
    assert [(one.member.name, one.condition) for one in pool.members] == [("p3", Condition.READY)]


async def test_a_wrong_name_is_refused_with_the_one_that_was_meant(store: Bench) -> None:
    with pytest.raises(NotFound, match="no app has declared one"):
        await find_resource_pool(store, "proxies")
    await fill(store)
    with pytest.raises(NotFound, match="did you mean proxies"):
        await find_resource_pool(store, "proxy")
    view = await find_resource_pool(store, "proxies")
    with pytest.raises(NotFound, match="proxies has no member p9"):
        find_members(view, ["p1", "p9"])


async def test_an_operator_s_limits_are_read_with_who_set_them(store: Bench) -> None:
    declared = rules_of(checked_keys({"per_hour": 50, "min_delay": "2s"}))
    await store.declare_pool("proxies", declared, by="manager h:1")
    limited = await limit_resource_pool(store, "proxies", ["per_hour=20", "concurrency=none"], by="ann@h")
    assert (limited.rules.limits.concurrency, limited.rules.limits.min_delay) == (None, 2 * SECOND)
    pool = await read_resource_pool(store, "proxies", store.now)
    assert [(one.key, one.value, one.source, one.by, one.declared) for one in pool.sources] == [
        ("per_hour", 20, "operator", "ann@h", 50),
        ("min_delay", 2 * SECOND, "declared", "manager h:1", None),
        ("concurrency", "none", "operator", "ann@h", None),
    ]
    first, *_ = resource_pool_document(pool)["set_by"]
    assert (first["key"], first["value"], first["from"], first["declared"]) == ("per_hour", "20", "operator", "50")
    reset = await limit_resource_pool(store, "proxies", [], by="ann@h", reset=True)
    assert (reset.rules, reset.limited) == (declared, None)


@pytest.mark.parametrize(("words", "said"), [(["per_hor=2"], 'write "per_hour"'), (["per_hour"], "per_hour=20")])
async def test_a_limit_that_is_none_is_refused(store: Bench, words: list[str], said: str) -> None:
    await fill(store)
    with pytest.raises(InvalidInput) as caught:
        await limit_resource_pool(store, "proxies", words, by="ann@h")
    assert said in caught.value.fix
    with pytest.raises(NotFound, match="did you mean proxies"):
        await limit_resource_pool(store, "proxis", ["per_hour=2"], by="ann@h")


async def test_who_holds_a_member_is_read_with_it(store: Bench) -> None:
    await fill(store)
    await store.acquire("proxies", Want(), SECOND, lease="l")
    view = await find_resource_pool(store, "proxies")
    assert await holders_of(store, view.members) == {"p1": ()}


async def test_pools_that_do_not_exist_are_left_out(store: Bench) -> None:
    await fill(store)
    assert set(await pool_views(store, {"proxies", "none", None})) == {"proxies"}
    assert await pool_views(object(), {"proxies"}) == {}
