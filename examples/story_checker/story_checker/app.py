"""The story checker on Pitboss: a pool of proxies with their sessions, the check, and a batch of checks per niche."""

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

# One worker does one check at a time: `max_threads` is how many run at once.
app.pool("checkers", workers=settings.max_threads, concurrency=1)

# A member is a proxy with its account at the site. Its secrets: the proxy's password, the account's, and the cookie.
proxies = app.resources(
    "proxies",
    rate=f"{settings.proxy_hourly_limit}/{settings.hour:g}s",
    min_delay=settings.proxy_min_delay,
    concurrency=1,
    strategy="least_recently_used",
    max_failures=settings.proxy_max_failures,
    cooldown=settings.proxy_cooldown,
    blacklist=settings.proxy_blacklist,
    # The site counts arrivals, we count leases: the way between them takes longer at one time than at another.
    guard=settings.proxy_guard,
)


@dataclass(frozen=True)
class Checked:
    """What a check found. No story is a result, not a failure."""

    profile: str
    has_story: bool
    stories: int


class Tools:
    """What a worker keeps from one check to the next: connections through each proxy, and the site's manners."""

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
    """A new session, just before it is needed. The use that came with the lease is spent on it."""
    browser = browser_for(SystemSettings.load(database), proxy)
    await counted(proxy)
    note_request(proxy)
    try:
        return await browser.log_in(proxy["account"], proxy.secret("account_password"))
    finally:
        await browser.close()


@proxies.valid
def not_refused(proxy: Lease) -> bool:
    """A cookie is good until the site says otherwise; asking the site each time would cost a request."""
    return not database.is_refused(proxy.name, proxy.secret("cookie"))


def judged(error: BaseException) -> Report | None:
    """What an error of a check or a login says about the proxy. None: what is usual."""
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
    """Ask the site whether a profile has a story. Up to three attempts, each through another proxy."""
    with telling(proxy, profile):
        await kit.manners.check(f"/stories/{profile}")
        await counted(proxy)
        note_request(proxy)
        stories = await kit.browser(proxy).stories(profile, proxy.secret("cookie"))
    await asyncio.to_thread(keep, ctx.id, profile, ctx.task.batch, stories, proxy.name)
    return Checked(profile, stories > 0, stories)


@app.task(queue="stories-done")
def batch_ended(batch: str, status: str) -> dict[str, object]:
    """Runs once when a batch has ended: forgets results that are past their time, and says what there is."""
    database.prune()
    found = database.results(batch)
    return {"batch": batch, "status": status, "checked": len(found), "stories": sum(one.has_story for one in found)}


def apply_settings() -> None:
    """Bring `profiles_per_minute` to the queue. It holds beside the limits of the proxies, for all workers together."""
    system = SystemSettings.load(database)
    windows = rate(f"{system.profiles_per_minute}/{round(1000 * system.minute)}ms")

    async def limit(client: Client) -> None:
        assert isinstance(client.store, Queues)
        await client.store.change_queue(QUEUE, QueueChange(rate=windows))

    app.ask(limit, limit=15, what="limiting the queue")


def create_batch(niche: str, size: int | None = None) -> BatchHandle:
    """A batch of a niche's profiles, those first that were not checked for longest, at the end of the queue."""
    names = database.usernames(niche, size or SystemSettings.load(database).default_batch_size)
    calls = [{"profile": name} for name in names]
    return check_story.batch(calls, name=niche, lane=LANE, data={"niche": niche}, on_complete=batch_ended)


def browser_for(system: SystemSettings, proxy: Lease) -> Browser:
    return Browser(system.site, proxy.url, timeout=system.proxy_test_timeout)


def note_request(proxy: Lease) -> None:
    database.note_request(proxy.name)


def keep(task: str, profile: str, batch: str | None, stories: int, proxy: str) -> StoryResult:
    """Write a result. The id of its task makes a second run of it overwrite the first."""
    system, now = SystemSettings.load(database), time.time()
    expires = now + system.story_retention_hours * system.hour
    result = StoryResult(task, profile, batch, stories, proxy, now, expires)
    database.record(result)
    return result


@contextmanager
def telling(proxy: Lease, profile: str) -> Iterator[None]:
    """Says what errors mean that are not about the proxy; about those, `judged` has said it."""
    try:
        yield
    except SessionExpired as error:
        # Not the proxy's fault: before its next use it logs in again.
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
    """Call right before a request: it is one that the limits count, and count from about now.

    The use that came with the lease is for the first one. If that went into a login, or is too old by now for the
    limits to hold at the site, another one is asked for; if there is none soon, the check goes to another proxy.
    """
    if not logged_in_just_now(proxy) and not grown_old(proxy):
        return
    try:
        await proxy.use(wait=patience())
    except TimedOutWaiting as error:
        raise TooManyRequests(0) from error


def logged_in_just_now(proxy: Lease) -> bool:
    """Whether the cookie was made for this very lease: its time runs from there."""
    return proxy.leased.valid_until == proxy.leased.leased_at + span(settings.session_life)


def grown_old(proxy: Lease) -> bool:
    """Whether so much of the guard has passed since the lease that the request might arrive behind it."""
    return 2 * (time.time_ns() // 1000 - proxy.leased.leased_at) > span(settings.proxy_guard)


def patience() -> float:
    """How long a worker waits for a proxy that it holds: a little longer than the gap between two requests."""
    return 2 * settings.proxy_min_delay + 1.0
