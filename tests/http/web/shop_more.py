"""What else the shop has, for the pages that the reference pictures do not show."""

from random import Random
from typing import Any

import msgspec

from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, ChannelNote, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import by
from pitboss.model.happening import Kind
from pitboss.model.limits import rate
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.outcome import Failed
from pitboss.model.partition import PartitionChange, Partitioning
from pitboss.model.queue import HandlerInfo, QueueChange, QueueSettings
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.source import SourceFigures, SourceState, outbox
from pitboss.model.task import TaskError
from pitboss.operate.keys import create_key, revoke_key
from pitboss.operate.remote_workers import WorkerCard
from tests.http.web import shop
from tests.http.web.load import Scene, Stream, Turn

MINUTE = 60 * SECOND
_STATES = (
    *("AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DE", "FL", "GA", "HI", "ID", "IL", "IN", "IA", "KS", "KY", "LA"),
    *("ME", "MD", "MA", "MI", "MN", "MS", "MO", "MT", "NE", "NV", "NH", "NJ", "NM", "NY", "NC", "ND", "OH", "OK"),
    *("OR", "PA", "RI", "SC", "SD", "TN", "TX", "UT", "VT", "VA", "WA", "WV", "WI", "WY", "DC"),
)
_SLOTS = 10
_EVENTS = (
    ("price.dropped", {"product": 88121, "from": 249, "to": 199}),
    ("price.dropped", {"product": 1204, "from": 89, "to": 79}),
    ("product.sold_out", {"product": 311}),
    ("price.raised", {"product": 5120, "from": 19, "to": 24}),
    ("product.created", {"product": 90_001, "name": "floor mirror"}),
    ("catalogue.started", {"season": "winter"}),
)
_HANDLERS = ("notify_watchers", "update_search", "log_change")
_GATEWAY = TaskError(
    category="error",
    type="BadGateway",
    message="502 from search.example",
    traceback="""Traceback (most recent call last):
  File "shop/search.py", line 12, in update_search
    answer.raise_for_status()
BadGateway: 502 from search.example""",
    fingerprint="502502cd90ab",
    retryable=False,
)


async def degraded() -> Scene:
    scene = await shop.degraded(label=True)
    failed = await scene.store.find(by(state="failed", fingerprint=shop.FORBIDDEN.fingerprint, queue="scrape"), limit=1)
    scene.places["failed"] = failed.tasks[0].id
    await furnish(scene)
    return scene


async def furnish(scene: Scene) -> None:
    await _events(scene)
    await _operations(scene)
    await scene.run_until(scene.now + 20 * SECOND)
    await _partitions(scene)
    await _queues(scene)
    await _remote(scene)
    await _sources(scene)
    await _alerts(scene)
    await _acts(scene)
    await scene.tell()


async def _acts(scene: Scene) -> None:
    """What people did, and what else happened."""
    notes = (
        (Kind.MANAGER_STARTED, "manager box4", "manager on box4 started with 10 workers of pool states"),
        (Kind.POOL_SCALED, "pool scrapers", "pool scrapers was scaled from 12 to 11 workers"),
        (Kind.LEAD_CHANGED, "store", "manager on box1 leads now"),
    )
    for kind, subject, text in notes:
        await scene.note(kind, subject, text)
    store: Any = scene.audited("ben", "queues limit", "webhooks", rate="20/min")
    await store.change_queue("webhooks", QueueChange(rate=rate("20/min"), by="ben"))
    store = scene.audited("ana", "resources limit", "proxies", per_minute=60)
    await store.limit_pool("proxies", {"per_minute": 60}, by="ana")


async def keys(scene: Scene) -> str:
    """From now on everyone needs a key; returns that of an admin."""
    dice = Random(3)
    made: dict[str, Any] = {
        "make_id": lambda: f"{dice.getrandbits(40):010x}",
        "make_secret": lambda: f"{dice.getrandbits(160):040x}",
    }
    _, text = await create_key(scene.store, "ana", ["admin"], by="ops on box1", **made)
    for name, role in (("ben", "operator"), ("grafana", "viewer"), ("checkout", "producer"), ("old-laptop", "admin")):
        scene.store.time.advance(60)
        await create_key(scene.store, name, [role], by="ana", **made)
    await revoke_key(scene.store, "old-laptop")
    return text


