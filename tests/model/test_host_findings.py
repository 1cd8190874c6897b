"""The thresholds of findings about a host."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.finding import Grade
from pitboss.model.host_findings import clock_skew, clock_step, disk_space, memory_limits, open_files
from pitboss.model.pool import PoolSpec

GIGA = 1024**3


@pytest.mark.parametrize(
    ("free", "total", "grade"),
    [
        (500 * GIGA, 1000 * GIGA, Grade.OK),
        (9 * GIGA, 1000 * GIGA, Grade.WARNING),
        (11 * GIGA, 1000 * GIGA, Grade.OK),
        (GIGA // 2, 1000 * GIGA, Grade.PROBLEM),
        (2 * GIGA, 10 * GIGA, Grade.OK),
        (GIGA // 2, 10 * GIGA, Grade.WARNING),
        (GIGA // 20, 10 * GIGA, Grade.PROBLEM),
    ],
)
def test_space_on_large_and_small_disks(free: int, total: int, grade: Grade) -> None:
    assert disk_space("disk", "/data", free, total).grade is grade


@pytest.mark.parametrize(
    ("distance", "uncertain", "grade"),
    [
        (0, 0, Grade.OK),
        (SECOND, 0, Grade.OK),
        (-2 * SECOND, 0, Grade.WARNING),
        (2 * SECOND, 2 * SECOND, Grade.OK),
        (6 * SECOND, SECOND // 2, Grade.PROBLEM),
        (-3600 * SECOND, 0, Grade.PROBLEM),
    ],
)
def test_clock_skew(distance: int, uncertain: int, grade: Grade) -> None:
    finding = clock_skew(distance, uncertain)
    assert finding.grade is grade
    if grade is not Grade.OK:
        assert ("behind" in finding.what) == (distance < 0)


def test_a_clock_that_was_set_is_a_warning() -> None:
    assert clock_step(SECOND).grade is Grade.OK
    ahead, back = clock_step(3600 * SECOND), clock_step(-3600 * SECOND)
    assert (ahead.grade, back.grade) == (Grade.WARNING, Grade.WARNING)
    assert "1h behind the time of day" in ahead.what
    assert "1h ahead of the time of day" in back.what


@pytest.mark.parametrize(
    ("pools", "grade"),
    [
        ([], Grade.OK),
        ([PoolSpec()], Grade.OK),
        ([PoolSpec(memory=GIGA, max_workers=4)], Grade.OK),
        ([PoolSpec(memory=GIGA, max_workers=9)], Grade.WARNING),
        ([PoolSpec(memory=GIGA, min_workers=5, max_workers=5), PoolSpec(memory=4 * GIGA)], Grade.PROBLEM),
    ],
)
def test_memory_limits_beyond_the_memory_of_the_host(pools: list[PoolSpec], grade: Grade) -> None:
    assert [finding.grade for finding in memory_limits(pools, 8 * GIGA)] == [grade]


def test_unknown_memory_gives_no_finding() -> None:
    assert memory_limits([PoolSpec(memory=GIGA)], 0) == []


def test_open_files() -> None:
    assert open_files(1024, 100).grade is Grade.OK
    assert open_files(1024, 200).grade is Grade.PROBLEM
