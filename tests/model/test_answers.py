"""Which of several answers says how a use went."""

import pytest

from pitboss.model.answers import Answers
from pitboss.model.duration import SECOND
from pitboss.model.resource import Report, ResourceOutcome

LIMITED, BLOCKED, FAULTY, UNKNOWN = (
    Report(outcome=outcome, destination="a")
    for outcome in (
        ResourceOutcome.RATE_LIMITED,
        ResourceOutcome.BLOCKED,
        ResourceOutcome.RESOURCE_ERROR,
        ResourceOutcome.TASK_ERROR,
    )
)


def answers(*seen: tuple[str, Report | None]) -> Answers:
    found = Answers()
    for destination, report in seen:
        found.asked(destination)
        found.add(destination, report)
    return found


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([], None),
        ([("a", None)], None),
        ([("a", UNKNOWN)], UNKNOWN),
        ([("a", UNKNOWN), ("a", None)], None),
        ([("a", UNKNOWN), ("b", None)], UNKNOWN),
        ([("a", BLOCKED), ("b", FAULTY)], BLOCKED),
        ([("a", FAULTY), ("b", UNKNOWN)], FAULTY),
        ([("a", LIMITED), ("a", None)], LIMITED),
        ([("a", LIMITED), ("b", BLOCKED)], LIMITED),
    ],
)
def test_the_last_answer_of_a_destination_counts_and_a_rate_limit_stays(
    seen: list[tuple[str, Report | None]], told: Report | None
) -> None:
    assert answers(*seen).report() == told


def test_the_longest_pause_counts() -> None:
    pauses = [Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=one * SECOND) for one in (5, 30, 10)]
    assert answers(*(("a", one) for one in pauses)).report() == pauses[1]
    assert answers(("a", pauses[1]), ("a", LIMITED), ("a", pauses[2])).report() == LIMITED, "the pool's own cooldown"


def test_an_exception_that_blames_nothing_gives_way_to_an_answer() -> None:
    odd = Report(outcome=ResourceOutcome.TASK_ERROR, error="ValueError: odd page")
    assert answers(("a", BLOCKED)).beside(odd) == BLOCKED
    assert answers(("a", BLOCKED)).beside(FAULTY) == FAULTY
    placed = answers(("b", UNKNOWN), ("c", None)).beside(odd)
    assert (placed.error, placed.destination) == (odd.error, "a"), "the host that failed"
    assert answers(("c", None)).beside(odd).destination == "c", "the host that was asked last"
