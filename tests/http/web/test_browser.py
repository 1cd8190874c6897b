"""The dashboard in a real Chromium: no error on its console, no request to elsewhere, and what its script does."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect, sync_playwright

from pitboss.model.duration import SECOND
from pitboss.model.happening import Kind, happening
from pitboss.model.queue import QueueChange
from tests.http.site import Site
from tests.http.web import lives
from tests.http.web.pages import DETAILS, PAGES, furnish
from tests.servers.browser import ARGUMENTS, find_chromium

pytestmark = pytest.mark.timeout(180)
expect.set_options(timeout=30_000)


class Visitor:
    """A browser that notes every complaint of a page, and every request that would leave this server."""

    def __init__(self, site: Site, page: Page) -> None:
        self.site, self.page = site, page
        self.complaints: list[str] = []
        self.outside: list[str] = []
        page.on(
            "console", lambda told: self.complaints.append(told.text) if told.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.route("**/*", self._inside)

    def open(self, path: str = "") -> Page:
        self.page.goto(f"{self.site.url}/ui{path}")
        return self.page

    def until(self, true: Callable[[], bool], seconds: float = 20) -> None:
        """Wait, and let the browser go on."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "it did not happen in time"
            self.page.wait_for_timeout(50)

    def _inside(self, route: Route) -> None:
        if route.request.url.startswith((self.site.url, "data:")):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    with Site() as site, sync_playwright() as driver:
        site.do(furnish(site.store, site.server.make_id))
        browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        found = Visitor(site, browser.new_context().new_page())
        yield found
        browser.close()
        assert found.complaints == []
        assert found.outside == []


def wide(page: Page) -> Any:
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_pages_are_quiet_and_need_no_sideways_scrolling(visitor: Visitor) -> None:
    for width, height in ((1440, 900), (375, 800)):
        visitor.page.set_viewport_size({"width": width, "height": height})
        for path in (*PAGES, *DETAILS):
            page = visitor.open(path)
            expect(page.locator("#live")).to_be_attached()
            assert wide(page) <= 0, (path, width)


def test_a_change_arrives_and_keeps_what_a_person_selected(visitor: Visitor) -> None:
    page = visitor.open("/queues")
    expect(page.locator("#live")).to_have_text("Live")
    row = page.locator("#queue-media")
    expect(row).not_to_contain_text("Paused")
    page.evaluate("window.kept = document.querySelector('#queue-media')")
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    expect(row).to_contain_text("Paused", timeout=30_000)
    assert page.evaluate("window.kept.isConnected")
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_text("Paused")


def test_an_act_says_how_it_ended_and_shows_it(visitor: Visitor) -> None:
    page = visitor.open("/queues")
    page.get_by_label("Actions for queue media").click()
    page.get_by_label("Reason, if you like").locator("visible=true").fill("deploy")
    page.get_by_role("button", name="Pause media").click()
    expect(page.locator("#toasts")).to_contain_text("Queue media paused")
    expect(page.locator("#queue-media")).to_contain_text("“deploy”")


def test_selected_tasks_are_cancelled_after_a_question(visitor: Visitor) -> None:
    page = visitor.open("/tasks?q=queue:media")
    boxes = page.locator("[name=_pick]")
    expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()
    boxes.nth(0).check()
    boxes.nth(1).check()
    expect(page.locator("[data-picked]")).to_have_text("2 selected")
    page.keyboard.press("Shift+C")
    expect(page.locator("#confirm-what")).to_contain_text("2 selected")
    page.get_by_role("button", name="No").click()
    page.locator("#bulk-cancel").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("tbody .st", has_text="cancelled")).to_have_count(2)


