"""Repeat a call, keep its answer, take items in batches."""

import asyncio
import logging
import time
from typing import Any

import pytest

from pitboss.remote import TTLCache, cached, in_batches, retry


class Flaky:
    """Fails a few times, then returns the number of its calls."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.calls, self.failures, self.error = 0, failures, error

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"call {self.calls}")
        return self.calls


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def asleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(asyncio, "sleep", asleep)
    return slept


def test_retry_waits_longer_each_time(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    flaky = Flaky(2)
    with caplog.at_level(logging.WARNING):
        assert retry()(flaky)() == 3
    assert pauses == [1.0, 2.0]
    assert "Attempt 1 failed: call 1. Retrying in 1s..." in caplog.text


def test_retry_raises_the_last_error(pauses: list[float]) -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="call 4"):
        retry(max_attempts=4, backoff_factor=3)(flaky)()
    assert pauses == [1.0, 3.0, 9.0]


def test_retry_leaves_other_errors_alone(pauses: list[float]) -> None:
    flaky = Flaky(9, ValueError)
    with pytest.raises(ValueError, match="call 1"):
        retry(exceptions=(ConnectionError,))(flaky)()
    assert pauses == []


async def test_retry_of_a_coroutine(pauses: list[float]) -> None:
    flaky = Flaky(2)

    @retry(max_attempts=3)
    async def fetch() -> int:
        return flaky()

    assert await fetch() == 3
    assert pauses == [1.0, 2.0]
    assert fetch.__name__ == "fetch"


def test_retry_needs_an_attempt() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        retry(max_attempts=0)


def test_a_cache_forgets_after_a_time_and_the_least_recently_used_first() -> None:
    now = [0.0]
    cache = TTLCache(maxsize=2, ttl=10, clock=lambda: now[0])
    cache["a"], cache["b"] = 1, None
    assert cache["a"] == 1
    cache["c"] = 3
    assert ("a" in cache, "b" in cache, "c" in cache, len(cache)) == (True, False, True, 2)
    now[0] = 10.0
    assert cache.get("a", "gone") == "gone"
    with pytest.raises(KeyError):
        cache["a"]
    cache.clear()
    assert len(cache) == 0


def test_a_cache_has_a_thousand_entries_by_default() -> None:
    cache = TTLCache()
    for n in range(1001):
        cache.set(n, n)
    assert (len(cache), 0 in cache, 1000 in cache) == (1000, False, True)


class Client:
    def __init__(self) -> None:
        self.calls = 0

    @cached(ttl=3600)
    def get_video_metadata(self, video_id: str, part: str = "snippet") -> Any:
        self.calls += 1
        if video_id == "bad":
            raise ConnectionError
        return None if video_id == "none" else (video_id, part)


def test_cached_works_on_methods_keeps_none_and_forgets_errors() -> None:
    one, two = Client(), Client()
    assert one.get_video_metadata("v") == one.get_video_metadata("v") == ("v", "snippet")
    assert one.get_video_metadata("v", part="id") == ("v", "id")
    assert one.get_video_metadata("none") is one.get_video_metadata("none") is None
    assert one.calls == 3
    two.get_video_metadata("v")
    assert two.calls == 1
    for _ in range(2):
        with pytest.raises(ConnectionError):
            two.get_video_metadata("bad")
    assert two.calls == 3
    Client.get_video_metadata.cache_clear()  # type: ignore[attr-defined]
    one.get_video_metadata("v")
    assert one.calls == 4


async def test_cached_keeps_what_a_coroutine_returns() -> None:
    calls = []

    @cached()
    async def fetch(name: str) -> str:
        calls.append(name)
        return name

    assert [await fetch("a"), await fetch("a"), await fetch("b")] == ["a", "a", "b"]
    assert calls == ["a", "b"]


def test_batches() -> None:
    assert [len(batch) for batch in in_batches(range(120))] == [50, 50, 20]
    assert list(in_batches("abc", 2)) == [["a", "b"], ["c"]]
    assert list(in_batches([])) == []
    with pytest.raises(ValueError, match="at least 1"):
        list(in_batches([1], 0))
