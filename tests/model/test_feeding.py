"""How much work a pool can feed, and what that means for the number of workers."""

import msgspec
import pytest

from pitboss.model.batch import Batch, BatchStatus
from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import HOUR, MINUTE, Limits, PoolRules, ResourcePool, Stage
from pitboss.model.scaling import PoolLoad, ScalingState, decide
from pitboss.model.states import State
from pitboss.model.supply import feed, flow, with_batches


def _pool(stages: dict[Stage, int], limits: Limits) -> ResourcePool:
    return ResourcePool(name="proxies", rules=PoolRules(limits=limits), stages=stages)


SOME = {Stage.READY: 2, Stage.BUSY: 1, Stage.AWAY: 1, Stage.OUT: 5}


def test_a_pool_feeds_as_many_tasks_as_can_hold_a_member() -> None:
    assert feed(_pool(SOME, Limits())) == 4
    assert feed(_pool(SOME, Limits(concurrency=3))) == 12
    assert feed(_pool(SOME, Limits(concurrency=None))) is None
    assert feed(_pool({Stage.OUT: 3}, Limits())) == 0


@pytest.mark.parametrize(
    ("limits", "per_second"),
    [
        (Limits(), None),
        (Limits(windows=(Window(50, HOUR),)), 4 * 50 / 3600),
        (Limits(windows=(Window(50, HOUR), Window(1, MINUTE))), 4 * 50 / 3600),
        (Limits(min_delay=2 * SECOND), 2.0),
        (Limits(min_delay=SECOND, jitter=2 * SECOND), 2.0),
        (Limits(min_delay=2 * SECOND, delay_from="end"), None),
    ],
)
def test_in_the_long_run_the_tightest_limit_counts(limits: Limits, per_second: float | None) -> None:
    assert flow(_pool(SOME, limits)) == (None if per_second is None else pytest.approx(per_second))


SPEC = PoolSpec(min_workers=1, max_workers=32, concurrency=4)
LOAD = PoolLoad(pending=10_000, oldest_wait=600 * SECOND, mean=10 * SECOND, arrivals=50.0, running=4, ready=1)


@pytest.mark.parametrize(("fed", "managers", "most"), [(8, 1, 2), (9, 1, 3), (16, 2, 2), (0, 1, 1), (None, 1, 3)])
def test_no_more_workers_than_the_resources_feed(fed: int | None, managers: int, most: int) -> None:
    load = msgspec.structs.replace(LOAD, feed=fed, managers=managers)
    decision = decide(load, SPEC, ScalingState(size=1), now=1000 * SECOND)
    assert decision.size == most, decision.why


def test_a_person_is_told_why() -> None:
    load = msgspec.structs.replace(LOAD, feed=4)
    assert decide(load, SPEC, ScalingState(size=1), now=1000 * SECOND).why == "held at 1: its resources feed no more"


def _batch(status: BatchStatus, held: int, position: int | None = None, queues: tuple[str, ...] = ("web",)) -> Batch:
    return Batch(id="b", status=status, position=position, queues=queues, counts={State.HELD: held, State.COMPLETED: 9})


def test_items_that_wait_to_be_drawn_are_work_and_the_next_batch_is_coming() -> None:
    line = [
        _batch(BatchStatus.RUNNING, 100, 0),
        _batch(BatchStatus.QUEUED, 40, 1),
        _batch(BatchStatus.QUEUED, 5000, 2),
        _batch(BatchStatus.PAUSED, 7000),
    ]
    load = with_batches(PoolLoad(pending=3), line, {"web": None})
    assert (load.pending, load.coming) == (103, 0), "the one before it still has items to draw"
    load = with_batches(PoolLoad(pending=3), [_batch(BatchStatus.RUNNING, 0, 0), *line[1:]], {"web": None})
    assert (load.pending, load.coming) == (3, 40)


def test_of_a_batch_counts_what_can_hold_a_member_at_a_time() -> None:
    line = [_batch(BatchStatus.RUNNING, 100, 0)]
    assert with_batches(PoolLoad(pending=3), line, {"web": 5}).pending == 8


def test_items_on_queues_of_others_are_not_counted() -> None:
    line = [_batch(BatchStatus.RUNNING, 100, 0, ("mail",)), _batch(BatchStatus.RUNNING, 10, 0, ("web", "mail"))]
    assert with_batches(PoolLoad(), line, {"web": None}).pending == 5


def test_a_pool_of_workers_grows_for_a_batch_of_which_little_is_drawn() -> None:
    spec = PoolSpec(name="p", min_workers=1, max_workers=8, concurrency=1)
    load = PoolLoad(pending=2, running=1, ready=1, mean=5 * SECOND, oldest_wait=0)
    drawn = decide(load, spec, ScalingState(size=1), 1000 * SECOND).size
    batch = with_batches(load, [_batch(BatchStatus.RUNNING, 500, 0)], {"web": None})
    assert decide(batch, spec, ScalingState(size=1), 1000 * SECOND).size > drawn
