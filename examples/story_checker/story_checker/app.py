"""The story checker on Pitboss: a pool of proxies with sessions, the check, and one batch of checks per niche."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pitboss import App, Fail, Lease, Retry, TimedOutWaiting, backoff, ctx
from pitboss.client.batch_handle import BatchHandle
from pitboss.client.client import Client
from pitboss.engines.protocol import Queues
from pitboss.model.duration import span
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from pitboss.model.resource import Report, ResourceOutcome
from story_checker.checker import (
    Banned,
    Browser,
    Manners,
    NotWelcome,
    ProxyTrouble,
    SessionExpired,
    TooManyRequests,
    UnknownProfile,
)
from story_checker.database import Database, StoryResult
from story_checker.settings import SystemSettings, database_path

QUEUE = LANE = "stories"
database = Database(database_path())
settings = SystemSettings.load(database)
app = App()

# One worker runs one check at a time, so `max_threads` checks run at once.
app.pool("checkers", workers=settings.max_threads, concurrency=1)

# A member is a proxy with an account at the site. Its secrets are both passwords and the session cookie.
proxies = app.resources(
    "proxies",
    rate=f"{settings.proxy_hourly_limit}/{settings.hour:g}s",
    min_delay=settings.proxy_min_delay,
    concurrency=1,
    strategy="least_recently_used",
    max_failures=settings.proxy_max_failures,
    cooldown=settings.proxy_cooldown,
    blacklist=settings.proxy_blacklist,
    # The site counts arrivals and we count leases; the time between the two varies.
    guard=settings.proxy_guard,
)


@dataclass(frozen=True)
class Checked:
    """What a check found. No story is a result, not a failure."""

    profile: str
    has_story: bool
    stories: int


class Tools:
    """What a worker keeps between checks: connections through each proxy, and the rules of robots.txt."""

    def __init__(self, system: SystemSettings) -> None:
        self.system = system
        self.manners = Manners(system.site, timeout=system.proxy_test_timeout)
        self._browsers: dict[str, Browser] = {}

    def browser(self, proxy: Lease) -> Browser:
        found = self._browsers.get(proxy.url)
        if found is None:
            found = self._browsers[proxy.url] = browser_for(self.system, proxy)
        return found

    async def close(self) -> None:
        for browser in self._browsers.values():
            await browser.close()


@app.worker_state(max_age="1h")
async def tools() -> AsyncIterator[Tools]:
    kept = Tools(SystemSettings.load(database))
    try:
        await kept.manners.read()
        yield kept
    finally:
        await kept.close()


@proxies.session("cookie", valid_for=settings.session_life)
async def log_in(proxy: Lease) -> str:
    """Log in just before the session is needed. This spends the use that came with the lease."""
    browser = browser_for(SystemSettings.load(database), proxy)
    await counted(proxy)
    note_request(proxy)
    try:
        return await browser.log_in(proxy["account"], proxy.secret("account_password"))
    finally:
        await browser.close()


@proxies.valid
def not_refused(proxy: Lease) -> bool:
    """A cookie is valid until the site refuses it; asking the site each time would cost a request."""
    return not database.is_refused(proxy.name, proxy.secret("cookie"))


def judged(error: BaseException) -> Report | None:
    """What an error of a check or a login says about the proxy. None: use the default rules."""
    match error:
        case TooManyRequests(retry_after=seconds):
            pause = None if seconds is None else span(seconds)
            return Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=pause, error=str(error))
        case Banned():
            return Report(outcome=ResourceOutcome.BLOCKED, error=str(error))
        case ProxyTrouble():
            return Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=str(error))
    return None


proxies.judge(judged)


@app.task(queue=QUEUE, max_attempts=settings.max_retries, backoff=backoff("100ms", cap="1s"), timeout="2m")
async def check_story(profile: str, proxy: Lease = proxies.lease(), kit: Tools = tools()) -> Checked:
    """Check whether a profile has a story. Up to three attempts, each through another proxy."""
    with telling(proxy, profile):
        await kit.manners.check(f"/stories/{profile}")
        await counted(proxy)
        note_request(proxy)
        stories = await kit.browser(proxy).stories(profile, proxy.secret("cookie"))
    await asyncio.to_thread(keep, ctx.id, profile, ctx.task.batch, stories, proxy.name)
    return Checked(profile, stories > 0, stories)


@app.task(queue="stories-done")
def batch_ended(batch: str, status: str) -> dict[str, object]:
    """Runs once when a batch has ended: deletes expired results and returns the counts."""
    database.prune()
    found = database.results(batch)
    return {"batch": batch, "status": status, "checked": len(found), "stories": sum(one.has_story for one in found)}


def apply_settings() -> None:
    """Set `profiles_per_minute` as the queue's rate. It applies to all workers together, on top of other limits."""
    system = SystemSettings.load(database)
    windows = rate(f"{system.profiles_per_minute}/{round(1000 * system.minute)}ms")

    async def limit(client: Client) -> None:
        assert isinstance(client.store, Queues)
        await client.store.change_queue(QUEUE, QueueChange(rate=windows))

    app.ask(limit, limit=15, what="limiting the queue")


