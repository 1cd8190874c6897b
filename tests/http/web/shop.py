"""The stores of the dashboard's reference pictures with their whole load: a shop that scrapes prices, on a Monday
morning in Berlin. At 09:48 a site begins to refuse its proxies."""

from random import Random
from typing import Any

import msgspec

from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND, Moment
from pitboss.model.filter import by
from pitboss.model.happening import Kind
from pitboss.model.limits import Window
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.outcome import Completed, Crashed, Failed, Rotated
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, ResourceChange, ResourceOutcome, Want
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.snapshot import ServerFigures, WorkerState
from pitboss.model.task import NewTask, TaskError, Unique
from tests.http.web.load import Scene, Stream, Turn, filled
from tests.http.web.scenes import POOLS

MINUTE = 60 * SECOND
_THINGS = (
    "oak-table",
    "wool-rug",
    "desk-lamp",
    "floor-mirror",
    "linen-curtain",
    "shelf-walnut",
    "side-table",
    "kettle",
)
_KINDS = ("180", "200x300", "brass", "xl", "pair", "round", "king", "steel-1l", "ash", "set-12")
FORBIDDEN = TaskError(
    category="error",
    type="HTTPStatusError",
    message="403 Forbidden for {url}",
    traceback="""Traceback (most recent call last):
  File "shop/tasks.py", line 41, in fetch_page
    response = await client.get(url)
  File "shop/http.py", line 18, in get
    response.raise_for_status()
httpx.HTTPStatusError: Client error '403 Forbidden' for url '{url}'""",
    fingerprint="403403ab12cd",
)
TIMEOUT = TaskError(
    category="error",
    type="ConnectTimeout",
    message="no connection to proxy within 10 s",
    traceback="""Traceback (most recent call last):
  File "shop/tasks.py", line 41, in fetch_page
    response = await client.get(url)
httpx.ConnectTimeout: no connection to proxy within 10 s""",
    fingerprint="7140ab34ef56",
)
NO_PRODUCT = TaskError(
    category="error",
    type="LookupError",
    message="no product with id 88121",
    traceback="""Traceback (most recent call last):
  File "shop/tasks.py", line 77, in fetch_page
    raise LookupError(f"no product with id {number}")
LookupError: no product with id 88121""",
    fingerprint="100c4b88f001",
    retryable=False,
)
STOCK_AWAY = TaskError(
    category="error",
    type="ConnectionError",
    message="stock.example does not answer",
    traceback="""Traceback (most recent call last):
  File "shop/stock.py", line 9, in report
    raise ConnectionError("stock.example does not answer")
ConnectionError: stock.example does not answer""",
    fingerprint="57ac4a11ab02",
    retryable=False,
)
TOO_LARGE = TaskError(category="memory", type="MemoryLimit", message="memory above 2.0 GB", fingerprint="2b00ff1ce003")

_EU = (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 26)
_BLACKLISTED = (17, 24, 28, 33, 37)
# The minutes after 10:14 at which the others come back; each is refused some time after 09:48.
_BACK = {
    11: 4.2, 5: 6.8, 2: 7, 4: 8, 6: 9, 7: 10.5, 9: 11, 10: 12, 13: 12.5, 14: 13, 15: 14, 3: 16, 16: 17, 18: 18,
    19: 18.5, 26: 19, 1: 21, 20: 22, 21: 24, 23: 26, 25: 28, 27: 31, 31: 37, 35: 46,
}  # fmt: skip
# These two serve the task that is drawn in the pictures.
_LATE = (3, 26)


def clock(hour: int, minute: int, second: int = 0, *, day: int = 16) -> Moment:
    """That time in Berlin, in November 2026."""
    return (1_794_783_600 + (day - 16) * 86_400 + hour * 3600 + minute * 60 + second) * SECOND


def page(dice: Random) -> dict[str, Any]:
    return {"url": f"https://shop.example/p/{dice.choice(_THINGS)}-{dice.choice(_KINDS)}"}


