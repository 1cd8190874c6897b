"""The dashboard in a real Chromium: no error on its console, no request to elsewhere, and what its script does."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from pitboss.http.gate import GateRules
from pitboss.model.duration import SECOND
from pitboss.model.happening import Kind, happening
from pitboss.model.queue import QueueChange
from pitboss.model.task import NewTask
from tests.http.site import Site
from tests.http.web import lives
from tests.http.web.pages import DETAILS, PAGES, furnish
from tests.servers.browser import ARGUMENTS, find_chromium

pytestmark = pytest.mark.timeout(180)
expect.set_options(timeout=30_000)
# This machine under a name that is no localhost: a page there is no secure context.
NAME = "jobs.lan"
OTHER_NAME = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
on_stores = pytest.mark.parametrize("visitor", ["sqlite", "postgres"], indirect=True)
on_all = pytest.mark.parametrize("visitor", ["memory", "sqlite", "postgres"], indirect=True)


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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=[*ARGUMENTS, OTHER_NAME])
        yield browser
        browser.close()


@pytest.fixture
def visitor(request: pytest.FixtureRequest, chromium: Browser, tmp_path: Path) -> Iterator[Visitor]:
    """A browser before a furnished store, in memory unless the test is run on other engines."""
    kind = getattr(request, "param", "memory")
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/store.db"}
    url = urls.get(kind) or request.getfixturevalue("postgres_dsn")
    with Site(url=url) as site:
        site.do(furnish(site.store, site.server.make_id))
        context = chromium.new_context()
        found = Visitor(site, context.new_page())
        yield found
        context.close()
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


@on_stores
def test_pages_are_quiet_on_every_engine(visitor: Visitor) -> None:
    for path in (*PAGES, *DETAILS):
        answer = visitor.page.goto(f"{visitor.site.url}/ui{path}")
        assert answer is not None
        assert answer.status == 200, path
        expect(visitor.page.locator("#live")).to_be_attached()


@on_all
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
    expect(page.locator("#live")).to_have_text("Updates paused")


@on_all
def test_an_act_says_how_it_ended_and_shows_it(visitor: Visitor) -> None:
    page = visitor.open("/queues")
    page.get_by_label("Actions for queue media").click()
    page.get_by_label("Reason, if you like").locator("visible=true").fill("deploy")
    page.get_by_role("button", name="Pause media").click()
    expect(page.locator("#toasts")).to_contain_text("Queue media paused")
    expect(page.locator("#queue-media")).to_contain_text("“deploy”")
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts")).to_have_text("Undone: the pause of queue media")


@on_all
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


def test_a_list_waits_while_rows_are_selected_and_the_act_is_for_all_of_them(visitor: Visitor) -> None:
    page = visitor.open("/tasks?q=state:pending")
    boxes = page.locator("[name=_pick]")
    chosen = [boxes.nth(place).input_value() for place in (0, 1)]
    boxes.nth(0).check()
    boxes.nth(1).check()
    expect(page.locator("#live")).to_have_text("Updates paused")
    expect(page.locator(".bulk-picked")).to_contain_text("The list is paused meanwhile.")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#live")).to_have_text("Live")
    # More than a page of newer tasks.
    make_id = visitor.site.server.make_id
    newer = [NewTask(id=make_id(), handler="send", queue="newer") for _ in range(60)]
    visitor.site.do(visitor.site.store.put(newer))
    expect(other.locator("tbody tr", has_text="newer").nth(40)).to_be_visible()
    expect(page.locator("[data-picked]")).to_have_text("2 selected")
    # Not even an act on another row moves them.
    page.get_by_label(f"Actions for task {boxes.nth(2).input_value()[-12:]}").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("#toasts")).not_to_be_empty()
    expect(page.locator("[data-picked]")).to_have_text("2 selected")
    page.locator("#bulk-cancel").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("#toasts")).to_contain_text("2 tasks cancelled")
    expect(page.locator("tbody tr", has_text="newer").nth(40)).to_be_visible()
    expect(page.locator("#live")).to_have_text("Live")
    states = [task.state.value for task in visitor.site.do(visitor.site.store.get(chosen)) if task is not None]
    assert states == ["cancelled", "cancelled"]


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


def test_a_change_while_no_tab_listened_is_shown_by_all_of_them(visitor: Visitor) -> None:
    first = visitor.open("/queues")
    expect(first.locator("#live")).to_have_text("Live")
    second = first.context.new_page()
    second.goto(first.url)
    expect(second.locator("#live")).to_have_text("Live")
    for one in (first, second):
        one.evaluate(HIDE, True)
    visitor.until(lambda: visitor.site.dashboard._live.open == 0)
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    for one in (first, second):
        one.evaluate(HIDE, False)
    # Before they would look for themselves, after 25 seconds of silence.
    for one in (first, second):
        expect(one.locator("#queue-media")).to_contain_text("Paused", timeout=15_000)


def test_tabs_share_one_stream_also_without_a_secure_context(chromium: Browser) -> None:
    with Site(GateRules(local=True, hosts=(NAME,))) as site:
        site.do(furnish(site.store, site.server.make_id))
        context = chromium.new_context()
        address = f"http://{NAME}:{site.port}/ui/queues"
        context.add_cookies([{"name": "pitboss_key", "value": site.key("viewer"), "url": address}])
        tabs = [context.new_page() for _ in range(3)]
        for one in tabs:
            one.goto(address)
            expect(one.locator("#live")).to_have_text("Live")
        assert tabs[0].evaluate("isSecureContext") is False
        site.do(site.store.change_queue("media", QueueChange(paused=True, by="ana")))
        for one in tabs:
            expect(one.locator("#queue-media")).to_contain_text("Paused", timeout=20_000)
        assert site.dashboard._live.open == 1
        context.close()


NOTHING_KEPT = """Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("", "SecurityError"); },
})"""


def test_a_browser_that_keeps_nothing_for_sites_looks_every_ten_seconds_and_says_so(visitor: Visitor) -> None:
    visitor.page.add_init_script(NOTHING_KEPT)
    page = visitor.open("/queues")
    expect(page.locator("#live")).to_have_text("every 10 s")
    visitor.site.do(visitor.site.store.change_queue("media", QueueChange(paused=True, by="ana")))
    expect(page.locator("#queue-media")).to_contain_text("Paused", timeout=20_000)
    assert visitor.site.dashboard._live.open == 0


# What a browser knows of how it opened a page, in milliseconds.
OPENED = """() => {
  const [took] = performance.getEntriesByType("navigation");
  return { waited: took.requestStart - took.fetchStart, whole: took.domContentLoadedEventEnd };
}"""


def test_a_dozen_tabs_stay_live_and_another_one_opens_at_once(visitor: Visitor) -> None:
    tabs = [visitor.open("/queues")] + [visitor.page.context.new_page() for _ in range(11)]
    for one in tabs[1:]:
        one.goto(f"{visitor.site.url}/ui/queues")
    for one in tabs:
        expect(one.locator("#live")).to_have_text("Live")
    visitor.until(lambda: visitor.site.dashboard._live.open == 1)
    late = visitor.page.context.new_page()
    late.goto(f"{visitor.site.url}/ui/queues")
    expect(late.locator("#queue-media")).to_be_visible()
    opened = late.evaluate(OPENED)
    # A browser has six connections to a server: with a stream in each tab there would be none left.
    assert opened["waited"] < 200
    assert opened["whole"] < 2000
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
    told = page.locator(".toast.is-ok")
    expect(told).to_contain_text("Task created successfully")
    # It is not in what is replaced when the page is read again.
    expect(page.locator("#main .toast")).to_have_count(0)


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
