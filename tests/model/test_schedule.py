"""What a schedule puts, and when: catch-up, overlap, pauses and changes. Cron itself is in test_cron."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.meta import read_meta
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import (
    AT_ONCE,
    GRACE,
    Catchup,
    Firing,
    Overlap,
    Schedule,
    ScheduleChange,
    ScheduleSpec,
    added,
    changed,
    checked_spec,
    fired,
    firing,
    known_success,
    next_tick,
    noted,
    redeclared,
)
from pitboss.model.states import State
from pitboss.model.task import Placed

START: Moment = 1_800_000_000 * SECOND
MINUTE = 60 * SECOND


def test_an_interval_counts_from_its_start() -> None:
    schedule = _every(10)
    assert schedule.next_at == START + 10 * SECOND
    made = _due(schedule, START + 25 * SECOND)
    assert (made.ticks, made.missed, made.next_at) == ((START + 20 * SECOND,), 1, START + 30 * SECOND)


def test_nothing_is_due_before_its_tick_or_while_it_is_paused() -> None:
    schedule = _every(10)
    assert firing(schedule, None, START + 10 * SECOND - 1, {}) is None
    assert firing(replace(schedule, paused=True), None, START + MINUTE, {}) is None
    assert firing(replace(schedule, next_at=None), None, START + MINUTE, {}) is None


def test_the_task_of_a_tick_has_the_same_id_wherever_it_is_made() -> None:
    one, other = _due(_every(10), START + 10 * SECOND), _due(_every(10), START + 12 * SECOND)
    assert one.tasks == other.tasks
    assert one.tasks[0].id != _due(_every(10), START + 20 * SECOND).tasks[0].id
    assert one.tasks[0].id != _due(_every(10, name="other"), START + 10 * SECOND).tasks[0].id


def test_with_all_every_tick_is_made_up_for_a_portion_at_a_time() -> None:
    schedule = _every(1, catchup=Catchup.ALL)
    seen: list[Moment] = []
    wall = START + 250 * SECOND
    while (made := firing(schedule, None, wall, {})) is not None:
        assert len(made.ticks) <= AT_ONCE
        seen += made.ticks
        schedule = _put(made)
    assert seen == [START + number * SECOND for number in range(1, 251)]


def test_with_none_only_a_tick_of_the_last_minute_fires() -> None:
    schedule = _every(3600, catchup=Catchup.NONE)
    tick = START + 3600 * SECOND
    assert _due(schedule, tick + GRACE).ticks == (tick,)
    late = _due(schedule, tick + GRACE + 1)
    assert (late.ticks, late.missed, late.next_at) == ((), 1, tick + 3600 * SECOND)


def test_with_last_a_month_of_standstill_puts_one_task_at_once() -> None:
    schedule = _cron("* * * * *")
    wall = START + 40 * 86_400 * SECOND + 30 * SECOND
    made = _due(schedule, wall)
    assert made.ticks == (wall // MINUTE * MINUTE,)
    assert made.missed == 100
    assert made.next_at == made.ticks[0] + MINUTE


@pytest.mark.parametrize("cron", ["0 0 1 1 *", "0 0 * * *", "30 4 1 * *", "*/5 * * * *"])
def test_the_newest_tick_is_found_however_long_ago(cron: str) -> None:
    schedule = _cron(cron)
    for days in (1, 20, 90, 400, 4000):
        wall = START + days * 86_400 * SECOND
        if (schedule.next_at or 0) > wall:
            continue
        (tick,) = _due(schedule, wall).ticks
        following = next_tick(schedule.spec, tick, schedule.anchor)
        assert tick <= wall < (following or 0)


def test_overlap_is_a_unique_key_or_an_order_key_or_neither() -> None:
    skip, queue, allow = [_due(_every(10, overlap=one), START + 10 * SECOND).tasks[0] for one in Overlap]
    assert (skip.unique and skip.unique.key, skip.unique and skip.unique.period) == ("schedule/s", None)
    assert (queue.unique, queue.order_key) == (None, "schedule/s")
    assert (allow.unique, allow.order_key) == (None, None)


def test_jitter_is_the_same_for_one_tick() -> None:
    task, again = [_due(_every(10, jitter=5 * SECOND), START + 10 * SECOND).tasks[0] for _ in range(2)]
    assert task == again
    assert task.run_at is not None
    assert 0 <= task.run_at - (START + 10 * SECOND) < 5 * SECOND


def test_the_handler_s_queue_is_used_unless_the_schedule_names_one() -> None:
    handler = HandlerInfo(name="job", queue="slow")
    made = firing(_every(10), handler, START + 10 * SECOND, {})
    assert made is not None
    assert made.tasks[0].queue == "slow"
    named = firing(_every(10, queue="fast"), handler, START + 10 * SECOND, {})
    assert named is not None
    assert named.tasks[0].queue == "fast"


def test_last_success_is_the_newest_tick_whose_task_completed() -> None:
    schedule = _every(10, overlap=Overlap.ALLOW)
    ids = []
    for number in (1, 2, 3):
        made = _due(schedule, START + number * 10 * SECOND)
        schedule = _put(made)
        ids.append(made.tasks[0].id)
    states = {ids[0]: State.COMPLETED, ids[1]: State.FAILED, ids[2]: State.RUNNING}
    assert known_success(schedule, states) == START + 10 * SECOND
    made_again = firing(schedule, None, START + 40 * SECOND, states)
    assert made_again is not None
    mark = read_meta(made_again.tasks[0].meta).tick
    assert mark is not None
    assert mark.last_success == START + 10 * SECOND
    after = _put(made_again)
    assert [task for _, task in after.open] == [ids[2], made_again.tasks[0].id]
    assert known_success(after, {ids[2]: State.COMPLETED}) == START + 30 * SECOND


def test_a_task_that_is_gone_is_not_a_success() -> None:
    schedule = _put(_due(_every(10), START + 10 * SECOND))
    assert known_success(schedule, {}) is None


def test_a_tick_that_met_an_unfinished_task_is_skipped() -> None:
    made = _due(_every(10), START + 10 * SECOND)
    after = fired(made, [Placed("other", False, State.RUNNING)], START)
    assert (after.fired, after.skipped, after.open, after.last_tick) == (0, 1, (), None)
    assert after.next_at == START + 20 * SECOND


def test_the_end_of_a_run_can_be_noted_between_two_ticks() -> None:
    """It was noted at the next tick only, when the task of a rare schedule had been pruned."""
    tick = START + 10 * SECOND
    schedule = _put(_due(_every(10), tick))
    ((_, task),) = schedule.open
    assert noted(schedule, {task: State.RUNNING}) is None
    for state, success in ((State.COMPLETED, tick), (State.FAILED, None), (None, None)):
        made = noted(schedule, {task: state})
        assert made is not None
        assert (made.ticks, made.tasks, made.missed, made.version) == ((), (), 0, schedule.version)
        after = fired(made, [], tick + SECOND)
        assert (after.last_success, after.open) == (success, ())
        assert (after.next_at, after.last_tick, after.fired) == (schedule.next_at, tick, 1)
        assert noted(after, {}) is None


def test_going_on_after_a_pause_waits_for_the_next_tick() -> None:
    paused = changed(_every(10), ScheduleChange(paused=True, by="ann"), START, START)
    resumed = changed(paused, ScheduleChange(paused=False), START + 35 * SECOND, START)
    assert (resumed.next_at, resumed.paused, resumed.version) == (START + 40 * SECOND, False, 3)
    assert changed(resumed, ScheduleChange(paused=False), START, START) is resumed


def test_a_single_time_of_long_ago_does_not_fire() -> None:
    assert added(ScheduleSpec(name="s", handler="job", at=START - GRACE), None, START, START).next_at is None


def test_a_single_time_that_has_just_passed_fires_at_once_and_never_again() -> None:
    schedule = added(ScheduleSpec(name="s", handler="job", at=START - 5), None, START, START)
    made = _due(schedule, START)
    assert (made.ticks, made.next_at) == ((START - 5,), None)
    assert firing(_put(made), None, START + MINUTE, {}) is None


def test_the_same_declaration_changes_nothing() -> None:
    schedule = replace(_every(10), app="shop")
    assert redeclared(schedule, schedule.declared, "shop", START + 99, START + 99) is schedule
    other = redeclared(schedule, replace(schedule.declared, priority=3), "shop", START + 99, START + 99)
    assert (other.next_at, other.version) == (schedule.next_at, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cron": "* * * * *", "every": SECOND},
        {"every": SECOND - 1},
        {"every": MINUTE, "jitter": -1},
        {"cron": "61 * * * *"},
        {"cron": "* * * * *", "tz": "Mars/Olympus"},
        {"every": MINUTE, "name": "two words"},
    ],
)
def test_what_cannot_be_followed_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        checked_spec(ScheduleSpec(**{"name": "s", "handler": "job"} | fields))


@given(
    every=st.integers(1, 100),
    looks=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    catchup=st.sampled_from(Catchup),
)
def test_no_tick_fires_twice_and_none_before_its_time(every: int, looks: list[int], catchup: Catchup) -> None:
    schedule, wall, seen = _every(every, catchup=catchup, overlap=Overlap.ALLOW), START, list[Moment]()
    for seconds in looks:
        wall += seconds * SECOND
        while (made := firing(schedule, None, wall, {})) is not None:
            assert all(tick <= wall for tick in made.ticks)
            seen += made.ticks
            schedule = _put(made)
            assert (schedule.next_at or 0) > (made.ticks or (0,))[-1]
    assert sorted(set(seen)) == seen
    if catchup is Catchup.ALL:
        assert seen == list(range(START + every * SECOND, wall + 1, every * SECOND))


def _every(seconds: int, **options: Any) -> Schedule:
    return added(_spec(every=seconds * SECOND, **options), None, START, START)


def _cron(cron: str) -> Schedule:
    moment = datetime.fromtimestamp(START / SECOND, UTC)
    assert moment.year > 2020
    return added(_spec(cron=cron), None, START, START)


def _spec(**options: Any) -> ScheduleSpec:
    fields: dict[str, Any] = {"name": "s", "handler": "job"}
    return checked_spec(ScheduleSpec(**fields | options))


def _due(schedule: Schedule, wall: Moment) -> Firing:
    """What fires while its earlier tasks run."""
    made = firing(schedule, None, wall, {task: State.RUNNING for _, task in schedule.open})
    assert made is not None
    return made


def _put(made: Firing) -> Schedule:
    return fired(made, [Placed(task.id, True, State.PENDING) for task in made.tasks], START)
