"""The pages that are tested everywhere, and a store with something of everything to show."""

from html.parser import HTMLParser
from typing import Any

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import NewResource, PoolRules
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.task import NewTask
from tests.http.web import batches, fleet, lives

# Paths below /ui.
PAGES = [
    "",
    "/queues",
    "/queues?q=ma",
    "/tasks",
    "/tasks?q=state:pending&order=oldest",
    "/tasks?q=state:pending+queue:mail",
    *fleet.PAGES,
    *lives.PAGES,
    "/activity",
    "/activity?what=pause&who=ana&kind=act&since=24h",
    "/alerts",
    "/sources",
    "/keys",
    "/system",
    *batches.PAGES,
]
# Pages of what `furnish` makes.
DETAILS = [*fleet.DETAILS, *lives.DETAILS, *batches.DETAILS]

# What would run or look otherwise if it were not escaped.
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}'


# The attributes that a browser follows.
_ADDRESSES = ("href", "src", "action", "formaction", "data", "xlink:href")


class _Inline(HTMLParser):
    """Reads a page as a browser does."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given) or tag == "img":
            self.found.append(tag)
        for name, value in given.items():
            runs = name in _ADDRESSES and (value or "").strip().lower().startswith("javascript:")
            if name == "style" or name.startswith("on") or runs:
                self.found.append(f"{tag} {name}={value}")


def inline(text: str) -> list[str]:
    """Scripts and styles that the page has in itself, and pictures, of which it has none."""
    reader = _Inline()
    reader.feed(text)
    return reader.found


async def furnish(store: FullStore, make_id: Any) -> None:
    """Three queues, tasks with hostile texts, a batch, a resource pool, a schedule's absence, and a manager."""
    tasks = [
        NewTask(id=make_id(), handler="send", queue=queue, params=msgspec.json.encode({"to": HOSTILE}).decode())
        for queue in ("mail", "scrape", "media")
        for _ in range(20)
    ]
    await store.register([HandlerInfo(name="send", queue="mail")])
    await store.put(tasks)
    await store.change_queue("mail", QueueChange(paused=True, by=HOSTILE, reason=HOSTILE))
    await store.declare_pool("proxies", PoolRules())
    await store.add_resources("proxies", [NewResource(name=f"p{number}") for number in range(12)])
    items = [NewTask(id=make_id(), handler="send", queue="scrape", params="{}") for _ in range(5)]
    await store.create_batch(NewBatch(id=make_id(), name=HOSTILE), items)
    session = await store.open_session(SessionInfo(host="box1", pid=1, ttl=3600 * SECOND))
    await store.renew(session.number, msgspec.json.encode(snapshot(tasks[0].id)).decode())
    await fleet.furnish_fleet(store, session.number, HOSTILE)
    await lives.furnish_lives(store, HOSTILE)
    await batches.furnish_batches(store, HOSTILE)


def snapshot(task: str) -> Snapshot:
    states = list(WorkerState)
    workers = [
        WorkerFigures(
            name=f"default-{place}",
            state=state,
            running=1 if state is WorkerState.PROCESSING else 0,
            tasks=(CurrentTask(id=task, handler=HOSTILE),) if state is WorkerState.PROCESSING else (),
            why=HOSTILE if state is WorkerState.RESTARTING else "",
            rss=200 << 20,
        )
        for place, state in enumerate(states)
    ]
    pool = PoolFigures(name="default", concurrency=4, wanted=len(states), memory=1 << 30)
    return Snapshot(pools=(pool,), workers=tuple(workers), concurrency=4)
