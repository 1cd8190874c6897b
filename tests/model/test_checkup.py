"""The thresholds of a check-up."""

import pytest

from pitboss.model import checkup
from pitboss.model.duration import SECOND
from pitboss.model.finding import Grade
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
def test_room_on_disks_large_and_small(free: int, total: int, grade: Grade) -> None:
    assert checkup.room("disk", "/data", free, total).grade is grade


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
def test_clocks_that_differ(distance: int, uncertain: int, grade: Grade) -> None:
    finding = checkup.skew(distance, uncertain)
    assert finding.grade is grade
    if grade is not Grade.OK:
        assert ("behind" in finding.what) == (distance < 0)


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
def test_limits_of_memory_beyond_what_there_is(pools: list[PoolSpec], grade: Grade) -> None:
    assert [finding.grade for finding in checkup.memory(pools, 8 * GIGA)] == [grade]


def test_memory_that_is_not_known_is_not_judged() -> None:
    assert checkup.memory([PoolSpec(memory=GIGA)], 0) == []


def test_open_files() -> None:
    assert checkup.files(1024, 100).grade is Grade.OK
    assert checkup.files(1024, 200).grade is Grade.PROBLEM
