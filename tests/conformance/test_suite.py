"""The suite itself: no subject hides a test of another, and none of our engines leaves one out."""

import pytest

from pitboss.testing.conformance import (
    BatchConformance,
    Conformance,
    CoreConformance,
    DurableConformance,
    PartitionConformance,
    ResourceConformance,
)
from tests.conformance import test_memory, test_postgres, test_skeleton, test_sqlite

MIN_CASES = 850


def names(subject: type) -> list[str]:
    return [name for name in vars(subject) if name.startswith("test_")]


def test_every_test_of_every_subject_is_run() -> None:
    for suite in (Conformance, DurableConformance):
        all_names = [name for subject in suite.__mro__ for name in names(subject)]
        assert len(all_names) == len(set(all_names))
        assert len(all_names) >= MIN_CASES


def test_every_test_is_a_sentence() -> None:
    for subject in DurableConformance.__mro__:
        for name in names(subject):
            assert name == name.lower()
            assert name.count("_") >= 1


@pytest.mark.parametrize(
    "suite", [test_memory.TestMemory, test_sqlite.TestSqlite, test_postgres.TestPostgres], ids=lambda one: one.__name__
)
def test_every_engine_of_ours_proves_everything(suite: type) -> None:
    assert issubclass(suite, Conformance)
    assert issubclass(suite, ResourceConformance)
    assert issubclass(suite, BatchConformance)
    assert issubclass(suite, PartitionConformance)
    assert not names(suite), "an engine's own module must not replace a case"


def test_the_skeleton_engine_proves_the_whole_core() -> None:
    assert issubclass(test_skeleton.TestSkeleton, CoreConformance)
    assert not names(test_skeleton.TestSkeleton), "an engine's own module must not replace a case"
