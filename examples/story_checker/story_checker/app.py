"""The story checker on Pitboss: a pool of proxies with sessions, the check, and one batch of checks per niche."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pitboss import App, Fail, Lease, Retry, Snooze, TimedOutWaiting, backoff, ctx
from pitboss.client.batch_handle import BatchHandle
from pitboss.client.client import Client
from pitboss.engines.protocol import Queues
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from pitboss.model.resource import Report, ResourceOutcome
from pitboss.model.states import State
from story_checker.checker import (
    Banned,
    Browser,
    Manners,
    NotWelcome,
    ProxyTrouble,
    SessionExpired,
    UnknownProfile,
)
from story_checker.database import Database, StoryResult
from story_checker.settings import SystemSettings, database_path
from story_checker.upkeep import Notice, batch_notice, deliver, due_niches, taken_out

QUEUE = LANE = "stories"
UPKEEP = "upkeep"
_MANY = 1000
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
)


@dataclass(frozen=True)
class Checked:
    """What a check found. No story is a result, not a failure."""

    profile: str
    has_story: bool
    stories: int


class Tools:
    """What a worker keeps between checks: the rules of robots.txt. Pitboss keeps the connections."""

    def __init__(self, system: SystemSettings) -> None:
        self.system = system
        self.manners = Manners(system.site, timeout=system.proxy_test_timeout)


@app.worker_state(max_age="1h")
async def tools() -> AsyncIterator[Tools]:
    kept = Tools(SystemSettings.load(database))
    await kept.manners.read()
    yield kept


@proxies.session("cookie", valid_for=settings.session_life)
async def log_in(proxy: Lease) -> str:
    """Log in just before the session is needed. The login is a use of the proxy like any request."""
    browser = browser_for(SystemSettings.load(database), proxy)
    with noted(proxy):
        return await browser.log_in(proxy["account"], proxy.secret("account_password"))


@proxies.valid
def not_refused(proxy: Lease) -> bool:
    """A cookie is valid until the site refuses it; asking the site each time would cost a request."""
    return not database.is_refused(proxy.name, proxy.secret("cookie"))


def judged(error: BaseException) -> Report | None:
    """What an error of a check or a login says about the proxy. None: Pitboss judges by the answer itself."""
    match error:
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
        with noted(proxy):
            stories = await browser_for(kit.system, proxy).stories(profile, proxy.secret("cookie"))
    await asyncio.to_thread(keep, ctx.id, profile, ctx.task.batch, stories, proxy.name)
    return Checked(profile, stories > 0, stories)


@app.task(queue=UPKEEP)
def batch_ended(batch: str, status: str) -> dict[str, object]:
    """Runs once when a batch has ended: deletes expired results, and tells the operator its figures."""
    database.prune()
    found, told = database.results(batch), app.batch_handle(batch).batch()
    failed = told.counts.get(State.FAILED, 0)
    figures = {"status": status, "profiles": told.total, "checked": len(found), "failed": failed}
    figures["stories"] = sum(one.has_story for one in found)
    if SystemSettings.load(database).notifications_enabled:
        ctx.enqueue(notify, **batch_notice(f"batch-{batch}-{ctx.id}", told.name, figures)._asdict())
    return {"batch": batch, **figures}


@app.task(queue=UPKEEP, max_attempts=20, backoff=backoff("1s", cap="10m"))
async def notify(key: str, subject: str, body: str) -> str:
    """Tell the operator. A task, so that it survives a crash and is tried again while the webhook does not answer."""
    return await deliver(Notice(key, subject, body), SystemSettings.load(database), database)


@app.task(queue=UPKEEP, max_attempts=1000, backoff=backoff("1s", cap="1m"))
def tend() -> None:
    """Runs when `pitboss up` starts, and then every minute: `on_start` in pitboss.toml, one at a time."""
    system = SystemSettings.load(database)
    apply_settings()
    for proxy, moment, notice in taken_out(proxies.members(), database.told()):
        if system.notifications_enabled:
            notify.enqueue(**notice._asdict())
        database.note_told(proxy, moment)
    if system.auto_trigger_enabled:
        trigger(system)
    raise Snooze(max(1.0, system.minute), "until the next minute")


def trigger(system: SystemSettings) -> list[BatchHandle]:
    """Create a batch for each niche that has none open, unless the last one is younger than `min_trigger_interval`."""
    interval = system.min_trigger_interval * system.minute
    niches = [niche for niche in database.niches() if database.usernames(niche, 1)]
    return [create_batch(niche) for niche in due_niches(niches, app.batches(limit=_MANY), time.time(), interval)]


def apply_settings() -> None:
    """Set `profiles_per_minute` as the queue's rate. It applies to all workers together, on top of other limits."""
    system = SystemSettings.load(database)
    windows = rate(f"{system.profiles_per_minute}/{round(1000 * system.minute)}ms")

    async def limit(client: Client) -> None:
        assert isinstance(client.store, Queues)
        if not any(queue.name == QUEUE and queue.rate == windows for queue in await client.store.queues()):
            await client.store.change_queue(QUEUE, QueueChange(rate=windows))

    app.ask(limit, limit=15, what="limiting the queue")


def create_batch(niche: str, size: int | None = None) -> BatchHandle:
    """Add a batch of a niche's profiles to the end of the queue; profiles that waited longest come first."""
    apply_settings()
    names = database.usernames(niche, size or SystemSettings.load(database).default_batch_size)
    calls = [{"profile": name} for name in names]
    return check_story.batch(calls, name=niche, lane=LANE, data={"niche": niche}, on_complete=batch_ended)


def browser_for(system: SystemSettings, proxy: Lease) -> Browser:
    """Its requests wait for the proxy a little longer than the gap between two of them."""
    return Browser(system.site, proxy, timeout=system.proxy_test_timeout, wait=2 * settings.proxy_min_delay + 1.0)


@contextmanager
def noted(proxy: Lease) -> Iterator[None]:
    """Note a request for the document's own count, unless the proxy's limits did not allow it to be sent."""
    sent = True
    try:
        yield
    except TimedOutWaiting:
        sent = False
        raise
    finally:
        if sent:
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
