"""Whole stores to look at, with a load and its faults.

`degraded`, `healthy` and `nothing` have the data of the dashboard's three reference pictures, with less load.
"""

from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.happening import Kind
from pitboss.model.queue import QueueChange
from pitboss.model.resource import NewResource, PoolRules, ResourceChange, ResourceOutcome
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.snapshot import WorkerState
from pitboss.model.task import TaskError
from tests.http.web.load import Pool, Scene, Stream

__all__ = ["FORBIDDEN", "TIMEOUT", "Pool", "Scene", "Stream", "degraded", "healthy", "nothing"]

FORBIDDEN = TaskError(
    category="error",
    type="HTTPStatusError",
    message="403 Forbidden for https://shop.example/p/88121",
    fingerprint="403403ab",
    retryable=False,
)
TIMEOUT = TaskError(
    category="error",
    type="ConnectTimeout",
    message="no connection to proxy within 10 s",
    fingerprint="7140ab",
    retryable=False,
)
STREAMS = (
    Stream("scrape", "fetch_page", 2.1, 8, "proxies"),
    Stream("mail", "send_mail", 0.5, 0.8),
    Stream("media", "transcode", 0.02, 88),
    Stream("default", "refresh", 0.8, 1.2),
    Stream("reports", "report", 0, 40),
)
POOLS = (
    Pool("scrapers", {"box1": 6, "box2": 6}, 4, ("scrape",)),
    Pool("default", {"box1": 2, "box2": 2, "box3": 2}, 4, ("default", "mail", "reports")),
    Pool("media", {"box3": 4}, 1, ("media",), 2 << 30, 1400 << 20),
)


async def nothing() -> Scene:
    return Scene()


async def healthy(minutes: int = 60) -> Scene:
    """Three managers, five queues that keep up, three pools of resources."""
    scene = Scene(STREAMS, POOLS)
    store = scene.store
    await store.declare_pool("proxies", PoolRules(max_failures=1, max_ejected=0.5, cooldown=3600 * SECOND))
    await scene.start()
    for pool, number in (("proxies", 40), ("accounts", 12), ("api-keys", 3)):
        if pool != "proxies":
            await store.declare_pool(pool, PoolRules())
        await store.add_resources(pool, [NewResource(name=f"{pool[0]}-{n + 1:02}") for n in range(number)])
    off = ResourceChange(enabled=False, reason="contract ended")
    await store.change_resources("proxies", ["p-39", "p-40"], off)
    await scene.note(
        Kind.RELEASE_CHANGED,
        "app shop",
        "release 1.14.0 on 3 hosts, 22 workers replaced",
        details={"release": "1.14.0"},
    )
    await scene.run(minutes * 60)
    await schedules(scene)
    return scene


async def schedules(scene: Scene) -> None:
    """They are put last: nothing fires them here."""
    for name, every in (("refresh-prices", 3600), ("hourly-stats", 7200), ("daily-report", 86_400)):
        spec = ScheduleSpec(name=name, handler="report", every=every * SECOND, queue="reports")
        await scene.store.put_schedule(spec)


async def degraded(minutes: int = 32) -> Scene:
    """Most proxies are away since some minutes, a queue is paused, and a worker exceeds its memory."""
    scene = await healthy(minutes)
    store = scene.store
    items = [store.new("fetch_page", queue="scrape") for _ in range(6000)]
    await store.create_batch(NewBatch(id=store.new_id(), name="catalogue-full", lane="scrape"), items)
    later = [store.new("fetch_page", queue="scrape") for _ in range(800)]
    await store.create_batch(NewBatch(id=store.new_id(), name="price-check night", lane="scrape"), later)
    scene.fails = {"scrape": (0.1, FORBIDDEN), "mail": (0.02, TIMEOUT)}
    scene.uses = [ResourceOutcome.RATE_LIMITED] * 24 + [ResourceOutcome.RESOURCE_ERROR] * 5
    await scene.add("media", 60)
    await scene.run(minutes * 30)
    pause = QueueChange(paused=True, by="ana", reason="provider maintenance")
    await scene.audited("ana", "queues pause", "mail", reason="provider maintenance").change_queue("mail", pause)
    await scene.note(Kind.ALERT, "queue scrape", "alert processing_delay is firing: tasks of scrape wait too long")
    await scene.run(minutes * 20)
    scene.states |= {"media-4": WorkerState.RESTARTING, "scrapers-12": WorkerState.DRAINING}
    scene.whys |= {
        "media-4": {"why": "over its memory limit", "crashes": 2, "rss": (21 << 30) // 10, "next_at": scene.now},
        "scrapers-12": {"why": "pool scaled down from 12 to 11"},
    }
    await scene.store.crash("media-4", "ended: over its memory limit")
    await scene.run(10)
    await scene.tell()
    return scene
