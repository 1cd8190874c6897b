"""Scaling in virtual time: ramps, spikes, throttled queues, sawtooth, rest. `pytest -s` prints the figures."""

import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.pool import PoolSpec
from pitboss.model.scaling import COOL_DOWN, IDLE
from tests.simulate.pool import HEADING, TICK, Course, SimulatedPool, around, poisson

TARGET = 5 * SECOND
SPEC = PoolSpec(min_workers=1, max_workers=40, concurrency=4, target_wait=TARGET)
SEEDS = [1, 2, 3]


class Table:
    def __init__(self) -> None:
        self.rows = [HEADING]

    def note(self, name: str, course: Course) -> Course:
        self.rows.append(course.row(name, TARGET))
        return course


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    made = Table()
    yield made
    sys.stdout.write("\n" + "\n".join(made.rows) + "\n")


def assert_calm(course: Course, seconds: int) -> None:
    """At most one turn in two cool-downs, and never a cut within one after a raise."""
    assert len(course.turns()) <= max(2, seconds * SECOND / COOL_DOWN / 2)
    raised = [after.at for before, after in pairwise(course.samples) if after.size > before.size]
    cuts = [after.at for before, after in pairwise(course.samples) if after.size < before.size]
    assert all(cut - before >= COOL_DOWN for cut in cuts for before in raised if before < cut)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ramp_is_followed_without_tasks_being_late(seed: int, table: Table) -> None:
    """From nothing to 40 a second in five minutes, five minutes of that, and down again: 10 workers' work."""

    def rate(second: float) -> float:
        return 40 * min(1.0, second / 300, max(0.0, (900 - second) / 300))

    pool = SimulatedPool(SPEC, around(1))
    course = table.note(f"ramp to 40/s and back, seed {seed}", pool.run(poisson(rate, 900, most=40, seed=seed), 1200))
    assert course.late_share(TARGET) == 0
    assert 10 <= max(course.sizes) <= 16
    assert course.sizes[-1] == 1
    assert_calm(course, 1200)


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_times_the_load_is_absorbed_within_a_minute(seed: int, table: Table) -> None:
    """4 a second, and from second 120 on 40 of them: one worker before, ten during."""
    arrivals = poisson(lambda second: 40 if 120 <= second < 300 else 4, 600, most=40, seed=seed)
    course = table.note(f"10x spike, seed {seed}", SimulatedPool(SPEC, around(1)).run(arrivals, 600))
    assert course.recovered(TARGET, 120) <= 30
    assert max(course.sizes) <= 20
    assert course.sizes[-1] <= 3
    assert_calm(course, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_heap_of_tasks_at_once_is_worked_off_within_a_minute(seed: int, table: Table) -> None:
    """3,000 tasks at second 120 are 750 seconds of one worker."""
    arrivals = [*poisson(lambda _: 4, 600, most=4, seed=seed), *[120 * SECOND] * 3000]
    course = table.note(f"3,000 at once, seed {seed}", SimulatedPool(SPEC, around(1)).run(arrivals, 600))
    assert 0 < course.recovered(TARGET, 120) <= 60
    assert max(course.sizes) == 40
    assert course.sizes[-1] <= 3
    assert_calm(course, 600)


@pytest.mark.parametrize("after", [4, 30, 62, 64, 70, 90, 122, 130])
def test_a_spike_that_meets_a_pool_just_cut_is_absorbed_as_well(after: int, table: Table) -> None:
    """20 a second until second 120, then 4, and 40 after a pause."""

    def rate(second: float) -> float:
        return 20 if second < 120 else 4 if second < 120 + after else 40

    course = SimulatedPool(SPEC, around(1)).run(poisson(rate, 480, most=40), 480)
    table.note(f"20/s, 4/s for {after} s, 40/s", course)
    assert course.recovered(TARGET, 120 + after) <= 30
    assert_calm(course, 480)


def test_workers_that_start_slowly_are_waited_for(table: Table) -> None:
    arrivals = poisson(lambda second: 40 if second >= 120 else 4, 600, most=40)
    pool = SimulatedPool(SPEC, around(1), start=10 * SECOND)
    course = table.note("10x spike, workers start in 10 s", pool.run(arrivals, 600))
    assert course.recovered(TARGET, 120) <= 60
    assert_calm(course, 600)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_throttled_queue_gets_no_more_than_its_rate_feeds(concurrency: int, table: Table) -> None:
    """5 a second may start, twice as many come, and a thousand are there: the backlog only grows."""
    spec = PoolSpec(min_workers=1, max_workers=40, concurrency=concurrency, target_wait=TARGET)
    arrivals = [*[0] * 1000, *poisson(lambda _: 10, 900, most=10)]
    pool = SimulatedPool(spec, around(1), rate="5/s")
    course = table.note(f"throttled to 5/s, concurrency {concurrency}", pool.run(arrivals, 900))
    settled = [sample for sample in course.samples if sample.at >= 60 * SECOND]
    assert max(sample.size for sample in settled) <= -(-9 // concurrency)
    assert all("the rate" in sample.why for sample in settled[-30:])
    assert len(course.starts) >= 0.95 * 5 * 900
    assert_calm(course, 900)


def test_an_unknown_limit_shows_in_free_slots(table: Table) -> None:
    """Something lets only 5 a second start. Workers without work are the sign; more of them would be no answer."""
    arrivals = [*[0] * 1000, *poisson(lambda _: 10, 900, most=10)]
    pool = SimulatedPool(SPEC, around(1), rate="5/s", told=False)
    course = table.note("limited to 5/s by something else", pool.run(arrivals, 900))
    assert max(course.sizes) <= 3
    assert len(course.starts) >= 0.95 * 5 * 900
    assert "slots are free" in course.samples[-1].why
    assert_calm(course, 900)


@pytest.mark.parametrize("period", [20, 45, 90, 150, 240, 600])
def test_teeth_do_not_make_it_flap(period: int, table: Table) -> None:
    """The load climbs to 40 a second, falls to nothing, and climbs again."""
    arrivals = poisson(lambda second: 40 * (second % period) / period, 2400, most=40)
    course = table.note(f"teeth of {period} s", SimulatedPool(SPEC, around(1)).run(arrivals, 2400))
    assert course.late_share(TARGET) < 0.02
    assert_calm(course, 2400)


def test_jumps_up_and_down_do_not_make_it_flap(table: Table) -> None:
    arrivals = poisson(lambda second: 40 if second % 150 >= 75 else 2, 2400, most=40)
    course = table.note("2/s and 40/s in turn, 75 s each", SimulatedPool(SPEC, around(1)).run(arrivals, 2400))
    assert course.late_share(TARGET) < 0.02
    assert_calm(course, 2400)


def test_a_load_that_only_trembles_moves_nothing(table: Table) -> None:
    course = table.note("steady 20/s", SimulatedPool(SPEC, around(1)).run(poisson(lambda _: 20, 1800, most=20), 1800))
    assert course.late_share(TARGET) < 0.001
    assert len(course.turns()) <= 6
    assert_calm(course, 1800)


def test_no_workers_at_rest_and_one_again_for_the_first_task(table: Table) -> None:
    spec = PoolSpec(min_workers=0, max_workers=8, concurrency=4, target_wait=TARGET)
    seconds = 1200
    course = table.note("two tasks in 20 minutes", SimulatedPool(spec, around(1)).run([SECOND, 1001 * SECOND], seconds))
    busy = [sample.at for sample in course.samples if sample.size]
    assert course.sizes[0] == 0
    assert busy[0] == TICK
    first = [at for at in busy if at < 1000 * SECOND]
    assert IDLE <= max(first) - SECOND <= IDLE + 10 * SECOND
    assert max(course.sizes) == 1
    assert max(course.waits) <= TICK + SECOND
    assert IDLE <= busy[-1] - 1001 * SECOND <= IDLE + COOL_DOWN


def test_long_tasks_of_unknown_length_get_workers_one_by_one(table: Table) -> None:
    """Nothing has ended for minutes, so only the wait can tell: each step one more, until all have a slot."""
    spec = PoolSpec(min_workers=1, max_workers=20, concurrency=1, target_wait=TARGET)
    pool = SimulatedPool(spec, lambda _: 300 * SECOND)
    course = table.note("12 tasks of 5 minutes", pool.run([SECOND] * 12, 900))
    steps = [after.size - before.size for before, after in pairwise(course.samples) if after.at < 240 * SECOND]
    assert max(steps) == 1
    assert max(course.sizes) == 12
    assert max(course.waits) <= 60 * SECOND
    assert course.sizes[-1] == 1
