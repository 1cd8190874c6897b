"""How long a queue's tasks take, and what limits them: the smallest of all rates binds."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.estimate import (
    Ended,
    Time,
    Timing,
    Work,
    estimate,
    spoken_range,
    spoken_rate,
    spoken_time,
    timing,
    told,
    what_if,
)
from pitboss.model.limits import Window, rate
from pitboss.model.resource import HOUR, Limits
from pitboss.model.supply import Supply

MEASURED = Timing(mean=12 * SECOND, unsure=0.05, samples=300)
PER_HOUR = Limits(windows=(Window(50, HOUR),), guard=1)


def supply(members: int, **limits: Any) -> Supply:
    return Supply(((Limits(**limits) if limits else PER_HOUR, members),))


def work(left: int = 309_720, **given: Any) -> Work:
    usual: dict[str, Any] = {"left": left, "seats": 10, "timing": MEASURED}
    return Work(**usual | given)


def kind(found: Work) -> str:
    bound = estimate(found).bound
    assert bound is not None
    return bound.kind


def seconds(found: Work) -> float:
    time = estimate(found).time
    assert time is not None
    return time.middle / SECOND


def test_workers_bind_if_nothing_else_does() -> None:
    assert kind(work()) == "workers"
    assert seconds(work()) == pytest.approx(309_720 * 12 / 10)
    assert seconds(work(delay=14 * SECOND)) == pytest.approx(309_720 * 26 / 10)
    assert told(estimate(work())) == "bound by workers: 3,000/h; 309,720 tasks; 4.3 days (4.1–4.5)"


def test_the_rate_of_the_queue_binds() -> None:
    found = work(rate=rate("1/s, 20/min"))
    assert kind(found) == "rate"
    assert seconds(found) == pytest.approx(309_720 * 3)
    assert told(estimate(found)) == ("bound by the rate (1 per 1s, 20 per 1m): 1,200/h; 309,720 tasks; 11 days (11–12)")


def test_the_limits_of_proxies_bind() -> None:
    found = work(pool="proxies", usable=supply(50), members=supply(50))
    assert kind(found) == "resources"
    assert told(estimate(found)) == "bound by proxies: 2,500/h; 309,720 tasks; 5.1 days (5.1–5.7)"
    assert estimate(found).bounds[1].kind == "workers"


def test_members_that_are_away_make_the_range_wider() -> None:
    found = estimate(work(pool="proxies", usable=supply(25), members=supply(50))).time
    assert found is not None
    assert found.least * 1.9 < found.middle < found.most


def test_a_member_that_is_held_by_each_task_binds_by_its_concurrency() -> None:
    five = supply(5, concurrency=1)
    found = work(pool="browsers", usable=five, members=five)
    assert kind(found) == "resources"
    assert seconds(found) == pytest.approx(309_720 * 12 / 5)


def test_a_gap_from_the_start_counts_from_the_end_of_an_open_use() -> None:
    """A use with a client of the user's own lasts as long as its task, up to `use_within`."""
    gaps = supply(2, min_delay=20 * SECOND)
    found = work(pool="proxies", usable=gaps, members=gaps)
    time = estimate(found).time
    assert time is not None
    assert time.least == pytest.approx(309_720 * 20 / 2 * SECOND, rel=0.01)
    assert time.middle == pytest.approx(309_720 / (2 * (1 / 20 + 1 / 30) / 2) * SECOND, rel=0.01)
    for uses, each in ((1 / 30, 30), (1 / 20, 20), (1 / 90, 24)):
        known = Timing(mean=12 * SECOND, unsure=0.05, samples=300, uses=uses)
        found = work(pool="proxies", usable=gaps, members=gaps, timing=known)
        assert seconds(found) == pytest.approx(309_720 * each / 2, rel=0.01), "a member that was idle says nothing"


