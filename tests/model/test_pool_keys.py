"""A pool's keys as people write them."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec, RestartPolicy
from pitboss.model.pool_keys import (
    KEYS,
    DeclaredPool,
    PoolKeys,
    checked,
    checked_pool_name,
    declared,
    named_fields,
    same_pool,
)

MB = 1024**2


@pytest.mark.parametrize(
    ("key", "value", "becomes"),
    [
        ("queues", ["a", "b", "a"], ("a", "b")),
        ("queues", "a, b", ("a", "b")),
        ("queues", "*", None),
        ("queues", None, None),
        ("workers", 3, (3, 3)),
        ("workers", "3", (3, 3)),
        ("workers", 0, (0, 0)),
        ("workers", "1-8", (1, 8)),
        ("workers", " 0 - 8 ", (0, 8)),
        ("workers", {"min": 2, "max": 4}, (2, 4)),
        ("workers", {"max": 4}, (1, 4)),
        ("workers", (2, 4), (2, 4)),
        ("workers", ["2", "4"], (2, 4)),
        ("concurrency", "7", 7),
        ("memory", "512MB", 512 * MB),
        ("memory", MB, MB),
        ("memory", "none", None),
        ("memory_soft", "0.5GB", 512 * MB),
        ("cpu", "0.5", 0.5),
        ("cpu", 2, 2.0),
        ("restart", "on-failure", RestartPolicy.ON_FAILURE),
        ("restart_delay", "0", 0),
        ("restart_delay", 1.5, 1_500_000),
        ("restart_delay", timedelta(seconds=2), 2 * SECOND),
        ("max_restarts", 0, 0),
        ("restart_window", "10m", 600 * SECOND),
        ("stagger", "2-5s", (2 * SECOND, 5 * SECOND)),
        ("stagger", (2, 5), (2 * SECOND, 5 * SECOND)),
        ("delay", "8-20s", (8 * SECOND, 20 * SECOND)),
        ("delay", "3", (3 * SECOND, 3 * SECOND)),
        ("max_tasks_per_worker", "none", None),
        ("max_tasks_per_worker", 100, 100),
        ("max_age", "1.5", 1_500_000),
        ("max_age", None, None),
        ("unresponsive", "90s", 90 * SECOND),
        ("target_wait", 5, 5 * SECOND),
        ("env", {"A": "1"}, {"A": "1"}),
    ],
)
def test_what_can_be_written(key: str, value: Any, becomes: Any) -> None:
    found = checked(key, value)
    assert found == becomes
    assert type(found) is type(becomes)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("queues", [], "does not name queues"),
        ("queues", "", "does not name queues"),
        ("queues", [1], "does not name queues"),
        ("queues", 3, "does not name queues"),
        ("queues", True, "does not name queues"),
        ("queues", ["a b"], "cannot name a queue"),
        ("workers", -1, "is not a number of workers"),
        ("workers", 1001, "is not a number of workers"),
        ("workers", True, "is not a number of workers"),
        ("workers", 1.5, "is not a number of workers"),
        ("workers", "8-1", "the least is more than the most"),
        ("workers", "many", "is not a number of workers"),
        ("workers", {"min": 1}, "is not a number of workers"),
        ("workers", {"max": 2, "most": 3}, "is not a number of workers"),
        ("workers", [1, 2, 3], "is not a number of workers"),
        ("concurrency", 0, "from 1 to 10000"),
        ("concurrency", False, "from 1 to 10000"),
        ("memory", "0MB", "is not a size"),
        ("memory", "lots", "is not a size"),
        ("memory", True, "is not a size"),
        ("cpu", 0, "is not a number of cores"),
        ("cpu", "nan", "is not a number of cores"),
        ("cpu", True, "is not a number of cores"),
        ("cpu", "half", "is not a number of cores"),
        ("restart", "no", "always, on-failure, unless-stopped"),
        ("restart", False, "always, on-failure, unless-stopped"),
        ("restart", [], "always, on-failure, unless-stopped"),
        ("restart_delay", "1:30", "is not a duration"),
        ("restart_delay", -1, "is not a duration"),
        ("restart_window", 0, "must be more than 0"),
        ("stagger", "5-2s", "begins after its end"),
        ("delay", "soon", "is not a duration"),
        ("delay", [1, 2, 3], "is not a time or two"),
        ("delay", [], "is not a time or two"),
        ("max_age", "0s", "must be more than 0"),
        ("max_tasks_per_worker", 0, "from 1 to"),
        ("env", "A=1", "is not a table"),
        ("env", {"A": 1}, "is not text"),
        ("env", {"A B": "1"}, "cannot name a variable"),
        ("env", {"A": "a\0b"}, "is not text"),
        ("worker", 3, 'write "workers"'),
        ("colour", "red", "remove it"),
    ],
)
def test_what_cannot(key: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(key, value)
    assert said in str(caught.value)
    assert caught.value.why
    assert caught.value.fix


@given(key=st.sampled_from(KEYS), value=st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_nothing_but_a_clear_refusal_comes_of_nonsense(key: str, value: Any) -> None:
    with suppress(InvalidInput):
        checked(key, value)


def test_the_types_for_code_name_every_key() -> None:
    assert set(PoolKeys.__annotations__) == set(KEYS)
    assert {"min_workers", "max_workers", *KEYS} - {"workers"} == {*PoolSpec.__struct_fields__} - {"name", "only"}


def test_a_declared_pool_knows_what_was_said() -> None:
    pool = declared("download", {"workers": "1-3", "concurrency": 16})
    assert (pool.min_workers, pool.max_workers) == (1, 3)
    assert named_fields(pool) == {"min_workers": 1, "max_workers": 3, "concurrency": 16}
    assert msgspec.json.decode(msgspec.json.encode(pool), type=DeclaredPool) == pool


def test_a_declared_pool_names_the_key_that_is_wrong() -> None:
    with pytest.raises(InvalidInput, match='pool "download", workers: '):
        declared("download", {"workers": "many"})
    with pytest.raises(InvalidInput, match='memory_soft of pool "download" is more than its memory'):
        declared("download", {"memory": "1MB", "memory_soft": "2MB"})


@pytest.mark.parametrize("name", ["download", "video-preview", "a_b", "X1", "1"])
def test_names(name: str) -> None:
    assert checked_pool_name(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a__b", "-a", "a_", "a/b", "é", "a\n", "x" * 65, 3])
def test_bad_names(name: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot name a pool"):
        checked_pool_name(name)


def test_two_spellings_of_one_pool() -> None:
    assert same_pool("Video-Preview") == same_pool("video_preview") != same_pool("videopreview")
