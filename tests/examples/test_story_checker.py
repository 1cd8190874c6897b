"""The tests that the document names for its worker pool, against a running site and proxies."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import pytest

from story_checker.app import database, proxies
from story_checker.checker import (
    USER_AGENT,
    Banned,
    NotWelcome,
    ProxyTrouble,
    SessionExpired,
    TooManyRequests,
    UnknownProfile,
)
from story_checker.database import BatchProfile
from story_checker.stand_in.site import HouseRules
from story_checker.worker_manager import StoryChecker, Worker, WorkerPool
from tests.examples.checker_stage import HOUR, LIMIT, SETTINGS, Stage, auntil, until

GENEROUS = HouseRules(limit=1000, window=HOUR)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path, GENEROUS, proxies=3) as stage:
        yield stage


def taken(pool: WorkerPool) -> Worker:
    worker = pool.get_worker()
    assert worker is not None
    return worker


def waited_for(pool: WorkerPool) -> Worker:
    found: list[Worker] = []

    def asked() -> bool:
        worker = pool.get_worker()
        found.extend([] if worker is None else [worker])
        return bool(found)

    until(asked, "a worker is free")
    return found[0]


def worker_of(pool: WorkerPool, stage: Stage, number: int) -> Worker:
    """The worker with this proxy. Others that come first are given back; they count as used."""
    for _ in range(10):
        worker = waited_for(pool)
        if worker.proxy == stage.proxy(number).url:
            return worker
        pool.release_worker(worker)
    raise AssertionError(f"proxy {number} never came")


async def one_check(pool: WorkerPool, profile: str) -> Worker:
    worker = taken(pool)
    try:
        await worker.check_story(profile)
    finally:
        pool.release_worker(worker)
    return worker


@pytest.mark.parametrize("proxy", ["", "127.0.0.1:8080", "http://127.0.0.1", "ftp://127.0.0.1:1", "http://h:port"])
def test_proxy_validation_refuses_what_is_no_proxy(stage: Stage, proxy: str) -> None:
    with pytest.raises(ValueError, match="a proxy is given as"):
        WorkerPool().add_proxy_session(proxy, "session_id=abc123")
    with pytest.raises(ValueError, match="neither a session cookie nor an account"):
        WorkerPool().add_proxy_session("http://127.0.0.1:8080")
    assert proxies.members() == []


async def test_proxy_validation_by_use_blames_the_proxy_and_never_says_no_story(stage: Stage) -> None:
    (profile,) = stage.profiles(1)
    pool = WorkerPool()
    pool.add_proxy_session(stage.proxy(1).url.replace("://", "://story:wrong@"), "session_id=abc123")
    worker = await one_check(pool, profile)
    assert isinstance(worker.last_error, ProxyTrouble)
    assert worker.last_result is None
    assert worker.error_count == 1
    assert not stage.site.arrivals or all(one.path == "/robots.txt" for one in stage.site.arrivals)


async def test_proxy_reuse_keeps_its_session(stage: Stage) -> None:
    first, second = stage.profiles(2)
    pool = WorkerPool()
    assert stage.add(pool, 1, cookies=False)
    used = [await one_check(pool, profile) for profile in (first, second)]
    assert [worker.proxy for worker in used] == [stage.proxy(1).url] * 2
    assert [worker.last_result.has_story for worker in used if worker.last_result] == [False, True]
    assert stage.logins() == 1, "one login served both"
    assert not stage.add(pool, 1, cookies=False), "it is known already"


async def test_rate_limit_handling(tmp_path: Path) -> None:
    rules = HouseRules(limit=1000, window=HOUR, strict={"127.0.0.11": 1})
    with Stage(tmp_path, rules, proxies=2) as stage:
        profiles = stage.profiles(6)
        pool = stage.pool()
        worker = worker_of(pool, stage, 1)
        assert await worker.check_story(profiles[0])
        assert not await worker.check_story(profiles[1])
        assert isinstance(worker.last_error, TooManyRequests)
        assert worker.is_rate_limited
        assert worker.last_result is not None
        assert worker.last_result.username == profiles[0], "a refusal is not the answer that there is no story"
        pool.release_worker(worker)
        assert pool.proxy_states[worker.proxy] == {"disabled": False, "rate_limited": True}
        others = [await one_check(pool, profile) for profile in profiles[2:4]]
        assert {other.proxy for other in others} == {stage.proxy(2).url}
        await auntil(lambda: not worker.is_rate_limited, "it comes back by itself")
        assert await worker_of(pool, stage, 1).check_story(profiles[4])
        assert stage.figures(1).refused == 1
        assert stage.figures(1).too_early == 0, "no request came before the end of the Retry-After"


async def test_rate_limit_handling_of_a_date(tmp_path: Path) -> None:
    """The site says until when as a date. The proxy pauses until then, not for the pool's own cooldown."""
    rules = HouseRules(limit=1000, window=HOUR, strict={"127.0.0.11": 1}, dates=True)
    with Stage(tmp_path, rules, proxies=1) as stage:
        profiles = stage.profiles(3)
        pool = stage.pool()
        worker = taken(pool)
        assert await worker.check_story(profiles[0])
        assert not await worker.check_story(profiles[1])
        (refusal,) = (one for one in stage.site.arrivals if one.status == HTTPStatus.TOO_MANY_REQUESTS)
        assert refusal.retry_after > SETTINGS.proxy_cooldown
        pool.release_worker(worker)
        assert await waited_for(pool).check_story(profiles[2])
        assert stage.figures(1).too_early == 0, "no request came before that date"