_UNBOUND = (
    Stream("scrape", "fetch_page", 16.9, 1.2, None, page),
    Stream("catalogue", "fetch_item", 0, 1.2, None, page),
    Stream("mail", "send_mail", 0.5, 0.25, None, lambda dice: {"to": f"customer-{dice.randrange(9000)}@mail.example"}),
    Stream("media", "transcode", 0.018, 66, None, lambda dice: {"video": dice.randrange(90_000), "preset": "hd"}),
    Stream("default", "refresh", 3.2, 1.2, None, lambda dice: {"product": dice.randrange(90_000)}),
    Stream("reports", "report", 0, 40, kept=True),
)
_EXTRA = (
    HandlerInfo(name="make_thumbnail", queue="media"),
    HandlerInfo(name="send_newsletter", queue="mail"),
    HandlerInfo(name="publish_catalogue", queue="reports"),
)
_ABOUT = {
    "target": "shop.tasks:app",
    "app": "shop",
    "release": "3f9c2a71b0de",
    "cores": 16,
    "memory": 64 << 30,
    "logs": "/var/log/pitboss",
}
_SCHEDULES = (
    ScheduleSpec(name="refresh-prices", handler="report", cron="*/5 * * * *", queue="reports"),
    ScheduleSpec(name="hourly-stats", handler="report", cron="30 * * * *", queue="reports"),
    ScheduleSpec(name="stock-levels", handler="report", cron="*/30 * * * *", queue="reports"),
    ScheduleSpec(name="clean-up", handler="report", cron="0 3 * * *", queue="reports"),
    ScheduleSpec(name="weekly-digest", handler="report", cron="0 7 * * 1", tz="Europe/Berlin", queue="reports"),
)
_DAILY = ScheduleSpec(
    name="daily-report", handler="report", cron="0 14 * * *", tz="Europe/Berlin", queue="reports", params='{"to":"ops"}'
)


async def healthy() -> Scene:
    scene = await _morning(queued=False)
    await scene.run_until(clock(10, 14))
    await _hold(scene)
    return scene


async def degraded(*, label: bool = False) -> Scene:
    """`label`: a task waits for a proxy with a label, and the verdict is about that; and an operation runs."""
    scene = await _morning(queued=True, label=label)
    await scene.run_until(clock(9, 48))
    _refuse(scene)
    if label:
        scene.fails["reports"] = (0.2, STOCK_AWAY)
        _then(scene, clock(10, 0, 20), _first_runs)
        _then(scene, clock(10, 13), _cancel_old)
    await scene.run_until(clock(10, 13, 57))
    await _last_states(scene)
    await scene.run_until(clock(10, 14))
    await _hold(scene)
    await scene.tell()
    return scene


async def _morning(*, queued: bool, label: bool = False) -> Scene:
    """Since yesterday afternoon: a report each day, the batches of the morning, and a load that the workers manage."""
    pools = [POOLS[0]._replace(queues=("scrape", "catalogue")), *POOLS[1:]]
    scene = Scene(_UNBOUND, pools, begin=clock(13, 59, 40, day=15))
    scene.policy = Policy(backoff=Backoff(base=30 * SECOND, factor=1.5, jitter=0.2))
    scene.comes, scene.fires = False, True
    scene.sites = {"market.example": 48, "shop.example": 34, "parts.example": 18}
    scene.extra = {one.name: one for one in _EXTRA}
    # Their tasks are done in a rush at first.
    scene.most = {("catalogue", "fetch_item"): 0, ("media", "make_thumbnail"): 0, ("mail", "send_newsletter"): 0}
    scene.about |= _ABOUT | {"http": ServerFigures(url="http://box1:8000", state="running", pid=4100)}
    await _yesterday(scene)
    await _pools(scene.store)
    for spec in _SCHEDULES:
        await scene.store.put_schedule(spec)
    await scene.run_until(clock(8, 27, 50))
    await _catalogue(scene, Want(labels=("eu",)) if label else None)
    if queued:
        media: dict[str, Any] = {"queue": "media", "lane": "media", "by": "ben on box2"}
        await _batch(scene, "thumbnails 16 Nov", "make_thumbnail", 1000, **media)
        await _batch(scene, "price-check night", "fetch_item", 8000, queue="catalogue", by="ana on box1")
    await _old_failures(scene, 34 if queued else 6)
    if label:
        await _old_tasks(scene)
    await _rush(scene)
    scene.at(
        clock(9, 41), lambda: scene.note(Kind.RELEASE_CHANGED, "app shop", "release 1.14.0 on 3 hosts, 22 workers")
    )
    if queued:
        scene.at(clock(9, 20), lambda: _newsletter(scene))
    return scene


async def _yesterday(scene: Scene) -> None:
    await scene.start()
    await scene.store.put_schedule(_DAILY)
    await scene.run(90)
    await scene.stop()
    scene.store.time.advance_to(clock(8, 27, 30))
    await scene.start()