async def _events(scene: Scene) -> None:
    """Events of the last minutes; one of their deliveries has failed."""
    store = scene.store
    scene.extra |= {name: HandlerInfo(name=name, queue="default") for name in _HANDLERS}
    wanted = zip(_HANDLERS, ("price.*", "product.*", "**"), strict=True)
    subscriptions = tuple(
        Subscription(handler=name, pattern=pattern, ordered=pattern == "product.*") for name, pattern in wanted
    )
    await store.declare(Declared(app="shop", subscriptions=subscriptions))
    await _newer_session(scene)
    for place, (name, data) in enumerate(_EVENTS):
        event = NewEvent(
            id=store.new_id(), name=name, data=msgspec.json.encode(data).decode(), key=f"product-{place}", by="checkout"
        )
        await store.publish([event])
        (found,) = await store.events(limit=1)
        scene.places["event"] = found.id if name == "product.sold_out" else scene.places.get("event", "")
        if name == "product.sold_out":
            scene.turns[found.task_ids()[0]] = [Turn(0.4, Failed(_GATEWAY))]
        await scene.run(10)


async def _newer_session(scene: Scene) -> None:
    """The managers know the new handlers."""
    await scene.store.register(scene.extra.values())
    names = tuple(one.name for one in await scene.store.handlers())
    for host, number in list(scene.sessions.items()):
        about = SessionInfo(host=host, boot_id=host, pid=1, handlers=names)
        scene.sessions[host] = (await scene.store.open_session(about)).number
        await scene.store.end_session(number)
    scene.running = []
    await scene.store.reclaim(1000)
    await scene.run(5)


async def _operations(scene: Scene) -> None:
    """A retry that is done, after which some failed again."""
    wanted = by(state="failed", fingerprint="7140ab34ef56")
    new = NewOperation(
        id=scene.store.new_id(),
        verb=Verb.RETRY,
        wanted=wanted,
        by="ben on box2",
        reason="proxies answer again",
        matched=(await scene.store.count(wanted)).number,
        rate=rate("10/s"),
    )
    one = await scene.store.begin_operation(new)
    while one.ended_at is None:
        found = await scene.store.advance_operation(one.id, one.cursor, limit=1000)
        one = found or one
        await scene.run(1)


async def _partitions(scene: Scene) -> None:
    """Pages of all states; ten slots have them, and one state waits for an eleventh."""
    store = scene.store
    table = {slot: tuple(_STATES[slot:50:_SLOTS]) for slot in range(_SLOTS)} | {_SLOTS: ("DC",)}
    weights = {one: 1.0 + 40 / (place + 2) for place, one in enumerate(sorted(_STATES, key=lambda one: one[1]))}
    spec = Partitioning(by="{state}", mode="static", table=table, pool="states", keys=tuple(_STATES), weights=weights)
    await store.register([HandlerInfo(name="scrape_state", queue="states")])
    await store.declare(Declared(app="yellow-pages", queues={"states": QueueSettings(partitions=spec, max_per_key=2)}))
    about = SessionInfo(host="box4", boot_id="box4", pid=1, ttl=3600 * SECOND, handlers=("scrape_state",))
    session = (await store.open_session(about)).number
    await store.take_slots(session, "states", "box4", range(_SLOTS), queues=("states",))
    for key in _STATES:
        slot = next(slot for slot, keys in table.items() if key in keys)
        await store.change_partition("states", key, PartitionChange(owner=f"states/{slot}"))
        tasks = [
            store.new("scrape_state", queue="states", params=f'{{"state":"{key}","page":{n}}}')
            for n in range(round(weights[key]) * 3)
        ]
        await store.put(tasks)
    await store.change_partition("states", "CA", PartitionChange(pinned="states/4"))
    slots = tuple(Slot(free=1, queues=("states",), pool="states", number=n) for n in range(_SLOTS))
    claims = (await store.claim(ClaimRequest(session=session, slots=slots))).claims
    told = Snapshot(
        pools=(PoolFigures(name="states", queues=("states",), concurrency=1, wanted=_SLOTS),),
        workers=tuple(
            WorkerFigures(
                name=f"states-{n + 1}",
                pool="states",
                slot=n,
                state=WorkerState.PROCESSING,
                running=1,
                rss=310 << 20,
                processed=120 - n,
                succeeded=118 - n,
                failed=2,
                mean=9 * SECOND,
                started_at=scene.now - 3600 * SECOND,
                tasks=(CurrentTask(id=claim.id, handler=claim.handler, since=scene.now - n * SECOND),),
            )
            for n, claim in enumerate(claims)
        ),
        **scene.about,
    )
    await store.renew(session, msgspec.json.encode(told).decode())