async def test_a_fresh_worker_is_not_rate_limited(stage: Stage) -> None:
    """Our own count of requests may lag behind the store, which has just granted a request."""
    (profile,) = stage.profiles(1)
    pool = stage.pool()
    for _ in range(LIMIT):
        for member in proxies.members():
            database.note_request(member.name)
    worker = taken(pool)
    assert worker.requests_this_hour == LIMIT
    assert not worker.is_rate_limited
    assert await worker.check_story(profile)
    assert worker.is_rate_limited


async def test_the_names_of_the_document(stage: Stage) -> None:
    without, with_story = stage.profiles(2, f"named_{time.time_ns()}")
    database.add_niche("named")
    database.import_profiles("named", [without, with_story])
    pool = stage.pool()
    assert len(pool.available_workers) == 3
    assert pool.last_used == {}
    worker = taken(pool)
    assert worker.story_checker is None
    assert worker.proxy_session.session.is_valid()
    assert worker.proxy not in [other.proxy for other in pool.available_workers]
    found = [database.profile(name) for name in (without, with_story)]
    asked = [BatchProfile(profile, batch_id="a batch") for profile in found if profile]
    assert [await worker.check_story(one) for one in asked] == [True, True]
    assert [(one.status, one.has_story) for one in asked] == [("completed", False), ("completed", True)]
    assert isinstance(worker.story_checker, StoryChecker)
    assert worker.last_result is not None
    assert worker.last_result.batch == "a batch"
    now = datetime.now(UTC)
    assert worker.hour_start <= now - timedelta(seconds=HOUR) + timedelta(seconds=1)
    pool.release_worker(worker)
    assert worker in pool.available_workers
    assert now - timedelta(seconds=10) < pool.last_used[worker.proxy] <= datetime.now(UTC)
    (proxy,) = (one for one in pool.proxies if one.url == worker.proxy)
    assert (proxy.rate_limited, proxy.is_active, proxy.error_count) == (False, True, 0)
    assert proxy.last_used == pool.last_used[worker.proxy]
    assert proxy.avg_response_time > 0, "in milliseconds"


async def test_a_released_worker_that_is_limited_is_not_available(stage: Stage) -> None:
    profiles = stage.profiles(LIMIT)
    pool = WorkerPool()
    stage.add(pool, 1)
    worker = taken(pool)
    for profile in profiles:
        assert await worker.check_story(profile)
    pool.release_worker(worker)
    assert pool.available_workers == []
    assert pool.proxies[0].rate_limited


async def test_a_session_that_the_site_refused_is_not_valid(stage: Stage) -> None:
    first, second = stage.profiles(2)
    pool = WorkerPool()
    stage.add(pool, 1)
    worker = taken(pool)
    stage.site.end_sessions()
    assert not await worker.check_story(first)
    assert not worker.proxy_session.session.is_valid()
    assert not await worker.check_story(second)
    assert all(one.path != f"/stories/{second}" for one in stage.site.arrivals)


