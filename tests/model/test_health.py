"""The problems of a worker, and the remedy for each."""

from pitboss.model.duration import SECOND
from pitboss.model.health import DEAF_BEATS, SILENCE, START_LIMIT, Remedy, Vital, judge
from pitboss.model.pool import PoolSpec

MB = 1024 * 1024
FIT = Vital(age=60 * SECOND)
LIMITED = PoolSpec(memory=100 * MB, unresponsive=20 * SECOND, max_tasks_per_worker=10, max_age=3600 * SECOND)


def found(vital: Vital, spec: PoolSpec = LIMITED) -> tuple[str, Remedy]:
    finding = judge(vital, spec)
    assert finding is not None
    return finding.kind, finding.remedy


def test_a_fit_worker_is_left_alone() -> None:
    assert judge(FIT, LIMITED) is None
    assert judge(FIT, PoolSpec()) is None


def test_a_pool_without_limits_lets_a_worker_grow_old_and_large() -> None:
    assert judge(Vital(age=10**15, memory=10**12, processed=10**9), PoolSpec()) is None


def test_memory_beyond_the_hard_limit_kills_and_beyond_the_soft_one_replaces() -> None:
    assert judge(Vital(age=0, memory=80 * MB), LIMITED) is None
    assert found(Vital(age=0, memory=80 * MB + 1)) == ("memory_soft", Remedy.REPLACE)
    assert found(Vital(age=0, memory=100 * MB + 1)) == ("memory", Remedy.KILL)
    own = PoolSpec(memory=100 * MB, memory_soft=50 * MB)
    assert found(Vital(age=0, memory=60 * MB), own) == ("memory_soft", Remedy.REPLACE)
    only_soft = PoolSpec(memory_soft=50 * MB)
    assert found(Vital(age=0, memory=500 * MB), only_soft) == ("memory_soft", Remedy.REPLACE)


def test_a_soft_limit_below_the_memory_of_a_fresh_worker_replaces_none() -> None:
    only_soft = PoolSpec(memory_soft=50 * MB)
    assert judge(Vital(age=0, memory=60 * MB, fresh=51 * MB), only_soft) is None
    assert found(Vital(age=0, memory=60 * MB, fresh=50 * MB), only_soft) == ("memory_soft", Remedy.REPLACE)


def test_a_worker_that_is_still_starting_is_killed_only_for_memory_or_for_taking_far_too_long() -> None:
    assert judge(Vital(age=START_LIMIT - 1, ready=False, silent=START_LIMIT - 1), LIMITED) is None
    assert found(Vital(age=START_LIMIT, ready=False)) == ("start", Remedy.KILL)
    assert found(Vital(age=0, ready=False, memory=101 * MB)) == ("memory", Remedy.KILL)


def test_silence_is_told_first_and_ends_at_the_pools_limit() -> None:
    assert judge(Vital(age=60 * SECOND, silent=SILENCE - 1), LIMITED) is None
    assert found(Vital(age=60 * SECOND, silent=SILENCE)) == ("blocked", Remedy.TELL)
    assert found(Vital(age=60 * SECOND, silent=20 * SECOND)) == ("blocked", Remedy.KILL)


def test_a_silent_worker_with_a_task_past_its_time_limit_is_ended_sooner() -> None:
    assert found(Vital(age=60 * SECOND, silent=SILENCE, overdue=1)) == ("timeout", Remedy.KILL)
    # A worker that answers ends its tasks itself.
    assert judge(Vital(age=60 * SECOND, silent=SILENCE - 1, overdue=1), LIMITED) is None


def test_a_worker_that_does_not_begin_its_tasks_is_killed() -> None:
    assert judge(Vital(age=60 * SECOND, deaf_beats=DEAF_BEATS - 1), LIMITED) is None
    assert found(Vital(age=60 * SECOND, deaf_beats=DEAF_BEATS)) == ("deaf", Remedy.KILL)


def test_a_worn_worker_is_replaced() -> None:
    assert found(Vital(age=60 * SECOND, processed=10)) == ("tasks", Remedy.REPLACE)
    assert found(Vital(age=3600 * SECOND)) == ("age", Remedy.REPLACE)