def test_a_window_that_is_unused_yet_gives_its_whole_budget_at_once() -> None:
    few = supply(8, windows=(Window(30, 60 * SECOND),), guard=1)
    brief = Timing(mean=SECOND // 10, unsure=0.05, samples=99)
    assert seconds(work(600, pool="proxies", usable=few, members=few, timing=brief)) == pytest.approx(120, rel=0.01)


def test_the_slot_with_the_most_work_ends_last() -> None:
    slots = {"web/0": 30_000, "web/1": 200_000, "web/2": 79_720}
    found = work(slots=slots, keys={"CA": 30_000})
    assert kind(found) == "slot"
    assert seconds(found) == 200_000 * 12
    assert "bound by slot web/1, which has 65% of the work" in told(estimate(found))


def test_keys_that_move_leave_only_the_largest_one() -> None:
    slots = {"web/0": 30_000, "web/1": 279_720}
    assert kind(work(slots=slots, movable=True, keys={"CA": 20_000, "TX": 10})) == "workers"
    found = work(slots=slots, movable=True, keys={"CA": 200_000, "TX": 10})
    assert kind(found) == "key"
    assert seconds(found) == 200_000 * 12


def test_uneven_slots_bind_a_short_run_because_no_key_moves() -> None:
    slots = {"web/0": 80, "web/1": 40, "web/2": 40, "web/3": 40}
    found = work(
        left=200, seats=4, slots=slots, movable=True, keys={"CA": 40}, timing=Timing(mean=SECOND // 5, unsure=0)
    )
    assert kind(found) == "slot"
    assert seconds(found) == pytest.approx(16)


def test_a_limit_per_key_binds_by_the_largest_key() -> None:
    found = work(keys={"CA": 100_000, "TX": 9}, max_per_key=2)
    assert kind(found) == "max_per_key"
    assert seconds(found) == 100_000 * 12 / 2
    assert "bound by max_per_key (2 at once of key CA, which has 32% of the work)" in told(estimate(found))


def test_what_other_queues_need_of_the_same_workers_counts() -> None:
    assert seconds(work(10, others=1000 * SECOND)) == pytest.approx(12 + 100)


def test_runs_that_are_repeated_count() -> None:
    twice = Timing(mean=12 * SECOND, unsure=0.05, samples=300, runs=2.0)
    assert seconds(work(timing=twice)) == 2 * seconds(work())
    limited = work(timing=twice, rate=rate("20/min"))
    assert seconds(limited) == pytest.approx(2 * 309_720 * 3)


def test_without_durations_only_limits_are_known() -> None:
    assert told(estimate(work(timing=None))) == (
        "unknown until 20 tasks have ended; declare usual= for an estimate before that"
    )
    said = told(estimate(work(timing=None, rate=rate("20/min"))))
    assert said.startswith("bound by the rate (20 per 1m): 1,200/h; 309,720 tasks; at least 11 days; how long a task")


def test_work_that_cannot_end_is_said() -> None:
    assert told(estimate(work(seats=0))) == "bound by workers: none serves the queue: 309,720 tasks cannot end"
    none = Supply(())
    said = told(estimate(work(pool="proxies", usable=none, members=none)))
    assert said == "bound by proxies, which has no enabled member: 309,720 tasks cannot end"
    assert told(estimate(work(0))) == "nothing is left to do"


def test_what_if_changes_one_thing() -> None:
    found = what_if(work(pool="proxies", usable=supply(50), members=supply(50)))
    assert {name: told(one).partition(":")[0] for name, one in found.items()} == {
        "with half the workers": "bound by workers",
        "with twice the proxies": "bound by workers",
    }
    assert list(what_if(work())) == ["with half the workers", "with twice the workers"]
    uneven = work(slots={"web/0": 300_000, "web/1": 9_720}, keys={"CA": 9}, held=True)
    found = what_if(uneven)
    assert list(found) == ["with mode balanced", "with half the workers"]
    assert found["with mode balanced"].bound != estimate(uneven).bound
    assert found["with half the workers"].left == 300_000, "keys of the other slot wait"
    shared = what_if(work(slots={"web/0": 300_000, "web/1": 9_720}, keys={"CA": 9}))
    assert shared["with half the workers"].left == 309_720
    assert list(what_if(work(seats=1))) == ["with twice the workers"]


def test_mode_balanced_divides_the_keys_afresh() -> None:
    """It was estimated with the slots of the table."""
    slots, keys = {"web/0": 3, "web/1": 1}, {"CA": 2, "TX": 1, "NY": 1}
    found = what_if(work(4, seats=2, slots=slots, keys=keys, waiting={"ZZ": 2}))["with mode balanced"]
    assert (found.left, found.waiting) == (6, 0)
    assert found.time is not None
    assert found.time.middle == 3 * 12 * SECOND


def ended(number: int, took: int = SECOND, *, workers: int = 2, every: int = 2 * SECOND) -> list[Ended]:
    """Each worker ends a task every two seconds."""
    return [Ended(n % workers, took, (n // workers) * every) for n in range(number)]


def test_durations_are_measured_if_enough_tasks_have_ended() -> None:
    assert timing(ended(19)) is None
    assert timing(ended(19), declared=5 * SECOND) == Timing(mean=5 * SECOND, unsure=0.25)
    found = timing(ended(20), declared=5 * SECOND)
    assert found == Timing(mean=SECOND, unsure=0.0, samples=20, pace=0.5)


def test_durations_that_differ_make_the_estimate_unsure() -> None:
    mixed = [Ended(0, took * SECOND, n * SECOND, 1 + n % 2) for n, took in enumerate([1, 3] * 50)]
    found = timing(mixed)
    assert found is not None
    assert found.mean == 2 * SECOND
    assert found.unsure == pytest.approx(1.64 * 0.5 / 10)
    assert found.runs == 1.5
    assert 0.97 < found.pace < 1.03


def test_a_little_more_than_the_duration_is_overhead_and_much_more_is_not() -> None:
    for every, factor in ((1.1, 1.1), (5.0, 1.15), (0.5, 1.0)):
        found = timing(ended(100, workers=1, every=round(every * SECOND)))
        assert seconds(work(1000, seats=1, timing=found)) == pytest.approx(1000 * factor, rel=0.01)


@pytest.mark.parametrize(
    ("per_second", "said"),
    [(0.694, "2,498/h"), (30, "1,800/min"), (2000, "2,000/s"), (0.0001, "8.64/day"), (1 / 3600, "1/h")],
)
def test_rates_are_said_in_a_fitting_unit(per_second: float, said: str) -> None:
    assert spoken_rate(per_second) == said


def test_times_are_said_in_a_fitting_unit() -> None:
    assert [spoken_time(one * SECOND) for one in (4, 99, 600, 7200, 86_400 * 5.2)] == [
        "4.0 s",
        "99 s",
        "10 min",
        "2.0 h",
        "5.2 days",
    ]
    assert (spoken_time(inf), spoken_range(Time(inf, inf, inf))) == ("never", "never")
    assert spoken_range(Time(3600 * SECOND, 7200 * SECOND, inf)) == "2.0 h or more"


@given(
    left=st.integers(1, 10**6),
    seats=st.integers(1, 1000),
    mean=st.integers(1, 3600 * SECOND),
    members=st.integers(1, 100),
    per_hour=st.integers(1, 1000),
    starts=st.integers(1, 1000),
)
def test_the_longest_time_binds_and_lies_within_its_range(
    left: int, seats: int, mean: int, members: int, per_hour: int, starts: int
) -> None:
    own = supply(members, windows=(Window(per_hour, HOUR),))
    found = estimate(
        Work(
            left=left,
            seats=seats,
            timing=Timing(mean=mean, unsure=0.1, samples=20),
            rate=(Window(starts, 60 * SECOND),),
            pool="p",
            usable=own,
            members=own,
        )
    )
    assert found.time is not None
    assert all(one.time.middle <= found.time.middle for one in found.bounds)
    assert found.time.least <= found.time.middle * 1.000001
    assert found.time.middle <= found.time.most * 1.000001