async def test_proxy_error_threshold_takes_it_out_for_a_time_and_a_probe_brings_it_back(stage: Stage) -> None:
    profiles = stage.profiles(40)
    pool = stage.pool()
    broken = stage.proxy(1)
    stage.world.do(broken.server.stop())
    failures = 0
    for profile in profiles[:12]:
        worker = await one_check(pool, profile)
        failures += worker.last_error is not None
        if pool.proxy_states[broken.url]["disabled"]:
            break
    assert failures == SETTINGS.proxy_max_failures
    assert pool.proxy_states[stage.proxy(2).url]["disabled"] is False
    out = worker_of(pool, stage, 2)
    pool.release_worker(out)
    stage.world.do(broken.server.start())
    await auntil(lambda: not pool.proxy_states[broken.url]["disabled"], "it is never out for ever")
    probe = worker_of(pool, stage, 1)
    assert await probe.check_story(profiles[20])
    pool.release_worker(probe)
    assert probe.error_count == 0


async def test_proxy_cooldown(stage: Stage) -> None:
    profiles = stage.profiles(3)
    pool = stage.pool()
    stage.site.banned.add(stage.address(1))
    worker = worker_of(pool, stage, 1)
    assert not await worker.check_story(profiles[0])
    assert isinstance(worker.last_error, Banned)
    pool.release_worker(worker)
    assert worker.is_rate_limited, "it cools down"
    worker.clear_rate_limit()
    assert not worker.is_rate_limited
    stage.site.banned.clear()
    assert await worker_of(pool, stage, 1).check_story(profiles[1])


def test_concurrent_workers(stage: Stage) -> None:
    """With more threads than workers, at most `max_threads` run, and no proxy has two users."""
    profiles = stage.profiles(LIMIT * 3)
    pool = stage.pool()
    lock, held, most = threading.Lock(), set[str](), [0]

    def check(profile: str) -> str:
        worker = waited_for(pool)
        with lock:
            assert worker.proxy not in held
            held.add(worker.proxy)
            most[0] = max(most[0], len(pool.active_workers))
        try:
            assert asyncio.run(worker.check_story(profile)), worker.last_error
        finally:
            with lock:
                held.discard(worker.proxy)
            pool.release_worker(worker)
        return worker.proxy

    with ThreadPoolExecutor(8) as threads:
        used = [*threads.map(check, profiles)]
    assert most[0] <= SETTINGS.max_threads
    assert len(set(used)) == 3
    assert all(stage.answered(profile) == 1 for profile in profiles)
    assert stage.violations() == 0
    assert pool.active_workers == []


async def test_at_most_max_threads_are_handed_out(tmp_path: Path) -> None:
    with Stage(tmp_path, GENEROUS, proxies=4) as stage:
        pool = stage.pool()
        workers = [taken(pool) for _ in range(SETTINGS.max_threads)]
        assert pool.get_worker() is None
        pool.release_worker(workers[0])
        assert pool.get_worker() is not None


async def test_hourly_rate_limit(stage: Stage) -> None:
    """The document's own example. The limit holds across worker objects, pools and the site's log."""
    profiles = stage.profiles(3 * LIMIT)
    pool = WorkerPool()
    stage.add(pool, 1)
    worker = taken(pool)
    for profile in profiles[:LIMIT]:
        assert await worker.check_story(profile)
    assert worker.is_rate_limited
    assert worker.requests_this_hour == LIMIT, "the whole budget, not one less"
    pool.release_worker(worker)
    another = WorkerPool()
    assert another.get_worker() is None
    assert another.proxy_states[stage.proxy(1).url]["rate_limited"]
    worker.clear_rate_limit()
    assert another.get_worker() is None, "clearing a cooldown does not lift a limit"
    await auntil(lambda: another.proxy_states[stage.proxy(1).url]["rate_limited"] is False, "the hour is over")
    fresh = taken(another)
    assert fresh.requests_this_hour < LIMIT
    assert await fresh.check_story(profiles[LIMIT])
    assert stage.figures(1).most == LIMIT
    assert stage.violations() == 0


async def test_least_recently_used(stage: Stage) -> None:
    profiles = stage.profiles(6)
    pool = stage.pool()
    used = [(await one_check(pool, profile)).proxy for profile in profiles]
    assert used[:3] == used[3:]
    assert len(set(used)) == 3