async def _pools(store: Any) -> None:
    # With a guard, uses of tasks need no end of their own.
    limits = Limits(windows=(Window(90, MINUTE),), min_delay=SECOND // 2, concurrency=2, guard=1000)
    await store.declare_pool("proxies", PoolRules(limits=limits), by="shop")
    await store.limit_pool("proxies", {"per_minute": 60}, by="ana")
    await store.declare_pool("accounts", PoolRules(limits=Limits(min_delay=20 * SECOND)), by="shop")
    await store.declare_pool("api-keys", PoolRules(limits=Limits(windows=(Window(600, MINUTE),))), by="shop")
    proxies = []
    for n in range(1, 41):
        labels = ("eu" if n in _EU else "us", *(("fast",) if n % 11 == 0 else ()))
        fields = msgspec.json.encode({"url": f"http://10.0.3.{n}:8080"}).decode()
        secrets = {"password": "sealed", "cookie": "sealed"}
        proxies.append(NewResource(name=f"p-{n:02}", labels=labels, fields=fields, secrets=secrets))
    await store.add_resources("proxies", proxies)
    for pool, number in (("accounts", 12), ("api-keys", 3)):
        await store.add_resources(pool, [NewResource(name=f"{pool[0]}-{n + 1:02}") for n in range(number)])
    await store.change_resources("proxies", ["p-39", "p-40"], ResourceChange(enabled=False, reason="ana: rented out"))


async def _catalogue(scene: Scene, want: Want | None) -> None:
    """A batch, and an item of it whose page is in the pictures."""
    item = scene.store.new(
        "fetch_item",
        queue="catalogue",
        params='{"url":"https://shop.example/p/oak-table-180","depth":2,"shop":{"id":123,"token":"***"}}',
        want=want,
        tags=("furniture", "full"),
        unique=Unique("page:oak-table-180"),
        timeout=2 * MINUTE,
        max_attempts=5,
        run_at=clock(10, 0, 21),
    )
    scene.places["task"] = item.id
    then = scene.store.new("publish_catalogue", queue="reports")
    about = {"by": "ana on box1", "data": '{"season":"winter"}', "on_complete": then}
    await _batch(scene, "catalogue-full", "fetch_item", 51_999, item, queue="catalogue", **about)


async def _batch(scene: Scene, name: str, handler: str, number: int, *more: NewTask, queue: str, **about: Any) -> None:
    dice = Random(2)
    items = [
        scene.store.new(handler, queue=queue, params=msgspec.json.encode(page(dice)).decode()) for _ in range(number)
    ]
    batch = NewBatch(id=scene.store.new_id(), name=name, **about)
    scene.places[name] = batch.id
    await scene.store.create_batch(batch, [*more, *items])


async def _release(scene: Scene) -> None:
    text = "release 1.14.0 on 3 hosts, 22 workers replaced"
    await scene.note(Kind.RELEASE_CHANGED, "app shop", text, details={"release": "1.14.0"})


async def _newsletter(scene: Scene) -> None:
    await _batch(scene, "newsletter 46", "send_newsletter", 1500, queue="mail", lane="mail", by="cleo on box1")
    scene.most["mail", "send_newsletter"] = 0.46


async def _old_failures(scene: Scene, number: int) -> None:
    scene.fails = {"scrape": (1.0, NO_PRODUCT)}
    await scene.add("scrape", number)
    await scene.run(30)
    scene.fails = {}


async def _old_tasks(scene: Scene) -> None:
    """Tasks that wait for tomorrow, and for noon."""
    await scene.add("default", 2104, delay=86_400 * SECOND, tags=("old-feed",))
    await scene.add("default", 380, delay=7200 * SECOND)


async def _rush(scene: Scene) -> None:
    """Most items of the batches end before the shown hour; then the queue gets its proxies, and other tasks come."""
    while scene.now < clock(9, 8):
        await scene.rush("catalogue", "fetch_item", 600)
        await scene.rush("media", "make_thumbnail", 18)
        await scene.run(60 - scene.now // SECOND % 60)
    for name in ("scrape", "catalogue"):
        scene.streams[name] = scene.streams[name]._replace(resources="proxies")
    await scene.register()
    scene.comes = True
    scene.most |= {("catalogue", "fetch_item"): 4.6, ("media", "make_thumbnail"): 0.035}


def _refuse(scene: Scene) -> None:
    """shop.example refuses one proxy after the other, and some do not answer."""
    scene.most["catalogue", "fetch_item"] = 4.2
    errors = (0.03, *[FORBIDDEN] * 7, TIMEOUT, TIMEOUT)
    scene.fails = {"scrape": errors, "catalogue": errors}
    for n in _LATE:
        _then(scene, clock(10, 1), _refused, n)
    for place, n in enumerate(n for n in _BACK if n not in _LATE):
        _then(scene, clock(9, 48) + (place * 12 + max(0, place - 16) * 90) * SECOND, _refused, n)
    for n, minute in zip(_BLACKLISTED, (53, 65, 58, 69, 71), strict=True):
        _then(scene, clock(9, minute), _unreachable, n)
    for minute in (56, 61, 66):
        _then(scene, clock(9, minute), _poison)
    _then(scene, clock(9, 58), _alert)
    _then(scene, clock(10, 2), _pause)
    _then(scene, clock(10, 7, 20), _long_video)


def _then(scene: Scene, at: Moment, act: Any, *about: Any) -> None:
    async def done() -> None:
        await act(scene, *about)

    scene.at(at, done)


async def _refused(scene: Scene, n: int) -> None:
    site = "market.example" if n in (2, 4, 6) else "shop.example"
    away = clock(10, 14) + round(_BACK[n] * MINUTE) - scene.now
    scene.reports[f"p-{n:02}"] = [_refusal(away, site)]


def _refusal(away: int, site: str = "shop.example", said: str = "403 from") -> Report:
    return Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=away, error=f"{said} {site}", destination=site)


async def _unreachable(scene: Scene, n: int) -> None:
    failed = Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="ConnectTimeout, 3 in a row")
    scene.reports[f"p-{n:02}"] = [failed] * 3


