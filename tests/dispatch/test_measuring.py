"""What a dispatcher measures of its tasks."""

from pitboss.dispatch.measuring import Measurements
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Completed, Released
from pitboss.model.resource import Leased, Report, ResourceOutcome, Shortage
from pitboss.model.task import Claim, Token
from pitboss.testing.clock import FakeClock

DONE = Completed(None)


def claim(clock: FakeClock, *, due: float | None = 0.0, leased: Leased | None = None) -> Claim:
    """A claim that was due that many seconds ago."""
    at = None if due is None else clock.now() - round(due * SECOND)
    return Claim(id="t", token=Token(1, 1), handler="h", queue="q", params="{}", attempt=1, due_at=at, leased=leased)


def test_it_counts_starts_waits_and_runs() -> None:
    clock = FakeClock()
    measured = Measurements(clock)
    for due in (1, 2, 3):
        one = claim(clock, due=due)
        measured.started(one)
        measured.ended(one, DONE, 4 * SECOND, None)
    ((figures,), resources) = measured.take()
    assert (figures.queue, figures.handler, figures.started) == ("q", "h", 3)
    assert (figures.wait.n, figures.wait.sum) == (3, 6 * SECOND)
    assert (figures.run.n, figures.run.sum) == (3, 12 * SECOND)
    assert resources == {}
    assert measured.take() == ([], {})


def test_it_notes_the_memory_of_tasks() -> None:
    measured = Measurements(FakeClock())
    for size in (1000, 3000):
        measured.used_memory(claim(FakeClock()), size)
    ((figures,), _) = measured.take()
    assert (figures.memory.n, figures.memory.sum, figures.started) == (2, 4000, 0)


def test_a_task_whose_due_time_is_not_known_has_no_wait() -> None:
    measured = Measurements(FakeClock())
    measured.started(claim(FakeClock(), due=None))
    ((figures,), _) = measured.take()
    assert (figures.started, figures.wait.n) == (1, 0)


def test_what_comes_back_without_having_begun_was_not_started() -> None:
    clock = FakeClock()
    measured = Measurements(clock)
    for outcome in (Released(), Released(started=True)):
        measured.started(claim(clock))
        measured.ended(claim(clock), outcome, None, None)
    ((figures,), _) = measured.take()
    assert (figures.started, figures.run.n) == (1, 0)


def test_a_task_that_comes_back_in_the_next_sample_is_taken_off_there_without_a_negative_count() -> None:
    clock = FakeClock()
    measured = Measurements(clock)
    told = []
    for starts, backs in ((3, 0), (0, 2), (1, 0), (4, 0)):
        for _ in range(starts):
            measured.started(claim(clock, due=None))
        for _ in range(backs):
            measured.unstarted(claim(clock))
        told.append([one.started for one in measured.take()[0]])
    assert told == [[3], [], [], [3]]


def test_it_counts_uses_refusals_and_limits_of_pools() -> None:
    clock = FakeClock()
    measured = Measurements(clock)
    one = claim(clock, leased=Leased(pool="proxies", name="p1"))
    blocked = Report(outcome=ResourceOutcome.BLOCKED, destination="shop.example.org")
    for report in (blocked, blocked, Report(outcome=ResourceOutcome.RATE_LIMITED), Report(outcome=ResourceOutcome.OK)):
        measured.started(one)
        measured.ended(one, DONE, SECOND, report)
    measured.short([Shortage(pool="proxies", why="all busy")])
    _, resources = measured.take()
    assert resources["proxies"].uses == 4
    assert resources["proxies"].refusals == {"shop.example.org": 2, "(unknown)": 1}
    assert resources["proxies"].destinations == {"shop.example.org": 2, "(unknown)": 2}
    assert resources["proxies"].limits_met == 1
