"""Why tasks and batches wait, from what was read. `tests/operate/test_why.py` seeds each situation on every engine."""

from typing import Any

import msgspec
import pytest

from pitboss.model.batch import Batch, BatchStatus, Lane
from pitboss.model.duration import SECOND
from pitboss.model.eta import Range
from pitboss.model.fleet import ManagerView
from pitboss.model.gates import Line, Scene
from pitboss.model.limits import rate
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.partition_findings import WaitingKeys
from pitboss.model.partition_gates import Unowned
from pitboss.model.queue import Queue
from pitboss.model.resource import PoolRules, Record, Resource
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures
from pitboss.model.states import State
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task, TaskError
from pitboss.model.waiting import MOST_BEFORE, Why, spoken_place, spoken_start, troubles, why_batch, why_task

NOW = 1_800_000_000_000_000
SESSION = Session(number=1, info=SessionInfo(host="there", handlers=("f",)), opened_at=0, expires_at=NOW + SECOND)
MANAGER = ManagerView(SESSION, Snapshot())
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
BOUND = Queue(name="q", resources="proxies")


def task(state: State = State.PENDING, **options: Any) -> Task:
    return Task(**{"id": "x", "handler": "f", "queue": "q", "state": state, "params": "{}"} | options)


def scene(*, queue: Queue | None = None, pool: ResourcePoolView = FREE, **given: Any) -> Scene:
    usual = {"managers": [MANAGER], "queues": {"q": queue or Queue(name="q")}, "pools": {"proxies": pool}}
    return Scene(now=NOW, **usual | given)


ITEM = task(State.HELD, reason="batch", batch="b")


@pytest.mark.parametrize(
    ("said", "batch", "around"),
    [
        (None, {}, {}),
        (None, {"status": BatchStatus.DONE}, {}),
        (
            'it waits for its turn in lane "slow": place 2 of 5',
            {"status": BatchStatus.QUEUED, "lane": "slow", "position": 2},
            {"lanes": {"slow": Lane(name="slow", queued=5)}},
        ),
        ("it is paused until an operator resumes it", {"status": BatchStatus.PAUSED}, {}),
        (
            "it is pausing: it waits for 1 running item to end",
            {"status": BatchStatus.PAUSING, "counts": {State.RUNNING: 1}},
            {},
        ),
        ("no manager is running on this store", {}, {"managers": []}),
        ('queue "q" is paused', {}, {"queue": Queue(name="q", paused=True)}),
        ("it waits for a resource: 5 proxies cooling, next in 4m12s", {}, {"queue": BOUND, "pool": COOLING}),
        (None, {"counts": {State.RUNNING: 1, State.HELD: 2}}, {"queue": BOUND, "pool": COOLING}),
        (None, {}, {"queue": BOUND, "pool": BRIEFLY}),
        ('resource pool "gone" has no members', {}, {"queue": Queue(name="q", resources="gone")}),
    ],
)
def test_why_a_batch_waits(said: str | None, batch: dict[str, Any], around: dict[str, Any]) -> None:
    given: dict[str, Any] = {"status": BatchStatus.RUNNING, "counts": {State.HELD: 3}, "queues": ("q",)} | batch
    why = why_batch(Batch(id="b", **given), scene(**around), ITEM)
    assert (None if why is None else why.sentence) == said


def test_items_that_are_due_later_hold_a_batch_up() -> None:
    batch = Batch(id="b", status=BatchStatus.RUNNING, counts={State.SCHEDULED: 4})
    why = why_batch(batch, scene(), task(State.SCHEDULED, run_at=NOW + 60 * SECOND))
    assert why is not None
    assert why.sentence == "it has 4 items due later: is due in 1m"
    assert why_batch(batch, scene()) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (task(State.HELD, reason="handler"), 'knows the handler "f" has come: it is released within seconds'),
        (task(State.SCHEDULED, run_at=NOW + SECOND, reason="snoozed"), "due in 1s: snoozed"),
        (task(State.SCHEDULED), "it is ready"),
        (task(State.PENDING, run_at=NOW + 3600 * SECOND), "it is ready"),
        (
            task(State.SCHEDULED, run_at=NOW + SECOND, attempts=2, error=TaskError(category="error", message="no")),
            "attempt 2 failed (no), and the next one is due in 1s",
        ),
        (task(State.RUNNING, session=1, started_at=NOW - 5 * SECOND), "it runs for 5s on there"),
        (task(State.RUNNING, session=1, cancel_asked=True), "asked to stop"),
        (task(State.RUNNING, session=9, started_at=NOW), "its manager is gone; it runs again within seconds"),
        (task(State.RUNNING, session=9, cancel_asked=True), "its manager is gone; it is cancelled within seconds"),
        (task(State.COMPLETED), "it has ended: completed"),
        (task(State.FAILED, reason="attempts used up"), "it has ended: attempts used up"),
    ],
)
def test_what_a_task_does(found: Task, said: str) -> None:
    assert said in why_task(found, scene(), [SESSION]).sentence


