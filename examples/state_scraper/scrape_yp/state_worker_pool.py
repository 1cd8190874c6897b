"""The state scraper on Pitboss: a queue that is divided by state, ten workers, and a pool of proxies."""

import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from playwright.async_api import async_playwright

from pitboss import App, Lease, backoff
from scrape_yp import proxy_pool
from scrape_yp.crawl import WorkerBrowser, crawl_single_target
from scrape_yp.database import Database
from scrape_yp.settings import Settings
from scrape_yp.state_assignments import STATES, get_all_assignments, get_worker_for_state
from scrape_yp.yp_filter import Target, YPFilter

QUEUE, POOL = "targets", "state_worker"
# Of browsers; a folder for each worker's process.
PROFILES = Path("profiles")
# The sandbox needs rights that root and containers do not have.
BROWSER_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
log = logging.getLogger(__name__)
settings = Settings()
app = App(settings.database_url)

# Only the worker of a state takes its targets. While that worker does not run, they wait.
app.queue(
    QUEUE,
    partition_by="{state_id}",
    mode="static",
    partitions=get_all_assignments(),
    keys=STATES,
    pool=POOL,
    on_missing="hold",
    retention="forever",
)
app.pool(
    POOL,
    queues=[QUEUE],
    workers=settings.worker_count,
    concurrency=1,
    delay=(settings.min_delay_seconds, settings.max_delay_seconds),
    stagger="2-5s",
    max_restarts=5,
    log_file="state_worker_{slot0}.log",
)
proxies = app.resources(
    "proxies",
    rate=settings.proxy_rate,
    strategy=settings.proxy_selection_strategy,
    max_failures=settings.proxy_blacklist_threshold,
    blacklist=60 * settings.proxy_blacklist_duration_minutes,
    cooldown=60 * settings.proxy_cooldown_minutes,
)
# With rotation, every target takes the next of all proxies; without, one of those that are assigned to its worker.
_lease = proxies.lease() if settings.proxy_rotation_enabled else proxies.lease(labels=("{state_id}",))


@dataclass
class Crawled:
    """The result of a target."""

    accepted: int
    rejected: int


@dataclass
class Statistics:
    """What a worker has done since it started."""

    began: float = field(default_factory=time.monotonic)
    worker: int | None = None
    targets: int = 0
    accepted: int = 0
    rejected: int = 0

    def add(self, target: Target, crawled: Crawled) -> None:
        self.worker = get_worker_for_state(target.state_id)
        self.targets += 1
        self.accepted += crawled.accepted
        self.rejected += crawled.rejected

    def __str__(self) -> str:
        minutes = (time.monotonic() - self.began) / 60
        counts = f"{self.targets} targets, {self.accepted} accepted, {self.rejected} rejected"
        return f"Worker {'?' if self.worker is None else self.worker} final statistics: {counts}, {minutes:.1f} minutes"


def browser_program() -> str:
    """BROWSER_PATH, else the system's browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = settings.browser_path or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise FileNotFoundError("no chromium found: apt-get install chromium, or set BROWSER_PATH")
    return str(found)


@cache
def profiles() -> Path:
    """This worker's own folder for profiles, new; those of workers that have ended are removed."""
    PROFILES.mkdir(exist_ok=True)
    own = PROFILES.resolve() / str(os.getpid())
    for old in PROFILES.iterdir():
        if old.name == own.name or not Path("/proc", old.name).exists():
            shutil.rmtree(old, ignore_errors=True)
    own.mkdir(exist_ok=True)
    return own


@app.worker_state()
async def statistics() -> AsyncIterator[Statistics]:
    proxy_pool.open_log()
    counted = Statistics()
    yield counted
    log.info("%s", counted)


@app.worker_state(max_uses=settings.max_targets_per_browser)
async def browser() -> AsyncIterator[WorkerBrowser]:
    """One browser for each worker, replaced after MAX_TARGETS_PER_BROWSER targets."""
    environment: dict[str, str | float | bool] = {**os.environ}
    # The driver makes the browser's profile there; a worker that is killed cannot remove it.
    os.environ["TMPDIR"] = str(profiles())
    async with async_playwright() as driver:
        launched = await driver.chromium.launch(
            executable_path=browser_program(), args=BROWSER_OPTIONS, env=environment
        )
        yield WorkerBrowser(launched, settings)
        await launched.close()


@app.task(
    queue=QUEUE,
    max_attempts=settings.max_target_attempts,
    backoff=backoff(settings.retry_seconds, cap="30m"),
    timeout="10m",
    usual="5s",
)
async def crawl_target(
    state_id: str,
    city: str,
    category: str,
    # Before the browser, so that it is closed, and logged, before: a browser may need longer than a stop waits.
    statistics: Statistics = statistics(),
    proxy: Lease = _lease,
    browser: WorkerBrowser = browser(),
) -> Crawled:
    """Scrape one target. A retry goes through another proxy, and goes on at the page where this attempt stopped."""
    target = Target(state_id, city, category)
    try:
        done = await crawl_single_target(target, browser, proxy, Database(settings.database_url), YPFilter())
    except Exception as error:
        proxy_pool.log.warning("%s: %s failed: %s", proxy.name, target, error)
        raise
    proxy_pool.log.info("%s: %s done", proxy.name, target)
    crawled = Crawled(done.accepted, done.rejected)
    statistics.add(target, crawled)
    log.info("✓ Target completed: %s, accepted %d, rejected %d", target, crawled.accepted, crawled.rejected)
    return crawled
