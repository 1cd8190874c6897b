"""What a batch, and an item of one, says that it waits for."""

from typing import Any

import pytest

from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.batch_waiting import batch_waits
from pitboss.model.duration import SECOND
from pitboss.model.queue import Queue
from pitboss.model.resource import PoolRules, Record, Resource
from pitboss.model.session import Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.supply import PoolView
from pitboss.model.task import Task
from pitboss.model.waiting import why

NOW = 1_800_000_000_000_000
MANAGER = Session(number=1, info=SessionInfo(host="h", handlers=("check",)), opened_at=0, expires_at=NOW + SECOND)
COOLING = PoolView(
    "proxies",
    PoolRules(),
    [
        Resource(
            pool="proxies",
            name=f"p{number}",
            available_at=NOW + 252 * SECOND,
            record=Record(cooldown_until=NOW + 252 * SECOND),
        )
        for number in range(5)
    ],
)
BRIEFLY = PoolView("proxies", PoolRules(), [Resource(pool="proxies", name="p", available_at=NOW + SECOND)])
FREE = PoolView("proxies", PoolRules(), [Resource(pool="proxies", name="p")])


def told(
    status: BatchStatus = BatchStatus.RUNNING,
    counts: dict[State, int] | None = None,
    *,
    queue: Queue | None = None,
    pool: PoolView = FREE,
    sessions: tuple[Session, ...] = (MANAGER,),
    **values: Any,
) -> str | None:
    batch = Batch(id="b", status=status, counts={State.HELD: 3} if counts is None else counts, queues=("q",), **values)
    queues = {"q": queue or Queue(name="q")}
    return batch_waits(batch, queues=queues, pools={"proxies": pool}, sessions=sessions, now=NOW)


BOUND = Queue(name="q", resources="proxies")


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (None, {}),
        (None, {"status": BatchStatus.DONE}),
        ('for its turn in lane "slow": place 2', {"status": BatchStatus.QUEUED, "lane": "slow", "position": 2}),
        ("for somebody to resume it", {"status": BatchStatus.PAUSED}),
        ("for 1 running item to end", {"status": BatchStatus.PAUSING, "counts": {State.RUNNING: 1}}),
        ("for 2 running items to end", {"status": BatchStatus.CANCELLING, "counts": {State.RUNNING: 2}}),
        ("for a manager: none is running on this store", {"sessions": ()}),
        ('for "q", which is paused', {"queue": Queue(name="q", paused=True)}),
        ("5 proxies cooling, next in 4m12s", {"queue": BOUND, "pool": COOLING}),
        (None, {"queue": BOUND, "pool": COOLING, "counts": {State.RUNNING: 1, State.HELD: 2}}),
        (None, {"queue": BOUND, "pool": FREE}),
        (None, {"queue": BOUND, "pool": BRIEFLY}),
        (None, {"queue": Queue(name="q", resources="unknown")}),
        ("for 4 items that are due later", {"counts": {State.SCHEDULED: 4, State.COMPLETED: 1}}),
        (None, {"counts": {State.SCHEDULED: 4, State.PENDING: 1}}),
    ],
)
def test_a_batch_says_what_it_waits_for(said: str | None, given: dict[str, Any]) -> None:
    assert told(**given) == said


def test_an_item_says_how_its_batch_stands_and_what_its_pool_lacks() -> None:
    held = Task(id="t", handler="check", queue="q", params="{}", state=State.HELD, reason="batch", batch="b")
    assert why(held, queue=None, sessions=(), now=NOW, batch="paused").endswith("from its batch, which is paused")
    pending = Task(id="t", handler="check", queue="q", params="{}", state=State.PENDING)
    waits = why(pending, queue=BOUND, sessions=(MANAGER,), now=NOW, shortage="5 proxies cooling")
    assert waits == "it waits for a resource: 5 proxies cooling"