def create_batch(niche: str, size: int | None = None) -> BatchHandle:
    """Add a batch of a niche's profiles to the end of the queue; profiles that waited longest come first."""
    names = database.usernames(niche, size or SystemSettings.load(database).default_batch_size)
    calls = [{"profile": name} for name in names]
    return check_story.batch(calls, name=niche, lane=LANE, data={"niche": niche}, on_complete=batch_ended)


def browser_for(system: SystemSettings, proxy: Lease) -> Browser:
    return Browser(system.site, proxy.url, timeout=system.proxy_test_timeout)


def note_request(proxy: Lease) -> None:
    database.note_request(proxy.name)


def keep(task: str, profile: str, batch: str | None, stories: int, proxy: str) -> StoryResult:
    """Store a result under the id of its task, so that a second run overwrites the first."""
    system, now = SystemSettings.load(database), time.time()
    expires = now + system.story_retention_hours * system.hour
    result = StoryResult(task, profile, batch, stories, proxy, now, expires)
    database.record(result)
    return result


@contextmanager
def telling(proxy: Lease, profile: str) -> Iterator[None]:
    """Translate errors that are not about the proxy; `judged` handles the others."""
    try:
        yield
    except SessionExpired as error:
        # Not the proxy's fault: it logs in again before its next use.
        database.refuse(proxy.name, proxy.secret("cookie"))
        proxy.ok()
        raise Retry(str(error), after="0s") from error
    except UnknownProfile as error:
        database.suspend(profile)
        proxy.ok()
        raise Fail(str(error), category="unknown_profile") from error
    except NotWelcome as error:
        raise Fail(str(error), category="robots") from error


async def counted(proxy: Lease) -> None:
    """Count a use of the proxy. Call this right before each request.

    The use that came with the lease is for the first request. If a login spent it, or if it is too old for the limits
    to hold at the site, this asks for another use. If none is available soon, the check goes to another proxy.
    """
    if not logged_in_just_now(proxy) and not grown_old(proxy):
        return
    try:
        await proxy.use(wait=patience())
    except TimedOutWaiting as error:
        raise TooManyRequests(0) from error


def logged_in_just_now(proxy: Lease) -> bool:
    """Whether the cookie was made for this lease."""
    return proxy.leased.valid_until == proxy.leased.leased_at + span(settings.session_life)


def grown_old(proxy: Lease) -> bool:
    """Whether more than half of the guard has passed since the lease, so that the request might arrive too late."""
    return 2 * (time.time_ns() // 1000 - proxy.leased.leased_at) > span(settings.proxy_guard)


def patience() -> float:
    """How long a worker waits for another use of its proxy: a little longer than the gap between two requests."""
    return 2 * settings.proxy_min_delay + 1.0
