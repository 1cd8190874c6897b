"""Batches are moved with the mouse and with keys, and acts are undone, in a real Chromium."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import NewBatch
from pitboss.model.limits import rate
from pitboss.model.queue import Queue, QueueChange
from pitboss.model.task import NewTask
from tests.http.web.batches import BATCHES
from tests.http.web.test_browser import Visitor, chromium, visitor, wide

__all__ = ["chromium", "visitor"]
pytestmark = [pytest.mark.timeout(180), pytest.mark.parametrize("visitor", ["sqlite"], indirect=True)]


async def more(store: FullStore, make_id: Any, lane: str = "night") -> str:
    new = NewBatch(id=make_id(), name="third", lane=lane)
    await store.create_batch(new, [NewTask(id=make_id(), handler="send", queue="scrape")])
    return new.id


def line(visitor: Visitor) -> list[str]:
    found = visitor.site.do(visitor.site.store.batches(limit=50))
    return [one.id for one in sorted(found, key=lambda one: one.position or 0) if one.position]


def test_queued_batches_are_moved_by_dragging_and_by_keys(visitor: Visitor) -> None:
    first, second, third = (
        BATCHES[1],
        BATCHES[2],
        visitor.site.do(more(visitor.site.store, visitor.site.server.make_id)),
    )
    page = visitor.open("/batches")
    row = {name: page.locator(f"#batch-{name}") for name in (first, second, third)}
    expect(row[first]).to_have_attribute("draggable", "true")
    assert line(visitor) == [first, second, third]
    row[third].locator(".place").drag_to(row[first].locator(".place"))
    visitor.until(lambda: line(visitor) == [third, first, second])
    expect(page.locator("tr[draggable] .place").first).to_contain_text("1")
    expect(page.locator("tr[draggable]").first).to_have_id(f"batch-{third}")
    row[third].locator(".place").drag_to(row[second].locator(".place"))
    visitor.until(lambda: line(visitor) == [first, second, third])
    expect(page.locator("tr[draggable]").first).to_have_id(f"batch-{first}")
    row[second].focus()
    page.keyboard.press("Alt+ArrowUp")
    visitor.until(lambda: line(visitor) == [second, first, third])
    expect(row[second]).to_be_focused()
    page.keyboard.press("Alt+ArrowDown")
    visitor.until(lambda: line(visitor) == [first, second, third])


def test_a_batch_is_not_dropped_where_what_follows_is_not_shown(visitor: Visitor) -> None:
    """Dropped on the last row of a list that is cut, it went to the end of the lane, behind batches that no one saw."""
    make_id = visitor.site.server.make_id
    for _ in range(20):
        visitor.site.do(more(visitor.site.store, make_id))
    before = line(visitor)
    # High enough that nothing scrolls while it is dragged.
    visitor.page.set_viewport_size({"width": 1440, "height": 2400})
    page = visitor.open(f"/batches/{BATCHES[1]}")
    rows = page.locator("tr[draggable]")
    last = rows.count() - 1
    shown = [(rows.nth(place).get_attribute("id") or "")[6:] for place in (0, last - 1, last)]
    assert shown[0] == before[0]
    assert shown[2] != before[-1]
    rows.first.locator(".place").drag_to(rows.last.locator(".place"))
    rows.first.locator(".place").drag_to(rows.nth(last - 1).locator(".place"))
    visitor.until(lambda: line(visitor) != before)
    rest = before[1:]
    place = rest.index(shown[2])
    assert line(visitor) == [*rest[:place], shown[0], *rest[place:]]


def queue(visitor: Visitor, name: str) -> Queue:
    return next(one for one in visitor.site.do(visitor.site.store.queues()) if one.name == name)


def refused(visitor: Visitor) -> Any:
    """What a refused act says. The browser itself notes the answer on its console."""
    found = visitor.page.locator("#toasts .is-bad")
    expect(found).to_be_visible()
    assert all("409 (Conflict)" in one for one in visitor.complaints)
    visitor.complaints.clear()
    return found


def set_capacity(page: Page, value: str) -> None:
    page.locator("#limit-capacity summary").click()
    page.locator("#limit-capacity").get_by_role("textbox").fill(value)
    page.locator("#limit-capacity").get_by_role("button", name="Set").click()


def test_a_pause_is_undone_from_its_message(visitor: Visitor) -> None:
    page = visitor.open("/queues/scrape")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Pause scrape").click()
    undo = page.locator("#toasts").get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    assert queue(visitor, "scrape").paused
    undo.click()
    expect(page.locator("#toasts")).to_contain_text("Undone: the pause of queue")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not queue(visitor, "scrape").paused
    # What was undone is not offered again.
    expect(undo).to_have_count(0)


def test_a_limit_is_undone_from_its_message_unless_it_was_changed_since(visitor: Visitor) -> None:
    page = visitor.open("/queues/media")
    set_capacity(page, "7")
    undo = page.locator("#toasts").get_by_role("button", name="Undo")
    undo.click()
    expect(page.locator("#toasts")).to_contain_text("Undone: the change of limits of queue")
    found = queue(visitor, "media")
    assert (found.capacity, found.rate) == (50, rate("10/s"))
    page.reload()
    set_capacity(page, "8")
    expect(undo).to_be_visible()
    # Meanwhile someone else sets another one.
    other = page.context.new_page()
    other.goto(page.url)
    set_capacity(other, "9")
    expect(other.locator("#toasts .is-ok")).to_be_visible()
    undo.click()
    expect(refused(visitor)).to_contain_text("did queues limit media since")
    assert queue(visitor, "media").capacity == 9


def test_the_last_act_on_a_thing_is_undone_from_the_activity(visitor: Visitor) -> None:
    page = visitor.open("/queues/media")
    set_capacity(page, "7")
    expect(page.locator("#toasts .is-ok")).to_be_visible()
    page.reload()
    set_capacity(page, "8")
    expect(page.locator("#toasts .is-ok")).to_be_visible()
    visitor.open("/activity?kind=act&what=media")
    acts = page.locator("#main tbody tr", has_text="queues limit")
    expect(acts).to_have_count(2)
    expect(acts.nth(1).get_by_role("button", name="Undo")).to_have_count(0)
    acts.nth(0).get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts .is-ok")).to_contain_text("Undone: the change of limits of queue")
    assert queue(visitor, "media").capacity == 7
    # The undo is an act too.
    expect(acts).to_have_count(3)
    acts.nth(0).get_by_role("button", name="Undo").click()
    visitor.until(lambda: queue(visitor, "media").capacity == 8)


def test_a_pause_of_updates_holds_on_the_next_page(visitor: Visitor) -> None:
    page = visitor.open("/queues")
    sign, row = page.locator("#live"), page.locator("#queue-media")
    expect(sign).to_have_text("Live")
    page.keyboard.press("p")
    expect(sign).to_have_text("Updates paused")
    page.get_by_role("link", name="Tasks").first.click()
    expect(page).to_have_url(re.compile("/ui/tasks$"))
    expect(sign).to_have_text("Updates paused")
    # It is said on a phone too, where the sign is a dot otherwise.
    page.set_viewport_size({"width": 375, "height": 800})
    expect(sign.locator("span")).to_be_visible()
    assert wide(page) <= 0
    visitor.open("/queues")
    expect(sign).to_have_text("Updates paused")
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    # Another tab of the same browser goes on, and its update shows that the stream brought the change.
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#live")).to_have_text("Live")
    expect(other.locator("#queue-media")).to_contain_text("Paused")
    expect(row).not_to_contain_text("Paused")
    page.keyboard.press("p")
    expect(row).to_contain_text("Paused")
    expect(sign).to_have_text("Live")