def test_a_manager_that_names_no_handlers_knows_all() -> None:
    info = msgspec.structs.replace(SESSION.info, handlers=())
    every = ManagerView(msgspec.structs.replace(SESSION, info=info), Snapshot())
    assert why_task(task(handler="other"), scene(managers=[every])).cause == "ready"
    assert why_task(task(handler="other"), scene()).cause == "handler"


def test_the_pace_of_workers_and_the_line_give_an_estimate() -> None:
    worker = WorkerFigures(name="w-1", pool="w", running=2, mean=6 * SECOND)
    busy = ManagerView(SESSION, Snapshot(pools=(PoolFigures(name="w", concurrency=2, wanted=1),), workers=(worker,)))
    line = Line([task(id=f"a{number}") for number in range(19)])
    why = why_task(task(), scene(managers=[busy], lines={"q": line}))
    assert (why.cause, spoken_start(why)) == ("busy", "in about 1m, give or take 15s")
    more = why_task(task(), scene(managers=[busy], lines={"q": Line(line.tasks, False)}))
    assert spoken_start(more) == "in at least 1m"


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Why(sentence="", cause="", starts=Range(0, 0)), "at once"),
        (Why(sentence="", cause="", starts=Range(7_400_000, 7_400_000)), "in 8s"),
        (Why(sentence="", cause="", starts=Range(0, None)), "unknown"),
        (Why(sentence="", cause="", stuck=True, starts=Range(0, 0)), "not before that is changed"),
    ],
)
def test_when_it_starts_in_words(why: Why, said: str) -> None:
    assert spoken_start(why) == said


def test_the_normal_course_of_things_is_no_trouble() -> None:
    queue = Queue(name="q", rate=rate("1/m"), opens_at=NOW + SECOND, counts={State.PENDING: 7})
    assert troubles([(task(), why_task(task(), scene(queue=queue)))], [queue]) == []
    cooling = msgspec.structs.replace(BOUND, counts={State.PENDING: 7})
    (found,) = troubles([(task(), why_task(task(), scene(queue=cooling, pool=COOLING)))], [cooling])
    assert (found.cause, found.tasks, found.stuck) == ("cooling", 7, False)


def test_tasks_whose_keys_have_no_slot_are_counted_by_key() -> None:
    """One held item of a batch speaks for its own key, and not for the 2,098 other items of its queue."""
    queue = Queue(name="q", partitions=Partitioning(by="{k}", mode="static", pool="w"), counts={State.HELD: 2098})
    keys = {("q", "S42"): Partition(queue="q", key="S42", owner="w/2")}
    item = task(State.HELD, reason="batch", partition="S42")
    why = why_task(item, scene(queue=queue, keys=keys))
    lacking = Unowned(cause="slot-missing", says="", stuck=True)
    (found,) = troubles([(item, why)], [queue], [WaitingKeys(queue="q", keys=("S42",), waiting=894, why=lacking)])
    assert found.said.startswith('894 tasks of queue "q" cannot start; one of them: its key S42 belongs to slot w/2')
    (found,) = troubles([(item, why)], [queue])
    assert found.said.startswith('at least 1 task of queue "q" cannot start: its key S42 belongs to slot w/2')


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (None, None),
        (0, "about 1st of its queue, by priority and age"),
        (10, "about 11th of its queue, by priority and age"),
        (1202, "about 1,203rd of its queue, by priority and age"),
        (MOST_BEFORE, "behind 20,000+ pending tasks of its queue, by priority and age"),
    ],
)
def test_the_place_in_line_is_told_in_words(before: int | None, said: str | None) -> None:
    assert spoken_place(Why(sentence="it waits", cause="line", before=before)) == said


def test_seats_beside_a_task_that_runs_alone_are_not_free() -> None:
    """Regression: "30 of 32 seats free" counted those of workers that took nothing."""
    alone = WorkerFigures(name="w-1", pool="w", running=1, room=0)
    pool = PoolFigures(name="w", concurrency=16, wanted=2)
    shut = ManagerView(SESSION, Snapshot(pools=(pool,), workers=(alone, alone)))
    why = why_task(task(), scene(managers=[shut]))
    assert (why.cause, why.shut and why.shut.figure) == ("busy", "0 of 32 seats free")
    assert "2 of 32 seats are in use, and the others pause or run a task alone" in why.sentence
    room = ManagerView(SESSION, Snapshot(pools=(pool,), workers=(alone, msgspec.structs.replace(alone, room=15))))
    assert "15 of 32 seats free" in [gate.figure for gate in why_task(task(), scene(managers=[room])).gates]