async def _queues(scene: Scene) -> None:
    """Queues with limits, of which an operator set one."""
    scene.streams["webhooks"] = Stream("webhooks", "call_webhook", 0, 1)
    await scene.store.register(
        [HandlerInfo(name="call_webhook", queue="webhooks"), HandlerInfo(name="pay_out", queue="payments")]
    )
    settings = {"webhooks": QueueSettings(rate=rate("60/min"), capacity=5000), "payments": QueueSettings(capacity=1000)}
    await scene.store.declare(Declared(app="checkout", queues=settings))
    await scene.store.put([scene.store.new("call_webhook", queue="webhooks", delay=n * MINUTE) for n in range(1, 13)])


async def _remote(scene: Scene) -> None:
    """Two workers that speak HTTP; one was not heard of for a while."""
    schema = '{"type":"object","properties":{"picture":{"type":"string"}}}'
    await scene.store.register([HandlerInfo(name="thumbnail", queue="pictures", schema=schema, remote=True)])
    await scene.store.put(
        [scene.store.new("thumbnail", queue="pictures", params=f'{{"picture":"{n}.png"}}') for n in range(9)]
    )
    cards = {
        "gpu-1": WorkerCard(name="gpu-1", types=("thumbnail",), claimed=412, completed=405, failed=4),
        "gpu-2": WorkerCard(name="gpu-2", types=("thumbnail",), status="idle", claimed=98, completed=98),
    }
    for name, card in cards.items():
        session = await scene.store.open_session(SessionInfo(host=name, kind="remote", ttl=120 * SECOND))
        await scene.store.renew(session.number, msgspec.json.encode(card).decode())
    slot = Slot(free=3, queues=("pictures",), handlers=("thumbnail",), lasts=300 * SECOND, worker="gpu-1")
    await scene.store.claim(ClaimRequest(session=next(iter(scene.sessions.values())), slots=(slot,)))


async def _sources(scene: Scene) -> None:
    """Two queues of a broker; one of them has dead letters that wait to go back."""
    known: dict[str, Any] = {"since": scene.now - 5000 * SECOND, "pid": 4180, "manager": 4100}
    figures = (
        SourceFigures(
            name="orders", queue="shop.orders", handler="update_search", state=SourceState.RUNNING,
            out_state=SourceState.RUNNING, received=48_211, stored=48_190, duplicates=21, published=133, ready=12,
            **known,
        ),
        SourceFigures(
            name="videos", queue="media.uploads", handler="transcode", state=SourceState.RUNNING,
            out_state=SourceState.UNROUTABLE, out_why="no queue is bound to media.uploads_dlq", out_some=True,
            received=1204, stored=1201, malformed=3, malformed_why="the body is no JSON object",
            malformed_at=scene.now - 900 * SECOND, requeued=2, published=17, ready=0, **known,
        ),
    )  # fmt: skip
    session = await scene.store.open_session(
        SessionInfo(host="box1", boot_id="box1", pid=4180, kind="delivery", ttl=3600 * SECOND)
    )
    await scene.store.renew(session.number, msgspec.json.encode(figures).decode())
    await scene.store.register([HandlerInfo(name=outbox("videos"), queue=outbox("videos"), remote=True)])
    await scene.store.put([scene.store.new(outbox("videos"), queue=outbox("videos")) for _ in range(4)])


async def _alerts(scene: Scene) -> None:
    known = {
        "processing_delay": AlertState(
            phase=Phase.FIRING, since=shop.clock(9, 58), value=873.0 * SECOND, fired=1,
            about="tasks of queue scrape wait for 14m33s",
        ),
        "memory_usage": AlertState(
            phase=Phase.PENDING, since=shop.clock(10, 13), value=1.05,
            about="worker media-4 uses 105% of its soft memory limit",
        ),
        "dead_letter_rate": AlertState(value=0.02, fired=2),
    }  # fmt: skip
    channels = {
        "slack": ChannelNote(type="slack"),
        "ops-mail": ChannelNote(type="email"),
        "log": ChannelNote(type="log"),
    }
    notes = AlertNotes(at=scene.now, rules=rules_of({}), channels=channels, alerts=known)
    term = (await scene.store.campaign(next(iter(scene.sessions.values())))).term
    await scene.store.note_alerts(notes_text(notes), [], version=0, term=term)
    await scene.store.silence_alert("late_schedule", 8 * 3600 * SECOND, by="ben", reason="rollout of 1.14")
