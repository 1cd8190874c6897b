"""The scaling decision: bounds that always hold, and the reason that each limit gives."""

from math import ceil, sqrt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.pool import PoolSpec
from pitboss.model.scaling import COOL_DOWN, IDLE, LATE, Arrivals, Decision, PoolLoad, ScalingState, decide, workers_for

NOW = 10_000 * SECOND
TICK = 2 * SECOND
SPEC = PoolSpec(min_workers=1, max_workers=32, concurrency=4, target_wait=5 * SECOND)

maybe_past = st.none() | st.integers(NOW - 2 * COOL_DOWN, NOW)


@st.composite
def specs(draw: st.DrawFn, least: int | None = None) -> PoolSpec:
    low = draw(st.integers(0, 10)) if least is None else least
    return PoolSpec(
        min_workers=low,
        max_workers=low + draw(st.integers(0, 40)),
        concurrency=draw(st.integers(1, 20)),
        cpu=draw(st.none() | st.floats(0.1, 4)),
        target_wait=draw(st.integers(0, 60 * SECOND)),
        delay=(0, draw(st.sampled_from([0, SECOND]))),
    )


loads = st.builds(
    PoolLoad,
    pending=st.integers(0, 5000),
    coming=st.sampled_from([0, 0, 1, 700]),
    oldest_wait=st.integers(0, 600 * SECOND),
    arrivals=st.floats(0, 500),
    rate=st.none() | st.floats(0, 100),
    managers=st.integers(1, 4),
    rank=st.integers(0, 3),
    running=st.integers(0, 400),
    ready=st.none() | st.integers(0, 50),
    free=st.integers(0, 400),
    mean=st.none() | st.integers(0, 900 * SECOND),
    p90=st.none() | st.integers(0, 900 * SECOND),
    cores=st.none() | st.integers(1, 64),
    free_memory=st.none() | st.integers(0, 10_000),
    worker_memory=st.none() | st.integers(0, 500),
)

idle_loads = loads.map(lambda load: changed(load, pending=0, coming=0, running=0))

states = st.builds(
    ScalingState,
    size=st.integers(0, 60),
    direction=st.sampled_from([-1, 0, 1]),
    changed_at=st.integers(NOW - 2 * COOL_DOWN, NOW),
    quiet_until=st.integers(NOW - COOL_DOWN, NOW + 2 * COOL_DOWN),
    below_since=maybe_past,
    peak=st.integers(0, 60),
    peak_at=st.integers(NOW - 2 * COOL_DOWN, NOW),
    late_since=maybe_past,
    idle_since=maybe_past,
    hindered_since=maybe_past,
    hindered_at=maybe_past,
)


def changed(load: PoolLoad, **changes: object) -> PoolLoad:
    return msgspec.structs.replace(load, **changes)


def course(load: PoolLoad, spec: PoolSpec, state: ScalingState, seconds: int) -> list[Decision]:
    """The decisions under a constant load."""
    taken = []
    for now in range(NOW, NOW + seconds * SECOND, TICK):
        taken.append(decide(load, spec, state, now))
        state = taken[-1].state
    return taken


@given(loads, specs(), states)
def test_the_size_is_always_within_its_bounds(load: PoolLoad, spec: PoolSpec, state: ScalingState) -> None:
    found = decide(load, spec, state, NOW)
    assert spec.min_workers <= found.size <= spec.max_workers
    assert found.state.size == found.size
    assert found.why


@given(loads, specs(), states)
def test_cores_carry_no_more_than_they_can(load: PoolLoad, spec: PoolSpec, state: ScalingState) -> None:
    found = decide(load, spec, state, NOW)
    if spec.cpu and load.cores:
        assert found.size <= max(1, spec.min_workers, load.cores / spec.cpu + 1e-6)


@given(loads, specs(), states, st.floats(0, 100), st.integers(0, 900 * SECOND))
def test_nothing_is_raised_above_what_the_rate_feeds(
    load: PoolLoad, spec: PoolSpec, state: ScalingState, rate: float, mean: int
) -> None:
    load = changed(load, rate=rate, mean=mean, managers=1, rank=0)
    slots = rate * (max(mean, 1) + sum(spec.delay) / 2) / SECOND
    ceiling = max(1, ceil((slots + sqrt(slots)) / spec.concurrency), spec.min_workers)
    assert decide(load, spec, state, NOW).size <= max(ceiling, state.size)
    assert course(load, spec, ScalingState(), 300)[-1].size <= ceiling