def test_keys_lead_through_the_dashboard(visitor: Visitor) -> None:
    page = visitor.open()
    expect(page.locator("#live")).to_have_text("Live")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url(re.compile("/ui/tasks$"))
    expect(page.locator("#live")).to_have_text("Live")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[name=_pick]").first).to_be_checked()
    page.keyboard.press("/")
    expect(page.locator("#main [data-filter]")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-list li").first).to_be_visible()
    page.locator("#palette-in").fill("queues")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/ui/queues$"))


def test_tabs_of_one_browser_share_one_stream(visitor: Visitor) -> None:
    first = visitor.open("/queues")
    expect(first.locator("#live")).to_have_text("Live")
    others = [first.context.new_page() for _ in range(3)]
    for one in others:
        one.goto(f"{visitor.site.url}/ui/queues")
        expect(one.locator("#live")).to_have_text("Live")
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    for one in (first, *others):
        one.bring_to_front()
        expect(one.locator("#queue-media")).to_contain_text("Paused", timeout=30_000)
    assert visitor.site.dashboard._live.open == 1


# A browser without a window does not hide its tabs.
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_tab_sends_nothing_and_another_one_listens(visitor: Visitor) -> None:
    first = visitor.open("/queues")
    expect(first.locator("#live")).to_have_text("Live")
    second = first.context.new_page()
    second.goto(f"{visitor.site.url}/ui/queues")
    expect(second.locator("#live")).to_have_text("Live")
    sent = list[str]()
    first.evaluate(HIDE, True)
    first.on("request", lambda request: sent.append(request.url))
    visitor.until(lambda: visitor.site.dashboard._live.open == 1)
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    expect(second.locator("#queue-media")).to_contain_text("Paused", timeout=30_000)
    assert sent == []
    second.evaluate(HIDE, True)
    visitor.until(lambda: visitor.site.dashboard._live.open == 0)
    first.evaluate(HIDE, False)
    expect(first.locator("#queue-media")).to_contain_text("Paused", timeout=30_000)
    visitor.until(lambda: visitor.site.dashboard._live.open == 1)


def test_a_dozen_tabs_stay_live_and_another_one_opens_at_once(visitor: Visitor) -> None:
    tabs = [visitor.open("/queues")] + [visitor.page.context.new_page() for _ in range(11)]
    for one in tabs[1:]:
        one.goto(f"{visitor.site.url}/ui/queues")
    began = time.monotonic()
    late = visitor.page.context.new_page()
    late.goto(f"{visitor.site.url}/ui/queues")
    expect(late.locator("#queue-media")).to_be_visible()
    assert time.monotonic() - began < 10, "a request waited for a connection"
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    for one in (*tabs, late):
        expect(one.locator("#queue-media")).to_contain_text("Paused", timeout=30_000)
    assert visitor.site.dashboard._live.open == 1


def test_a_task_like_another_is_enqueued_and_shown(visitor: Visitor) -> None:
    page = visitor.open(f"/tasks/{lives.FAILED}")
    page.get_by_role("button", name="Change and run…").click()
    page.get_by_label("Params (JSON)").fill('{"to": "elsewhere"}')
    page.get_by_label("Tags, with commas").fill("again")
    page.get_by_role("button", name="Enqueue").click()
    page.wait_for_url(lambda url: "/tasks/" in url and lives.FAILED not in url)
    expect(page.locator("main")).to_contain_text('"to": "elsewhere"')
    expect(page.locator(".toast.is-ok")).to_contain_text("Task created successfully")


def test_waiting_tasks_are_changed_from_a_sheet_that_closes(visitor: Visitor) -> None:
    page = visitor.open("/tasks?q=state:pending queue:media")
    page.locator("[name=_pick]").nth(0).check()
    page.locator("[name=_pick]").nth(1).check()
    page.get_by_role("button", name="Priority and tags…").click()
    field = page.get_by_label("Priority, lower runs first").locator("visible=true")
    field.fill("-3")
    field.press("Enter")
    expect(page.locator("#confirm-what")).to_have_text("Change the selected tasks? (2 selected)")
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("#toasts")).to_contain_text("2 tasks changed")
    expect(page.locator("#change-picked")).to_be_hidden()


def test_charts_tell_their_values_and_stay_when_the_page_is_read_again(visitor: Visitor) -> None:
    store = visitor.site.store
    release = happening(
        visitor.site.server.make_id(),
        store.clock.now() - 600 * SECOND,
        Kind.RELEASE_CHANGED,
        "app shop",
        "another release",
        details={"release": "0123456789ab"},
    )
    visitor.site.do(store.record_happenings([release]))
    page = visitor.open("/queues/mail")
    expect(page.locator(".uplot")).to_have_count(4)
    expect(page.locator("#chart-flow > .releases text")).to_have_text("0123456")
    mark, drawn = (page.locator(one).first.bounding_box() for one in ("#chart-flow > .releases", "#chart-flow .u-over"))
    assert mark == drawn
    expect(page.locator(".chart svg").first).to_be_hidden()
    page.evaluate("window.kept = document.querySelector('.uplot')")
    page.locator(".uplot .u-over").first.hover()
    expect(page.locator("#chart-flow .key b").first).not_to_be_empty()
    visitor.site.do(visitor.site.store.change_queue("mail", QueueChange(paused=False, by="ana")))
    expect(page.locator(".headline")).not_to_contain_text("Paused", timeout=30_000)
    expect(page.locator(".uplot")).to_have_count(4)
    assert page.evaluate("window.kept.isConnected")