async def test_session_refresh_after_the_site_ended_it(stage: Stage) -> None:
    first, second = stage.profiles(2)
    pool = WorkerPool()
    stage.add(pool, 1)
    stage.site.end_sessions()
    worker = await one_check(pool, first)
    assert isinstance(worker.last_error, SessionExpired)
    assert worker.error_count == 0, "not the proxy's fault"
    again = await one_check(pool, second)
    assert again.last_error is None
    assert stage.logins() == 1


async def test_session_cleanup_leaves_no_cookie_behind(stage: Stage, tmp_path: Path) -> None:
    """Secrets are encrypted in the store, and are not in our own database."""
    (profile,) = stage.profiles(1)
    pool = stage.pool()
    worker = await one_check(pool, profile)
    secrets = [worker.lease.secret(name) for name in worker.lease.secret_names]
    assert len(secrets) == 3
    for file in found_in(tmp_path, database.path.parent):
        content = await asyncio.to_thread(file.read_bytes)
        assert not any(secret.encode() in content for secret in secrets), file


def found_in(*folders: Path) -> list[Path]:
    files = [file for folder in folders for file in folder.glob("*.db*") if file.is_file()]
    assert len(files) >= len(folders)
    return files


async def test_worker_pool_shutdown(stage: Stage) -> None:
    pool = stage.pool()
    workers = [taken(pool), taken(pool)]
    assert sum(member.in_use for member in proxies.members()) == 2
    pool.shutdown()
    assert sum(member.in_use for member in proxies.members()) == 0
    assert pool.get_worker() is None
    pool.release_worker(workers[0])
    assert WorkerPool().get_worker() is not None, "the proxies are there for others"


async def test_worker_initialization_error_passes_on_to_another_proxy(stage: Stage) -> None:
    pool = WorkerPool()
    stage.site.accounts["user-1"] = "changed"
    for number in (1, 2):
        stage.add(pool, number, cookies=False)
    # The least recently used proxy comes first: one of two is the broken one.
    workers = [await one_check(pool, profile) for profile in stage.profiles(2)]
    assert {worker.proxy for worker in workers} == {stage.proxy(2).url}
    assert all(worker.last_result is not None for worker in workers)
    member = next(one for one in proxies.members() if one.name in stage.proxy(1).url)
    assert member.record.failures >= 1
    assert "does not accept the account" in (member.record.last_error or "")


async def test_removed_worker_stays_away_until_it_is_added_again(stage: Stage) -> None:
    pool = WorkerPool()
    stage.add(pool, 1)
    worker = taken(pool)
    pool.remove_worker(worker, reason="looks slow")
    assert worker.is_disabled
    assert pool.get_worker() is None
    assert pool.proxy_states[worker.proxy]["disabled"]
    assert not stage.add(pool, 1)
    assert pool.get_worker() is not None


async def test_an_unknown_profile_blames_no_proxy(stage: Stage) -> None:
    pool = WorkerPool()
    stage.add(pool, 1)
    worker = await one_check(pool, "stranger")
    assert isinstance(worker.last_error, UnknownProfile)
    assert worker.error_count == 0
    assert not pool.proxy_states[worker.proxy]["disabled"]


async def test_manners(stage: Stage) -> None:
    """It names itself, and obeys robots.txt."""
    (profile,) = stage.profiles(1)
    pool = WorkerPool()
    stage.add(pool, 1)
    await one_check(pool, profile)
    assert {arrival.agent for arrival in stage.site.arrivals} == {USER_AGENT}
    worker = taken(pool)
    before = len(stage.site.arrivals)
    with pytest.raises(NotWelcome):
        await worker.manners.check("/admin/")
    assert len(stage.site.arrivals) - before <= 1, "at most robots.txt itself"


async def test_results_are_kept_apart_from_outcomes(stage: Stage) -> None:
    without, with_story = stage.profiles(2, f"kept_{time.time_ns()}")
    database.add_niche("kept")
    database.import_profiles("kept", [without, with_story])
    pool = stage.pool()
    for profile in (without, with_story):
        worker = await one_check(pool, profile)
        assert worker.last_error is None
    found = [database.profile(name) for name in (without, with_story)]
    assert [(one.total_checks, one.total_detections, one.active_story) for one in found if one] == [
        (1, 0, 0),
        (1, 1, 1),
    ]
