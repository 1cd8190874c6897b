"""When a worker that died is started again, and when no more."""

from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND, Span
from pitboss.model.pool import PoolSpec, RestartPolicy
from pitboss.model.restart import LONGEST_DELAY, QUIET, Record, RestartDecision, after_end

SPEC = PoolSpec(restart_delay=5 * SECOND, max_restarts=5, restart_window=600 * SECOND)
PATIENT = PoolSpec(restart_delay=5 * SECOND, max_restarts=1000)
START = 1_000_000 * SECOND


def crashes(
    spec: PoolSpec, *lives: Span, critical: bool = False, clean: bool = False, record: Record | None = None
) -> list[RestartDecision]:
    """The decisions for a slot whose workers live this long, each started when the last decision said so."""
    decisions, record, now = [], record or Record(), START
    for life in lives:
        decision = after_end(record, spec, started_at=now, now=now + life, clean=clean, critical=critical)
        decisions.append(decision)
        record, now = decision.record, now + life + (decision.delay or 0)
    return decisions


def delays(decisions: list[RestartDecision]) -> list[float | None]:
    return [None if decision.delay is None else decision.delay / SECOND for decision in decisions]


def test_the_first_crash_waits_for_the_delay_and_each_further_one_twice_as_long() -> None:
    assert delays(crashes(PATIENT, *[SECOND] * 6)) == [5, 10, 20, 40, 80, 160]


def test_the_delay_grows_to_a_cap() -> None:
    last = crashes(PATIENT, *[SECOND] * 200)[-1]
    assert last.delay == LONGEST_DELAY == 300 * SECOND


def test_a_quiet_time_makes_the_next_crash_a_first_one() -> None:
    assert delays(crashes(PATIENT, SECOND, SECOND, QUIET - 1, QUIET, SECOND)) == [5, 10, 20, 5, 10]


def test_where_the_delay_is_longer_than_a_minute_a_quiet_life_must_be_as_long_as_the_delay() -> None:
    slow = PoolSpec(restart_delay=120 * SECOND, max_restarts=1000)
    assert delays(crashes(slow, SECOND, QUIET, 120 * SECOND)) == [120, 240, 120]


def test_a_worker_that_was_unfit_is_replaced_at_once_but_only_the_first_time() -> None:
    assert delays(crashes(PATIENT, SECOND, SECOND, SECOND, critical=True)) == [0, 10, 20]
    assert delays(crashes(PATIENT, QUIET, QUIET, QUIET, critical=True)) == [0, 0, 0]


def test_more_crashes_than_allowed_within_the_window_end_it_with_a_reason() -> None:
    decisions = crashes(SPEC, *[SECOND] * 6)
    assert delays(decisions) == [5, 10, 20, 40, 80, None]
    assert decisions[-1].why == "it crashed 6 times; 5 restarts are allowed"
    assert not any(decision.why for decision in decisions[:-1])


def test_the_last_worker_of_a_pool_is_replaced_at_once_and_its_end_does_not_count() -> None:
    record = crashes(SPEC, *[SECOND] * 5)[-1].record
    for critical in (False, True):
        decision = after_end(record, SPEC, started_at=0, now=SECOND, clean=False, critical=critical, last=True)
        assert (decision.delay, decision.record) == (0, record)
    kept = PoolSpec(max_restarts=0)
    assert after_end(Record(), kept, started_at=0, now=1, clean=False, critical=False, last=True).delay is None
    once = PoolSpec(restart=RestartPolicy.ON_FAILURE)
    assert after_end(Record(), once, started_at=0, now=1, clean=True, critical=False, last=True).delay is None


def test_crashes_before_the_window_are_forgotten() -> None:
    assert None not in delays(crashes(SPEC, *[200 * SECOND] * 50))
    assert delays(crashes(SPEC, *[90 * SECOND] * 8))[:6] == [5, 5, 5, 5, 5, None]


def test_without_restarts_the_first_crash_is_the_end() -> None:
    assert delays(crashes(PoolSpec(max_restarts=0), SECOND)) == [None]


def test_an_end_with_exit_code_0_calls_for_no_restart_where_only_failures_do() -> None:
    quiet = PoolSpec(restart=RestartPolicy.ON_FAILURE)
    (clean,) = crashes(quiet, SECOND, clean=True)
    assert clean.delay is None
    assert "exit code 0" in clean.why
    assert delays(crashes(quiet, SECOND)) == [5]
    for policy in (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED):
        assert delays(crashes(PoolSpec(restart=policy), SECOND, clean=True)) == [5]


@given(
    st.lists(st.integers(0, 400 * SECOND), min_size=1, max_size=40),
    st.integers(0, 8),
    st.integers(0, 60 * SECOND),
    st.booleans(),
)
def test_it_is_never_restarted_more_often_than_allowed(
    lives: list[Span], allowed: int, delay: Span, critical: bool
) -> None:
    spec = PoolSpec(restart_delay=delay, max_restarts=allowed)
    record, now, starts = Record(), START, list[Span]()
    for life in lives:
        decision = after_end(record, spec, started_at=now, now=now + life, clean=False, critical=critical)
        record, now = decision.record, now + life
        if decision.delay is None:
            break
        assert 0 <= decision.delay <= max(LONGEST_DELAY, delay)
        starts.append(now)
        assert sum(now - one < spec.restart_window for one in starts) <= allowed
        now += decision.delay
