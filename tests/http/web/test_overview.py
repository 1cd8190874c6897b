"""The overview of a store that is degraded, of one that is well, and of an empty one; and the log behind it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pitboss.model.access import AuditEntry
from pitboss.model.batch import NewBatch
from pitboss.model.happening import Happening
from pitboss.model.queue import HandlerInfo
from pitboss.operate.activity import search_activity
from tests.http.site import Site
from tests.http.web import scenes
from tests.http.web.scenes import Scene
from tests.http.web.test_ten_faults import verdict

SECTIONS = ("Queues", "Workers", "Failures", "Schedules", "Resources", "Batches", "Happenings")


def built(make: Callable[[], Awaitable[Scene]]) -> Scene:
    async def build() -> Scene:
        return await make()

    return asyncio.run(build())


def overview(scene: Scene) -> str:
    with Site(wrap=lambda _: scene.store) as site:
        return site.http.get("/ui").text


@pytest.fixture(scope="module")
def degraded() -> Scene:
    return built(scenes.degraded)


def test_a_degraded_store_has_every_section(degraded: Scene) -> None:
    text = overview(degraded)
    for name in SECTIONS:
        assert f">{name}</h2>" in text
    assert "31 of 40 proxies are away: 24 cooling, 5 blacklisted, 2 disabled" in verdict(text).said
    assert 'aria-label="proxies: 9 of 40 usable"' in text
    assert text.count('class="w w-') == 22
    assert "catalogue-full" in text
    assert "HTTPStatusError" in text
    assert 'id="odd-3-media-4"' in text
    # What a person did can be undone where it is told.
    assert "<b>ana</b>: queues pause <b>mail</b>" in text
    assert "Undo" in text


def test_a_healthy_store_asks_for_nothing() -> None:
    text = overview(built(scenes.healthy))
    found = verdict(text)
    assert "is-ok" in found.kind
    assert "Nothing to do. Schedule refresh-prices runs" in found.said
    assert "all queues" in found.said
    assert not any("/ui/act/" in lead for lead in found.leads)


def test_an_empty_store_shows_the_first_steps() -> None:
    text = overview(built(scenes.nothing))
    assert "is-none" in verdict(text).kind
    assert "pitboss init demo" in text
    assert text.count('class="empty"') == 4


def test_activity_is_searched_by_person_and_text(degraded: Scene) -> None:
    async def search() -> None:
        by_ana, rest = await search_activity(degraded.store, who="ana")
        assert [one.act for one in by_ana if isinstance(one, AuditEntry)] == ["queues pause"]
        assert rest is None
        crashed, _ = await search_activity(degraded.store, what="MEMORY limit")
        assert [one.subject for one in crashed if isinstance(one, Happening)] == ["worker media-4"]
        first, following = await search_activity(degraded.store, limit=1)
        second, _ = await search_activity(degraded.store, limit=1, before=following)
        assert first[0].id > second[0].id
        assert (await search_activity(degraded.store, who="zed"))[0] == []

    asyncio.run(search())


@pytest.mark.parametrize(("others", "said"), [(0, "only items of batches"), (1, "since it was due")])
def test_no_page_says_that_nothing_waits_while_something_does(others: int, said: str) -> None:
    """Regression: with ten items of a batch at the head of a queue, nothing waited."""

    async def make() -> Scene:
        store = (scene := Scene()).store
        await store.register([HandlerInfo(name="job", queue="work")])
        items = [store.new("job", queue="work") for _ in range(12)]
        await store.create_batch(NewBatch(id=store.new_id()), items)
        await store.lose(12, "job")
        await store.put([store.new("job", queue="work") for _ in range(others)])
        store.time.advance(3600)
        return scene

    scene = built(make)
    with Site(wrap=lambda _: scene.store) as site:
        pages = [site.http.get(path).text for path in ("/ui", "/ui/queues/work")]
    assert not any("nothing waits" in text for text in pages)
    assert said in pages[1]
