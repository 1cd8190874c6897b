"""Browsing with a lease, in a real Chromium: one navigation is one use."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.async_api import Browser, async_playwright
from playwright.async_api import Error as BrowserError
from playwright.sync_api import sync_playwright

from pitboss import App, InvalidInput, Lease, Resources
from pitboss.client.lease_browser import Browsing
from pitboss.model.answers import Answers
from pitboss.model.errors import MemberRemoved, StoreUnavailable
from pitboss.model.resource import Record, ResourceOutcome, Shortage
from pitboss.model.states import State
from pitboss.testing.sandbox import sandbox
from tests.servers.browser import ARGUMENTS, find_chromium
from tests.servers.proxy import Request, StandIn, page, refused_port

SITE = "http://site.example/"
HTML = {"Content-Type": "text/html"}
RICH = page('<link rel="icon" href="data:,"><img src="/a.png"><iframe src="/frame"></iframe>', headers=HTML)


def answer(request: Request) -> bytes | None:
    path = request.target.removeprefix(SITE)
    match path:
        case "rich":
            return RICH
        case "moved":
            return page(status=302, headers={"Location": SITE + "plain"})
        case "limited":
            return page("slow down", 429, {"Retry-After": "30", **HTML})
        case "dropped":
            return None
    return page('<link rel="icon" href="data:,">', headers=HTML)


@pytest.fixture
def proxy() -> Iterator[StandIn]:
    with StandIn(answer) as stand_in:
        yield stand_in


async def record_of(pool: Resources, name: str) -> Record:
    (member,) = await pool.amembers(name)
    return member.record


@pytest.mark.fresh_loop(limit=90)
async def test_one_navigation_is_one_use_and_its_answer_is_judged(tmp_path: Path, proxy: StandIn) -> None:
    app = App(f"sqlite:///{tmp_path}/pitboss.db")
    pool = app.resources("proxies", max_failures=100)
    try:
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
            await navigations_are_uses(pool, browser, proxy)
            await answers_are_judged(pool, browser, proxy)
            await a_dead_proxy_is_at_fault(pool, browser)
            await browser.close()
    finally:
        app.close()


async def navigations_are_uses(pool: Resources, browser: Browser, proxy: StandIn) -> None:
    await pool.aadd("p1", {"url": proxy.url, "user": "ann"}, {"password": "hunter22"}, min_delay="300ms")
    async with pool.lease() as lease:
        context = await browser.new_context(proxy=lease.browser_proxy)  # type: ignore[arg-type]
        tab = await context.new_page()
        async with lease.browsing(context):
            for path in ("rich", "moved", "plain"):
                await tab.goto(SITE + path)
        # It has left the page: this is no use.
        await tab.goto(SITE + "after")
        await context.close()
    assert (await record_of(pool, "p1")).uses == 3
    seen = {request.target.removeprefix(SITE): request.at for request in proxy.requests}
    assert {"a.png", "frame"} <= set(seen), "loaded, and no uses"
    assert seen["moved"] - seen["rich"] >= 0.3
    await pool.aremove("p1")


async def answers_are_judged(pool: Resources, browser: Browser, proxy: StandIn) -> None:
    for path, outcome in (("limited", "rate_limited"), ("dropped", "task_error"), ("plain", "ok")):
        await pool.aadd(path, {"url": proxy.url})
        async with pool.lease() as lease:
            tab = await browser.new_page(proxy=lease.browser_proxy)  # type: ignore[arg-type]
            async with lease.browsing(tab):
                with suppress(BrowserError):
                    await tab.goto(SITE + path)
            await tab.close()
        assert (await record_of(pool, path)).last_outcome == outcome
        await pool.aremove(path)


async def a_dead_proxy_is_at_fault(pool: Resources, browser: Browser) -> None:
    await pool.aadd("dead", {"url": f"http://127.0.0.1:{refused_port()}"})
    async with pool.lease() as lease:
        tab = await browser.new_page(proxy=lease.browser_proxy)  # type: ignore[arg-type]
        with pytest.raises(BrowserError) as caught:
            await tab.goto(SITE)
        report = pool.report_on(lease, caught.value)
        await tab.close()
    assert report is not None
    assert (report.outcome, report.destination) == (ResourceOutcome.RESOURCE_ERROR, "site.example")


def test_a_navigation_that_the_limits_forbid_sends_the_task_to_another_member(proxy: StandIn) -> None:
    app = App("sqlite:///never-opened.db")
    pool = app.resources("proxies")
    runs: list[str] = []

    @app.task
    def look(proxy: Lease = pool.lease()) -> None:
        runs.append(proxy.name)
        if len(runs) > 1:
            return
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
            tab = browser.new_page(proxy=proxy.browser_proxy)  # type: ignore[arg-type]
            with proxy.browsing(tab, wait=0):
                tab.goto(SITE + "plain")
                box.store.use = no_use  # type: ignore[method-assign]
                tab.goto(SITE + "plain")

    async def no_use(*args: Any, **options: Any) -> Shortage:
        return Shortage(pool="proxies", why="all away")

    with sandbox(app) as box:
        pool.add("p1", {"url": proxy.url})
        handle = look.enqueue()
        box.drain()
        task = handle.task()
    assert (len(runs), task.state, task.attempts) == (2, State.COMPLETED, 1)
    assert len(proxy.requests) == 1


def test_only_pages_and_contexts_are_browsed_with() -> None:
    app = App("sqlite:///never-opened.db")
    pool = app.resources("proxies")
    with sandbox(app):
        pool.add("p1")
        with pool.lease() as lease, pytest.raises(InvalidInput, match="neither a page nor a context"):
            lease.browsing("a page")


class _Page:
    """A page, as far as `Browsing` knows it; and a route and a request of it."""

    route = unroute = on = remove_listener = None
    url, redirected_from = SITE, None
    frame = SimpleNamespace(parent_frame=None)
    done: str | None = None

    def is_navigation_request(self) -> bool:
        return True

    async def abort(self, code: str) -> None:
        self.done = code


@pytest.mark.parametrize("error", [MemberRemoved("proxies/p1"), StoreUnavailable("away"), RuntimeError("odd")])
async def test_a_navigation_that_cannot_be_counted_is_aborted(error: Exception) -> None:
    class Held:
        answers = Answers()

        async def grant_request(self, wait: object) -> None:
            raise error

    tab, lease = _Page(), Held()
    with suppress(RuntimeError):
        await Browsing(lease, tab, None)._counted(tab, tab)  # type: ignore[arg-type]
    assert tab.done == "blockedbyclient"
    assert lease.answers.unsent is (None if isinstance(error, RuntimeError) else error)
