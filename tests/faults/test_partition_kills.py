"""Partitions under joins, leaves, kills, pauses and restarts; `make soak ARGS=partitions` runs it with 20,000 tasks."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.partition_kills import Outcome, Run, double_owners, troubled


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["balanced", "static"])
def test_each_task_is_done_once_and_no_key_has_two_owners(durable_dsn: str, disk: Path, mode: str) -> None:
    outcome = troubled(durable_dsn, disk / mode, mode, tasks=1500, rounds=1, seed=5)
    assert outcome.faults == []
    assert outcome.tasks >= 1500
    assert sum(outcome.troubles.values()) >= 8


def test_a_long_run_that_measured_too_little_does_not_pass() -> None:
    measured = Counter({"joins": 3, "restarts": 2})
    outcome = Outcome(1, 1, 0, Counter(), measured, 0.0, [])
    assert outcome.unmeasured(3) == ["restarts: 2 measured, 3 wanted", "kills: 0 measured, 3 wanted"]
    assert outcome.unmeasured(0) == []


def test_two_owners_at_once_would_be_noticed() -> None:
    north, south = ("north", "scrapers-1"), ("south", "scrapers-1")
    apart = [Run("S01", 0, 10, north), Run("S01", 10, 20, south), Run("S02", 5, 15, south)]
    assert double_owners(apart) == []
    assert double_owners([*apart, Run("S01", 15, 25, north)]) != []
    assert double_owners([Run("S01", 0, 10, north, "1"), Run("S01", 5, 15, north, "1")]) == []
    assert double_owners([Run("S01", 0, 10, north, "1"), Run("S01", 5, 15, north, "2")]) != []
