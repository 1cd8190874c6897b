"""kill -9 of publishers, workers and managers: each subscriber handles each event, and each key keeps its order."""

from pathlib import Path

import pytest

from tests.faults.event_kills import Attempt, Kills, killed_while_publishing, out_of_order, unhandled
from tests.faults.event_shop import HANDLERS
from tests.faults.stores import MakeUrl

# `make soak ARGS=events` has 10,000 events.
EVENTS = 120
KILLS = Kills(publishers=2, workers=3, managers=1)
LIMIT = 120.0


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_each_event_is_handled_by_each_subscriber_in_the_order_of_its_key(
    engine: str, make_url: MakeUrl, tmp_path: Path
) -> None:
    outcome = killed_while_publishing(make_url(engine), tmp_path, EVENTS, KILLS, seed=1, limit=LIMIT)
    assert outcome.faults == []
    assert outcome.tasks == EVENTS * len(HANDLERS)
    # Those of the time without workers come on top.
    assert outcome.killed["managers"] >= 2
    assert outcome.killed["publishers"] == KILLS.publishers
    assert outcome.runs > outcome.tasks


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([Attempt(0, 0, 5, True), Attempt(4, 1, 6, True)], "overlap"),
        ([Attempt(0, 1, 2, True), Attempt(4, 0, 6, True)], "began after"),
        ([Attempt(0, 0, 5, True), Attempt(4, 0, None, False)], "overlap"),
    ],
)
def test_what_is_out_of_order_is_seen(attempts: list[Attempt], said: str) -> None:
    (fault,) = out_of_order(attempts)
    assert said in fault


def test_what_is_in_order() -> None:
    assert out_of_order([Attempt(0, 0, None, False), Attempt(1, 0, 2, True), Attempt(3, 1, 4, True)]) == []
    other_key = Attempt(1, 3, 9, True)
    assert out_of_order([Attempt(0, 0, 5, True), other_key]) == []


def test_an_event_that_was_not_handled_is_seen() -> None:
    attempts = {handler: [Attempt(0, 0, 1, True)] for handler in HANDLERS}
    assert unhandled(attempts, 1) == []
    attempts["mail"] = [Attempt(0, 0, 1, False)]
    assert unhandled(attempts, 1) == ["mail never handled event 0"]