@given(loads, specs(), states, st.integers(1, 5000))
def test_more_backlog_never_means_fewer_workers(load: PoolLoad, spec: PoolSpec, state: ScalingState, more: int) -> None:
    higher = changed(load, pending=load.pending + more)
    assert decide(load, spec, state, NOW).size <= decide(higher, spec, state, NOW).size


@given(loads, specs(), states)
def test_asking_twice_changes_nothing(load: PoolLoad, spec: PoolSpec, state: ScalingState) -> None:
    first = decide(load, spec, state, NOW)
    second = decide(load, spec, first.state, NOW)
    assert (second.size, second.state) == (first.size, first.state)


@given(loads, specs(), states)
def test_a_load_that_stays_moves_the_size_one_way_and_to_rest(
    load: PoolLoad, spec: PoolSpec, state: ScalingState
) -> None:
    sizes = [found.size for found in course(load, spec, state, 1200)]
    assert sizes in (sorted(sizes), sorted(sizes, reverse=True))
    assert len(set(sizes[-100:])) == 1


@given(loads, specs(), states)
def test_a_raise_at_most_doubles_and_adds_one_and_takes_its_time(
    load: PoolLoad, spec: PoolSpec, state: ScalingState
) -> None:
    sizes = [found.size for found in course(load, spec, state, 60)]
    start = max(spec.min_workers, min(state.size, spec.max_workers))
    for before, after, later in zip([start, *sizes], sizes, sizes[1:], strict=False):
        assert after <= 2 * before + 1
        assert later <= after or after <= before


@given(st.lists(st.tuples(loads | idle_loads, st.integers(1, 200)), min_size=2, max_size=12), specs())
def test_whatever_comes_a_cut_keeps_its_distance_and_turns_are_few(
    phases: list[tuple[PoolLoad, int]], spec: PoolSpec
) -> None:
    """Random loads, each for some decisions: no cut within a cool-down after a raise, one turn in each."""
    now, state, raised, turns, way = NOW, ScalingState(), -COOL_DOWN, 0, 0
    for load, looks in phases:
        for _ in range(looks):
            now, before = now + TICK, max(spec.min_workers, state.size)
            # Cores are part of the bounds, and bounds hold at once.
            state = decide(changed(load, cores=None), spec, state, now).state
            moved = (state.size > before) - (state.size < before)
            assert moved >= 0 or now - raised >= COOL_DOWN
            raised = now if moved > 0 else raised
            turns, way = turns + (moved == -way != 0), moved or way
    assert turns <= 2 + (now - NOW) / COOL_DOWN


@given(loads, specs(least=0), states)
def test_idle_ends_at_no_workers_where_that_is_allowed(load: PoolLoad, spec: PoolSpec, state: ScalingState) -> None:
    idle = changed(load, pending=0, coming=0, running=0)
    seconds = (IDLE + 3 * COOL_DOWN) // SECOND
    assert course(idle, spec, state, seconds)[-1].size == 0
    assert course(idle, spec, ScalingState(), seconds)[0].size == 0


@given(loads, specs(least=0), states, st.integers(1, 1000))
def test_the_first_task_wakes_the_first_manager(
    load: PoolLoad, spec: PoolSpec, state: ScalingState, pending: int
) -> None:
    asleep = msgspec.structs.replace(state, size=0, peak=0)
    found = decide(changed(load, pending=pending, rank=0), spec, asleep, NOW)
    assert found.size == min(1, spec.max_workers)


