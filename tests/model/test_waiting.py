"""Why tasks and batches wait."""

from typing import Any

import pytest

from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.queue import Queue
from pitboss.model.resource import PoolRules, Record, Resource
from pitboss.model.session import Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task, TaskError
from pitboss.model.waiting import why_batch_waits, why_task_waits

NOW = 1_800_000_000_000_000
MANAGER = Session(number=1, info=SessionInfo(host="h", handlers=("check",)), opened_at=0, expires_at=NOW + SECOND)
COOLING = ResourcePoolView(
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
BRIEFLY = ResourcePoolView("proxies", PoolRules(), [Resource(pool="proxies", name="p", available_at=NOW + SECOND)])
FREE = ResourcePoolView("proxies", PoolRules(), [Resource(pool="proxies", name="p")])


def reason(
    status: BatchStatus = BatchStatus.RUNNING,
    counts: dict[State, int] | None = None,
    *,
    queue: Queue | None = None,
    pool: ResourcePoolView = FREE,
    sessions: tuple[Session, ...] = (MANAGER,),
    **values: Any,
) -> str | None:
    batch = Batch(id="b", status=status, counts={State.HELD: 3} if counts is None else counts, queues=("q",), **values)
    queues = {"q": queue or Queue(name="q")}
    return why_batch_waits(batch, queues=queues, pools={"proxies": pool}, sessions=sessions, now=NOW)


BOUND = Queue(name="q", resources="proxies")


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (None, {}),
        (None, {"status": BatchStatus.DONE}),
        ('for its turn in lane "slow": place 2', {"status": BatchStatus.QUEUED, "lane": "slow", "position": 2}),
        ("for an operator to resume it", {"status": BatchStatus.PAUSED}),
        ("for 1 running item to end", {"status": BatchStatus.PAUSING, "counts": {State.RUNNING: 1}}),
        ("for 2 running items to end", {"status": BatchStatus.CANCELLING, "counts": {State.RUNNING: 2}}),
        ("for a manager: none is running on this store", {"sessions": ()}),
        ('for the paused queue "q"', {"queue": Queue(name="q", paused=True)}),
        ("5 proxies cooling, next in 4m12s", {"queue": BOUND, "pool": COOLING}),
        (None, {"queue": BOUND, "pool": COOLING, "counts": {State.RUNNING: 1, State.HELD: 2}}),
        (None, {"queue": BOUND, "pool": FREE}),
        (None, {"queue": BOUND, "pool": BRIEFLY}),
        (None, {"queue": Queue(name="q", resources="unknown")}),
        ("for 4 items due later", {"counts": {State.SCHEDULED: 4, State.COMPLETED: 1}}),
        (None, {"counts": {State.SCHEDULED: 4, State.PENDING: 1}}),
    ],
)
def test_why_a_batch_waits(said: str | None, given: dict[str, Any]) -> None:
    assert reason(**given) == said


def test_an_item_waits_for_its_batch_or_for_a_resource() -> None:
    held = Task(id="t", handler="check", queue="q", params="{}", state=State.HELD, reason="batch", batch="b")
    assert why_task_waits(held, queue=None, sessions=(), now=NOW, batch="paused").endswith(
        "in its batch, which is paused"
    )
    pending = Task(id="t", handler="check", queue="q", params="{}", state=State.PENDING)
    waits = why_task_waits(pending, queue=BOUND, sessions=(MANAGER,), now=NOW, shortage="5 proxies cooling")
    assert waits == "it waits for a resource: 5 proxies cooling"


def session(*, handlers: tuple[str, ...] = ("f",)) -> Session:
    info = SessionInfo(host="there", handlers=handlers)
    return Session(number=1, info=info, opened_at=NOW - SECOND, expires_at=NOW + SECOND)


def task(state: State, **options: object) -> Task:
    return Task(**{"id": "x", "handler": "f", "queue": "q", "state": state, "params": "{}"} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queue", "sessions", "said"),
    [
        (
            Queue(name="q", paused=True, paused_by="me", paused_at=NOW - 60 * SECOND),
            [session()],
            "paused by me since 1m",
        ),
        (Queue(name="q"), [], "no manager is running"),
        (Queue(name="q"), [session(handlers=("g",))], 'knows the handler "f"'),
        (Queue(name="q", rate=rate("2/s")), [session()], "at most 2 per 1s"),
        (None, [session(handlers=())], "waits for a free worker"),
    ],
)
def test_why_a_pending_task_waits(queue: Queue | None, sessions: list[Session], said: str) -> None:
    assert said in why_task_waits(task(State.PENDING), queue=queue, sessions=sessions, now=NOW)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (task(State.HELD), 'no worker knows the handler "f"'),
        (task(State.SCHEDULED, run_at=NOW + 60 * SECOND), "due in 1m"),
        (task(State.SCHEDULED, run_at=NOW, reason="snoozed"), "due now: snoozed"),
        (task(State.SCHEDULED), "it is scheduled"),
        (
            task(State.SCHEDULED, run_at=NOW + SECOND, attempts=2, error=TaskError(category="error", message="no")),
            "attempt 2 failed, and the next one is due in 1s",
        ),
        (task(State.RUNNING, session=1, started_at=NOW - 5 * SECOND), "it runs for 5s on there"),
        (task(State.RUNNING, cancel_asked=True), "asked to stop"),
        (task(State.COMPLETED), "it has ended: completed"),
        (task(State.FAILED, reason="attempts used up"), "it has ended: attempts used up"),
    ],
)
def test_why_any_other_task_is_where_it_is(found: Task, said: str) -> None:
    assert said in why_task_waits(found, queue=None, sessions=[session()], now=NOW)
