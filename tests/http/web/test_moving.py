"""Batches are moved with the mouse and with keys, and an act is undone from its message, in a real Chromium."""

from typing import Any

import pytest
from playwright.sync_api import expect

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import NewBatch
from pitboss.model.task import NewTask
from tests.http.web.batches import BATCHES
from tests.http.web.test_browser import Visitor, visitor

__all__ = ["visitor"]
pytestmark = pytest.mark.timeout(180)


async def more(store: FullStore, make_id: Any) -> str:
    new = NewBatch(id=make_id(), name="third", lane="night")
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


def test_an_act_is_undone_from_its_message(visitor: Visitor) -> None:
    page = visitor.open("/queues/scrape")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Pause scrape").click()
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts")).to_contain_text("Undone: queues pause")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
