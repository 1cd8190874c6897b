"""Resources with real processes: which member a worker gets, how long it waits, and what is reported."""

import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from pitboss import wiring
from pitboss.engines.capabilities import resources_of
from pitboss.model.canonical import from_json
from pitboss.model.resource import Resource
from pitboss.model.states import State
from pitboss.secrets import KeyRing
from tests.manager import lenders
from tests.manager.cluster import Cluster

TARGET = str(Path(__file__).with_name("lenders.py"))


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    on_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn")
    cluster = Cluster(url, tmp_path, TARGET)
    cluster.secrets_file = str(tmp_path / "keys")
    lenders.app.use_keys(KeyRing(file=tmp_path / "keys"))
    lenders.app.use(url)
    try:
        yield cluster
    finally:
        lenders.app.close()
        cluster.close()


def _member(cluster: Cluster, pool: str, name: str) -> Resource:
    (found,) = cluster.do(resources_of(cluster.engine).resources(pool, [name]))
    return found


def test_a_manager_tells_once_that_a_pool_is_empty_and_once_that_it_is_not(cluster: Cluster) -> None:
    manager = cluster.manager(workers=1)
    lenders.app.handlers["check"].enqueue_many({"profile": f"n{number}"} for number in range(3))
    cause = 'resource pool "proxies" has no members'
    cluster.until(lambda: any(cause in line for line in manager.lines))
    lenders.proxies.add("p1", labels=["web"])
    over = f'tasks of queue "{lenders.app.handlers["check"].queue}" no longer wait for this: {cause}'
    cluster.until(lambda: any(over in line for line in manager.lines))
    assert [cause in line for line in manager.lines if cause in line] == [True, True]
    cluster.until(lambda: cluster.finished() == 3)


def test_workers_get_members_make_their_sessions_and_keep_the_gap(cluster: Cluster) -> None:
    lenders.proxies.add_many({"name": f"p{number}", "labels": ["web"]} for number in range(3))
    lenders.proxies.add("other", labels=["mail"])
    cluster.manager(workers=2, concurrency=8)
    check = lenders.app.handlers["check"]
    check.enqueue_many({"profile": f"n{number}"} for number in range(30))
    cluster.until(lambda: cluster.finished() == 30)
    moments: dict[str, list[int]] = {}
    for task in cluster.tasks():
        assert task.state is State.COMPLETED
        moments.setdefault(task.resource or "", []).append(task.value())
    assert sorted(moments) == ["proxies/p0", "proxies/p1", "proxies/p2"], "those with the label"
    assert min(later - sooner for times in moments.values() for sooner, later in _pairs(times)) >= 50_000
    logins = Counter(name for _, name in cluster.traced("login"))
    assert max(logins.values()) <= 2, "a worker makes a session once"
    assert _member(cluster, "proxies", "p1").record.failed == 0
    assert all(member.in_use == 0 for member in lenders.proxies.members())


def _pairs(times: list[int]) -> Iterator[tuple[int, int]]:
    ordered = sorted(times)
    yield from pairwise(ordered)


def test_further_uses_wait_in_the_worker(cluster: Cluster) -> None:
    lenders.proxies.add("p1", labels=["web"])
    cluster.manager(workers=1)
    for handler in ("often", "often_in_thread"):
        handle = lenders.app.handlers[handler].enqueue(5)
        moments = handle.result(timeout=20)
        assert all(later - sooner >= 50_000 for sooner, later in _pairs(moments)), handler
    assert _member(cluster, "proxies", "p1").record.uses == 12


def test_a_rate_limit_costs_no_attempt_and_a_broken_login_neither(cluster: Cluster) -> None:
    lenders.proxies.add("p1", labels=["web"])
    lenders.proxies.add("p2", {"broken": True}, labels=["web"])
    lenders.proxies.add("p3", labels=["web"])
    cluster.manager(workers=1)
    handle = lenders.app.handlers["limited"].enqueue()
    assert handle.result(timeout=20) == "p3"
    task = handle.task()
    assert task.attempts == 1
    assert _member(cluster, "proxies", "p1").record.last_outcome == "rate_limited"
    broken = _member(cluster, "proxies", "p2").record
    assert (broken.last_outcome, broken.failures) == ("resource_error", 1)
    assert "cannot log in" in (broken.last_error or "")


