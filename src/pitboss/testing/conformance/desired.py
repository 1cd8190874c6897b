"""Desired state: what operators want, in versions that only grow."""

from pitboss.model.queue import Wish
from pitboss.testing.conformance.bench import Bench


class DesiredState:
    async def test_nothing_is_wanted_at_first(self, bench: Bench) -> None:
        assert await bench.store.wishes() == []

    async def test_a_wish_is_kept_as_it_is(self, bench: Bench) -> None:
        version = await bench.store.wish("pool.a", '{"size":3,"who":"ä"}', by="ann")
        assert await bench.store.wishes() == [
            Wish(key="pool.a", value='{"size":3,"who":"ä"}', version=version, by="ann")
        ]

    async def test_versions_grow_with_every_wish(self, bench: Bench) -> None:
        versions = [await bench.store.wish(key, "1") for key in ("a", "b", "a", "a")]
        assert versions == sorted(set(versions))
        assert versions[0] > 0

    async def test_a_newer_wish_replaces_the_older(self, bench: Bench) -> None:
        await bench.store.wish("a", "1", by="ann")
        version = await bench.store.wish("a", "2")
        assert await bench.store.wishes() == [Wish(key="a", value="2", version=version)]

    async def test_wishes_come_in_order_of_their_last_change(self, bench: Bench) -> None:
        for key in ("a", "b", "c", "a"):
            await bench.store.wish(key, "0")
        assert [wish.key for wish in await bench.store.wishes()] == ["b", "c", "a"]

    async def test_only_what_changed_since_is_told(self, bench: Bench) -> None:
        first = await bench.store.wish("a", "1")
        second = await bench.store.wish("b", "2")
        assert [wish.key for wish in await bench.store.wishes(first)] == ["b"]
        assert await bench.store.wishes(second) == []

    async def test_a_withdrawn_wish_is_told_as_none(self, bench: Bench) -> None:
        first = await bench.store.wish("a", "1")
        second = await bench.store.wish("a", None, by="bob")
        assert second > first
        assert await bench.store.wishes(first) == [Wish(key="a", value=None, version=second, by="bob")]
