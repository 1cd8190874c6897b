"""Scrapes one target: page by page, through one proxy, in the worker's browser."""

import asyncio
import time
from collections import OrderedDict
from urllib.parse import urlencode, urlsplit
from urllib.robotparser import RobotFileParser

from playwright.async_api import Browser, BrowserContext, Page, ProxySettings, Response

from pitboss import Blocked, Fail, Lease, ctx
from scrape_yp.database import Database, Progress
from scrape_yp.settings import Settings
from scrape_yp.yp_filter import Listing, Target, YPFilter

USER_AGENT = "StateScraper/1.0 (+https://example.org/state-scraper)"
_OK = 200
_REFUSALS = (403, 429)
_ROBOTS_LAST = 3600.0
_KEPT_PAGES = 8
_CAPTCHA = "form#captcha, iframe[src*='captcha'], .g-recaptcha, .h-captcha, #cf-challenge"
_READ_LISTINGS = "shown => shown.map(one => JSON.parse(one.dataset.listing))"


class TargetRefused(Exception):
    """The site did not show the page. Pitboss has read the answer: 429 rests the proxy, 403 counts against it."""


class WorkerBrowser:
    """The browser of a worker. It keeps one page for each of the proxies that it used last: a proxy and its cookies
    belong together, and a new page costs more than a visit."""

    def __init__(self, browser: Browser, settings: Settings) -> None:
        self._browser, self.settings = browser, settings
        self._pages: OrderedDict[str, tuple[BrowserContext, Page]] = OrderedDict()
        self._robots: RobotFileParser | None = None
        self._read_at = 0.0

    async def page(self, proxy: Lease) -> Page:
        if proxy.name not in self._pages:
            context = await self._browser.new_context(proxy=_playwright(proxy), user_agent=USER_AGENT)
            self._pages[proxy.name] = (context, await context.new_page())
        self._pages.move_to_end(proxy.name)
        if len(self._pages) > _KEPT_PAGES:
            _, (oldest, _) = self._pages.popitem(last=False)
            await oldest.close()
        return self._pages[proxy.name][1]

    async def check_allowed(self, url: str, proxy: Lease) -> None:
        """Obey robots.txt, which is read again every hour, as a use of the proxy like any other request."""
        if self._robots is None or time.monotonic() - self._read_at > _ROBOTS_LAST:
            self._robots, self._read_at = await self._read_robots(proxy), time.monotonic()
        if not self._robots.can_fetch(USER_AGENT, url):
            raise Fail(f"robots.txt does not allow {urlsplit(url).path}", category="robots")

    async def _read_robots(self, proxy: Lease) -> RobotFileParser:
        async with proxy.http(headers={"User-Agent": USER_AGENT}) as client:
            answer = await client.get(f"{self.settings.site_url}/robots.txt")
        if answer.status_code in _REFUSALS or answer.is_server_error:
            raise TargetRefused(f"robots.txt: status {answer.status_code}")
        rules = RobotFileParser()
        rules.parse(answer.text.splitlines() if answer.status_code == _OK else [])
        return rules


async def crawl_single_target(
    target: Target, browser: WorkerBrowser, proxy: Lease, database: Database, yp_filter: YPFilter
) -> Progress:
    """Store all pages of a target from the first one that is not stored yet: a retry goes on where the last attempt
    stopped."""
    progress = await asyncio.to_thread(database.progress, target)
    page = await browser.page(proxy)
    async with proxy.browsing(page):
        while (number := progress.next_page) is not None:
            url = search_url(browser.settings.site_url, target, number)
            await browser.check_allowed(url, proxy)
            shown, has_more = await _read(page, url, browser.settings.page_timeout_seconds)
            found = [(listing, yp_filter.check(listing, target)) for listing in shown]
            next_page = number + 1 if has_more and number < browser.settings.max_pages else None
            progress = await asyncio.to_thread(database.store_page, target, number, found, next_page)
            ctx.progress(100 * number // browser.settings.max_pages, f"page {number} is stored")
    return progress


def search_url(site: str, target: Target, page: int) -> str:
    place = f"{target.city}, {target.state_id}"
    return f"{site}/search?{urlencode({'category': target.category, 'place': place, 'page': page})}"


async def _read(page: Page, url: str, timeout: float) -> tuple[list[Listing], bool]:
    """The listings of a page, and whether there is a next one."""
    _check(await page.goto(url, timeout=1000 * timeout))
    if await page.locator(_CAPTCHA).count():
        raise Blocked("captcha")
    shown = await page.locator(".result").evaluate_all(_READ_LISTINGS)
    return [Listing.read(one) for one in shown], await page.locator("a.next").count() > 0


def _check(answer: Response | None) -> None:
    if answer is None or answer.status != _OK:
        raise TargetRefused("no answer" if answer is None else f"status {answer.status}")


def _playwright(proxy: Lease) -> ProxySettings:
    known = proxy.browser_proxy
    return ProxySettings(server=known["server"], username=known.get("username"), password=known.get("password"))