@given(loads, specs())
def test_managers_share_without_one_too_many(load: PoolLoad, spec: PoolSpec) -> None:
    """Every manager reaches its share of the same total."""
    roomy = PoolSpec(min_workers=0, max_workers=10**9, concurrency=spec.concurrency, target_wait=spec.target_wait)
    load = changed(load, mean=load.mean or 1, rate=None, running=40, p90=0, oldest_wait=0, ready=None)
    load = changed(load, pending=load.pending + 1, cores=None, free_memory=None)
    total = workers_for(load, roomy)
    parts = [course(changed(load, rank=rank), roomy, ScalingState(), 200)[-1].size for rank in range(load.managers)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


def test_littles_law_in_figures() -> None:
    """10 a second for 2 s each keep 20 slots busy; a backlog of 50 needs 20 more to be done in 5 s."""
    assert workers_for(PoolLoad(arrivals=10, mean=2 * SECOND, running=20), SPEC) == 5
    assert workers_for(PoolLoad(arrivals=10, mean=2 * SECOND, running=20, pending=50), SPEC) == 10


def test_a_few_long_tasks_get_a_slot_each_and_no_more() -> None:
    """Three tasks of ten minutes within a minute: the arrival rate asks for 30 slots, but there are three tasks."""
    spec = PoolSpec(min_workers=0, max_workers=64, concurrency=1)
    load = PoolLoad(pending=3, arrivals=3 / 60, mean=600 * SECOND)
    assert workers_for(load, spec) == 4
    assert workers_for(changed(load, pending=0, running=3), spec) == 4


def test_the_pause_between_tasks_takes_its_slot_too() -> None:
    spec = PoolSpec(max_workers=99, concurrency=1, delay=(8 * SECOND, 20 * SECOND))
    assert workers_for(PoolLoad(arrivals=1, mean=6 * SECOND, pending=100), spec) == 105
    assert workers_for(PoolLoad(arrivals=1, mean=6 * SECOND, running=20), spec) == 20


def test_workers_with_long_tasks_are_kept_until_these_end() -> None:
    spec = PoolSpec(min_workers=0, max_workers=20, concurrency=1)
    state = ScalingState(size=8)
    busy = PoolLoad(running=8, mean=600 * SECOND)
    assert course(busy, spec, state, 600)[-1].size == 8
    assert course(changed(busy, running=3), spec, state, 600)[-1].size == 3
    assert course(changed(busy, running=3, mean=SECOND), spec, state, 600)[-1].size == 1


def test_nothing_shrinks_before_the_cool_down() -> None:
    sizes = [found.size for found in course(PoolLoad(mean=SECOND), SPEC, ScalingState(size=9), 80)]
    assert sizes == [9] * 30 + [1] * 10


def test_a_peak_within_the_cool_down_is_what_is_kept() -> None:
    state = ScalingState(size=9)
    for second in range(0, 62, 2):
        load = PoolLoad(mean=SECOND, arrivals=16 if second == 10 else 4, running=16)
        state = decide(load, SPEC, state, NOW + second * SECOND).state
    assert state.size == 4


def test_a_need_that_rises_is_not_cut_to_what_it_was() -> None:
    def risen(rise: float) -> list[int]:
        state, sizes = ScalingState(size=20), []
        for second in range(0, 80, 2):
            load = PoolLoad(mean=SECOND, arrivals=second * rise, running=second)
            state = decide(load, SPEC, state, NOW + second * SECOND).state
            sizes.append(state.size)
        return sizes

    assert set(risen(1.0)) == {20}
    assert risen(0.2)[-1] == 6


def test_a_jump_after_a_cut_is_answered_at_once_and_paid_for_later() -> None:
    low = PoolLoad(mean=SECOND, arrivals=4, running=4)
    high = PoolLoad(mean=SECOND, arrivals=60, running=4, pending=60, oldest_wait=4 * SECOND)
    now, state = NOW, ScalingState(size=8, direction=1)
    cut = decide(
        low, SPEC, msgspec.structs.replace(state, below_since=now - COOL_DOWN, peak=1, peak_at=now - COOL_DOWN), now
    )
    assert cut.size == 1
    assert decide(changed(high, oldest_wait=SECOND), SPEC, cut.state, now + TICK).size == 1
    jump = decide(high, SPEC, cut.state, now + TICK)
    assert jump.size == 3
    later = decide(low, SPEC, jump.state, now + 2 * TICK).state
    assert decide(low, SPEC, later, now + TICK + COOL_DOWN + 2 * TICK).size == 3
    assert decide(low, SPEC, later, now + 2 * COOL_DOWN).size == 1


def test_a_cut_that_saves_little_is_not_made() -> None:
    load = PoolLoad(mean=SECOND, running=60)
    assert course(changed(load, arrivals=36), SPEC, ScalingState(size=11), 300)[-1].size == 11
    assert course(changed(load, arrivals=36), SPEC, ScalingState(size=12), 300)[-1].size == 10
    assert course(changed(load, arrivals=4), SPEC, ScalingState(size=2), 300)[-1].size == 1


def test_a_wait_beside_free_slots_is_no_reason_to_keep_workers() -> None:
    load = PoolLoad(pending=3, oldest_wait=60 * SECOND, mean=1000, running=1, ready=5, free=19)
    assert course(load, SPEC, ScalingState(size=5), 120)[-1].size == 1


def test_a_batch_that_comes_next_finds_workers_ready() -> None:
    load = PoolLoad(coming=700, mean=SECOND, ready=1, free=4)
    assert decide(load, SPEC, ScalingState(size=1), NOW).size == 3


def test_what_only_used_to_arrive_raises_nothing() -> None:
    assert decide(PoolLoad(arrivals=50, mean=SECOND), SPEC, ScalingState(size=2), NOW).size == 2


def test_a_pool_at_rest_sleeps_while_its_last_tasks_end_and_wakes_for_the_smallest() -> None:
    spec = PoolSpec(min_workers=0, max_workers=4, target_wait=3600 * SECOND)
    assert decide(PoolLoad(running=3, arrivals=50, mean=SECOND), spec, ScalingState(), NOW).size == 0
    assert decide(PoolLoad(pending=1, mean=0), spec, ScalingState(), NOW).size == 1


def test_bounds_that_were_changed_hold_at_once() -> None:
    """A peak from the time of a larger maximum must not come back as a size."""
    state = ScalingState(size=30, below_since=NOW - 2 * COOL_DOWN, peak=20, peak_at=NOW - COOL_DOWN)
    low, high = PoolSpec(min_workers=1, max_workers=4), PoolSpec(min_workers=40, max_workers=50)
    for spec, size in ((low, 4), (high, 40)):
        taken = course(PoolLoad(mean=SECOND), spec, state, 20)
        assert {found.size for found in taken} == {size}


def test_tasks_that_are_late_beside_free_slots_are_remembered() -> None:
    """One moment without free slots among many with some is chance, not a lack of workers."""
    stuck = PoolLoad(pending=900, oldest_wait=60 * SECOND, mean=SECOND, running=5, ready=3, free=7)
    state = course(stuck, SPEC, ScalingState(size=3), 10)[-1].state
    full = changed(stuck, running=12, free=0)
    found = decide(full, SPEC, state, NOW + 10 * SECOND)
    assert found.size == 3
    assert decide(full, SPEC, found.state, NOW + 8 * SECOND + COOL_DOWN).size == 7


def test_a_rate_that_is_lifted_is_felt_at_once() -> None:
    stuck = PoolLoad(pending=900, oldest_wait=60 * SECOND, mean=SECOND, running=5, ready=2, free=3, rate=5.0)
    state = course(stuck, SPEC, ScalingState(size=2), 60)[-1].state
    assert decide(changed(stuck, rate=100.0, running=8, free=0), SPEC, state, NOW + COOL_DOWN).size == 5


def test_workers_that_are_still_empty_for_a_moment_do_not_count_as_free_slots() -> None:
    fresh = PoolLoad(pending=900, oldest_wait=60 * SECOND, mean=SECOND, running=1, ready=3, free=11)
    state = decide(fresh, SPEC, ScalingState(size=3), NOW).state
    assert decide(changed(fresh, running=12, free=0), SPEC, state, NOW + TICK).size == 7


def test_unknown_service_time_adds_one_at_a_time_while_tasks_are_late() -> None:
    late = PoolLoad(pending=500, oldest_wait=9 * SECOND, running=4, ready=1)
    sizes = [decide(late, SPEC, ScalingState(size=1), NOW).size]
    assert sizes == [2]
    assert [found.size for found in course(changed(late, ready=None), SPEC, ScalingState(size=1), 12)] == [
        2, 2, 3, 3, 4, 4,
    ]  # fmt: skip
    assert course(changed(late, oldest_wait=SECOND), SPEC, ScalingState(size=1), 60)[-1].size == 1


def test_a_wait_that_stays_over_its_target_is_believed_more_than_the_formula() -> None:
    """By the mean one worker is enough; the waiting tasks show that it is not."""
    load = PoolLoad(pending=3, oldest_wait=40 * SECOND, mean=1000, running=4, ready=None)
    taken = course(load, SPEC, ScalingState(size=1), 60)
    assert [found.size for found in taken[: LATE // TICK]] == [1] * (LATE // TICK)
    assert taken[-1].size > 5
    throttled = changed(load, rate=2.0)
    assert course(throttled, SPEC, ScalingState(size=1), 600)[-1].size == 1


@pytest.mark.parametrize(
    ("load", "size", "why"),
    [
        (
            PoolLoad(pending=480, oldest_wait=12 * SECOND, mean=SECOND, running=12, ready=3),
            7,
            "backlog 480, oldest waits 12s: 7 of 32 workers; more follow in a moment",
        ),
        (
            PoolLoad(pending=80, oldest_wait=1_234_567, mean=SECOND, running=12, ready=3),
            4,
            "backlog 80, oldest waits 1s: 4 of 32 workers",
        ),
        (
            PoolLoad(pending=10, coming=70, oldest_wait=345_678, mean=SECOND, running=12, ready=3),
            4,
            "backlog 10, oldest waits 345ms, 70 to come: 4 of 32 workers",
        ),
        (
            PoolLoad(pending=480, oldest_wait=90 * SECOND, mean=SECOND, running=12, ready=3, rate=8.0),
            3,
            "held at 3: the rate of its queues feeds no more",
        ),
        (
            PoolLoad(pending=480, mean=SECOND, running=12, ready=3, free_memory=100, worker_memory=300),
            3,
            "held at 3: the host has no memory for more",
        ),
        (
            PoolLoad(pending=480, mean=SECOND, running=12, ready=3, free_memory=700, worker_memory=300),
            5,
            "backlog 480, oldest waits 0ms: 5 of 32 workers; the host has no memory for more",
        ),
        (
            PoolLoad(pending=480, mean=SECOND, running=1, ready=3, free=11),
            3,
            "held at 3: slots are free, so tasks do not wait for workers",
        ),
        (
            PoolLoad(pending=480, mean=SECOND, running=4, ready=1),
            3,
            "held at 3: the workers already requested have to start first",
        ),
        (
            PoolLoad(pending=480, oldest_wait=90 * SECOND, mean=SECOND, running=4, ready=3, rate=2.0),
            3,
            "kept at 3 of 32: the rate feeds 1, for 0ms so far",
        ),
        (PoolLoad(running=7, arrivals=9, mean=SECOND, ready=3), 3, "7 running: 3 of 32 workers"),
        (PoolLoad(running=2, arrivals=2, mean=SECOND, ready=3), 3, "kept at 3 of 32: 1 would do, for 0ms so far"),
    ],
)
def test_people_are_told_why(load: PoolLoad, size: int, why: str) -> None:
    found = decide(load, SPEC, ScalingState(size=3), NOW)
    assert (found.size, found.why) == (size, why)


def test_people_are_told_of_cores_of_the_maximum_and_of_rest() -> None:
    load = PoolLoad(pending=480, oldest_wait=12 * SECOND, mean=SECOND, running=16, ready=4, cores=2)
    tight = PoolSpec(min_workers=0, max_workers=8, concurrency=4, cpu=0.5)
    full = PoolSpec(min_workers=0, max_workers=4, concurrency=4)
    state = ScalingState(size=4)
    assert decide(load, tight, state, NOW).why == "held at 4: 2 cores carry no more workers of 0.5"
    assert decide(load, full, state, NOW).why == "backlog 480, oldest waits 12s: 4 of 4 workers"
    taken = course(PoolLoad(mean=SECOND), full, state, 400)
    assert taken[29].size == 4
    assert (taken[30].size, taken[30].why) == (0, "idle for 1m: no workers")
    assert taken[31].why == "nothing waits: 0 of 4 workers"


def test_arrivals_follow_what_comes() -> None:
    arrivals = Arrivals()
    assert arrivals.count(1000, NOW) == 0
    found = [arrivals.count(20, NOW + second * SECOND) for second in range(2, 62, 2)][-1]
    assert found == pytest.approx(10, rel=0.02)
    assert arrivals.count(0, NOW + 70 * SECOND) == pytest.approx(found / 2, rel=0.35)
    assert arrivals.count(5, NOW) > 0