def test_what_a_killed_worker_held_is_given_back(cluster: Cluster) -> None:
    lenders.slots.add("s1")
    manager = cluster.manager(workers=1)
    (first,) = cluster.put("hold", queue="slots", seconds=60)
    cluster.until(lambda: cluster.traced("began"))
    (second,) = cluster.put("hold", queue="slots", seconds=0)
    (worker,) = manager.workers()
    worker.send_signal(signal.SIGKILL)
    cluster.until(lambda: cluster.task(second).state is State.COMPLETED or len(cluster.traced("began")) > 1)
    assert cluster.task(first).losses == 1
    member = _member(cluster, "slots", "s1")
    assert (member.record.failed, member.record.failures) == (0, 0)


def test_handlers_take_leases_of_their_own_and_add_members(cluster: Cluster) -> None:
    cluster.manager(workers=1)
    (task,) = cluster.put("borrow", queue="apart", name="s9")
    cluster.until(lambda: cluster.task(task).state.finished)
    assert cluster.task(task).value() == "s9", cluster.task(task).error
    assert _member(cluster, "slots", "s9").in_use == 0
    assert _member(cluster, "slots", "s9").record.ok == 1


class _Visits(ThreadingHTTPServer):
    """A far side that notes when it was asked, by the path of the request."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = defaultdict(list)
        super().__init__(("127.0.0.1", 0), _Visited)


class _Visited(BaseHTTPRequestHandler):
    server: _Visits

    def do_GET(self) -> None:
        self.server.seen[self.path].append(time.monotonic())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_no_limit_is_passed_at_the_far_side_with_no_option_set(cluster: Cluster) -> None:
    """Each request leaves up to 300 ms after its grant, and the gap is 150 ms."""
    with _Visits() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        lenders.sites.add_many({"name": f"s{number}", "fields": {"address": address}} for number in range(2))
        cluster.manager(workers=4)
        lenders.app.handlers["visit"].enqueue_many({"pages": 1 + number % 2} for number in range(10))
        cluster.until(lambda: cluster.finished() == 10)
        server.shutdown()
    assert {task.state for task in cluster.tasks()} == {State.COMPLETED}
    assert sum(len(seen) for seen in server.seen.values()) == 15
    for seen in server.seen.values():
        assert min(later - sooner for sooner, later in pairwise(seen)) >= 0.15
        assert all(sixth - first >= 2 for first, sixth in zip(seen, seen[5:], strict=False))
    assert all(
        member.in_use == 0 and member.last_used_at <= wiring.SystemClock().now() for member in lenders.sites.members()
    )


def test_no_more_start_than_the_pool_can_feed(cluster: Cluster) -> None:
    lenders.slots.add_many({"name": f"s{number}"} for number in range(2))
    cluster.manager(workers=2, concurrency=8)
    cluster.put("hold", 6, queue="slots", seconds=0.2)
    cluster.until(lambda: cluster.finished() == 6)
    held: set[str] = set()
    for word, name in cluster.traced():
        if word == "began":
            assert name not in held
            held.add(name)
        else:
            held.discard(name)
    assert [from_json(task.result or "null") in ("s0", "s1") for task in cluster.tasks()] == [True] * 6


def test_a_lease_that_grew_old_on_its_way_is_used_afresh(cluster: Cluster) -> None:
    lenders.guarded.add("near", fields={"takes": 0})
    lenders.guarded.add("slow", fields={"takes": 2.1})
    cluster.manager(workers=1)
    lenders.app.handlers["far"].enqueue_many({} for _ in range(2))
    cluster.until(lambda: cluster.finished() == 2)
    assert _member(cluster, "guarded", "near").record.uses == 1
    assert _member(cluster, "guarded", "slow").record.uses == 2, "half of the guard had passed"