async def _first_runs(scene: Scene) -> None:
    """The item of the pictures is refused by two proxies, and no other with its label is left."""
    left = clock(10, 14) - scene.now
    limited = TaskError(category="resource", type="RateLimited", message="429, Retry-After 600 s")
    scene.turns[scene.places["task"]] = [
        Turn(0.4, Rotated(limited), _refusal(left + 19 * MINUTE, said="429 from")),
        Turn(1.2, Failed(filled(FORBIDDEN, "https://shop.example/p/oak-table-180")), _refusal(left + 16 * MINUTE)),
    ]


async def _poison(scene: Scene) -> None:
    """It kills its worker three times."""
    task = scene.store.new("transcode", queue="media", priority=-1, params='{"video":88121,"preset":"hd"}')
    scene.turns[task.id] = [Turn(15, Crashed(alone=True, error=TOO_LARGE))] * 3
    await scene.store.put([task])


async def _long_video(scene: Scene) -> None:
    task = scene.store.new("transcode", queue="media", priority=-1, params='{"video":90210,"preset":"4k"}')
    scene.turns[task.id] = [Turn(900, Completed())]
    await scene.store.put([task])


async def _alert(scene: Scene) -> None:
    await scene.note(Kind.ALERT, "queue scrape", "alert processing_delay is firing: queue scrape, sent to Slack")


async def _pause(scene: Scene) -> None:
    pause = QueueChange(paused=True, by="ana", reason="provider maintenance")
    await scene.audited("ana", "queues pause", "mail", reason="provider maintenance").change_queue("mail", pause)


async def _cancel_old(scene: Scene) -> None:
    """An operation that is at work. In portions, the store in memory would need minutes for it."""
    wanted, store = by(state="scheduled", tag="old-feed"), scene.store
    new = NewOperation(id=store.new_id(), verb=Verb.CANCEL, wanted=wanted, by="ana on box1", matched=2104)
    one = await store.begin_operation(new)
    changed = await store.cancel(wanted, limit=1283)
    store.tables.operations[one.id] = msgspec.structs.replace(one, done=changed.changed)
    scene.places["operation"] = one.id


async def _last_states(scene: Scene) -> None:
    await scene.lose("media-4")
    scene.states |= {
        "media-4": WorkerState.RESTARTING,
        "scrapers-12": WorkerState.DRAINING,
        "default-6": WorkerState.STARTING,
    }
    scene.whys |= {
        "media-4": {"why": "over its memory limit", "crashes": 2, "rss": (21 << 30) // 10},
        "scrapers-12": {"why": "pool scaled down from 12 to 11"},
    }
    scene.whys["media-4"]["next_at"] = clock(10, 14, 9)
    await scene.store.crash("media-4", "ended: over its memory limit")


async def _hold(scene: Scene) -> None:
    """Leases of programs that are no tasks."""
    for pool, number in (("accounts", 5), ("api-keys", 1)):
        for place in range(number):
            await scene.store.acquire(pool, Want(), 3600 * SECOND, lease=f"{pool}-{place}")
    await scene.store.acquire("accounts", Want(), 60 * SECOND, lease="brief")
    await scene.store.release("brief", Report(outcome=ResourceOutcome.OK))
