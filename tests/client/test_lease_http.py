"""Clients of a lease: every request is a use, every answer is judged, and connections are kept."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from pitboss import App, InvalidInput, Lease, Resources, Retry
from pitboss.client.http_connections import Connections
from pitboss.model.duration import SECOND
from pitboss.model.errors import BudgetSpent
from pitboss.model.resource import Resource, ResourceOutcome
from pitboss.model.states import State
from pitboss.testing.sandbox import sandbox
from tests.servers.proxy import Request, StandIn, page, stall, truncated

SITE = "http://site.example/"
OTHER = "http://other.example/"
DATE = "Fri, 31 Dec 2027 23:59:29 GMT"
LATER = "Fri, 31 Dec 2027 23:59:59 GMT"


@pytest.fixture
def proxy() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db")


@pytest.fixture
def proxies(app: App) -> Resources:
    return app.resources("proxies", max_failures=100)


def _one(pool: Resources) -> Resource:
    (found,) = pool.members("p1")
    return found


def _status(status: int, headers: dict[str, str] | None = None) -> Callable[[Request], bytes]:
    return lambda request: page("said", status, headers)


def _ran(app: App, pool: Resources, work: Callable[[Lease], Any], proxy: StandIn | None = None, **task: Any) -> Any:
    """What a task that does this with a lease becomes; the work is a coroutine function or a plain one."""
    if asyncio.iscoroutinefunction(work):

        async def handler(held: Lease = pool.lease()) -> Any:
            return await work(held)

    else:

        def handler(held: Lease = pool.lease()) -> Any:  # type: ignore[misc]
            return work(held)

    declared = app.task(name=f"task_{len(app.handlers)}", **task)(handler)
    with sandbox(app) as box:
        pool.add("p1", {} if proxy is None else {"url": proxy.url}, {"password": "hunter22"})
        handle = declared.enqueue()
        box.drain()
        return handle.task(), _one(pool)


async def fetch(lease: Lease) -> int:
    async with lease.http() as client:
        return (await client.get(SITE)).status_code


def test_a_member_knows_how_long_its_answers_take(app: App, proxies: Resources, proxy: StandIn) -> None:
    _, plain = _ran(app, proxies, lambda lease: None, proxy)
    assert plain.record.took == 0, "only these clients can tell"
    _, member = _ran(app, proxies, fetch, proxy)
    assert 0 < member.record.took < 10 * SECOND


def fetch_sync(lease: Lease) -> int:
    with lease.http_sync() as client:
        return client.get(SITE).status_code


async def fetch_carelessly(lease: Lease) -> Any:
    return (await lease.http().get(SITE)).json()


FACES = [fetch, fetch_sync]


@pytest.mark.parametrize("work", FACES)
def test_requests_go_through_the_member_and_are_its_uses(
    app: App, proxies: Resources, proxy: StandIn, work: Callable[[Lease], Any]
) -> None:
    task, member = _ran(app, proxies, work, proxy)
    (request,) = proxy.requests
    assert (task.state, task.result, request.target) == (State.COMPLETED, "200", SITE)
    assert request.headers["proxy-authorization"].startswith("Basic ")
    assert (member.record.ok, member.record.uses) == (1, 1)


def test_members_without_an_address_go_direct(app: App, proxies: Resources, proxy: StandIn) -> None:
    async def work(lease: Lease) -> int:
        async with lease.http() as client:
            return (await client.get(proxy.url + "/direct")).status_code

    task, _ = _ran(app, proxies, work)
    assert (task.result, proxy.requests[0].target) == ("200", "/direct")


def test_a_redirect_is_a_further_use_and_a_users_trace_is_called(app: App, proxies: Resources, proxy: StandIn) -> None:
    proxy.answer = lambda request: (
        page(status=302, headers={"Location": OTHER}) if request.target == SITE else page("there")
    )
    events: list[str] = []

    async def trace(event: str, info: dict[str, Any]) -> None:
        events.append(event)

    async def work(lease: Lease) -> str:
        async with lease.http(follow_redirects=True) as client:
            return (await client.get(SITE, extensions={"trace": trace})).text

    task, member = _ran(app, proxies, work, proxy)
    assert (task.result, member.record.uses) == ('"there"', 2)
    assert events.count("http11.send_request_headers.started") == 2


@pytest.mark.parametrize("work", [*FACES, fetch_carelessly])
@pytest.mark.parametrize(
    ("status", "headers", "outcome", "pause"),
    [
        (429, {}, "rate_limited", 15 * 60 * SECOND),
        (429, {"Retry-After": "30"}, "rate_limited", 30 * SECOND),
        (429, {"Retry-After": LATER, "Date": DATE}, "rate_limited", 30 * SECOND),
        (503, {"Retry-After": "30"}, "rate_limited", 30 * SECOND),
        (403, {}, "blocked", 15 * 60 * SECOND),
        (401, {}, "resource_error", 0),
        (407, {}, "resource_error", 0),
        (503, {}, "task_error", 0),
        (500, {}, "task_error", 0),
    ],
)
def test_answers_are_judged_whether_the_handler_returns_or_raises(
    app: App,
    proxies: Resources,
    proxy: StandIn,
    work: Callable[[Lease], Any],
    status: int,
    headers: dict[str, str],
    outcome: str,
    pause: int,
) -> None:
    proxy.answer = _status(status, headers)
    task, member = _ran(app, proxies, work, proxy)
    record = member.record
    assert record.last_outcome == outcome
    assert max(0, record.cooldown_until - member.last_used_at) == pause
    careless = work is fetch_carelessly
    assert task.result == (None if careless else str(status))
    if careless and outcome == "rate_limited":
        assert task.state is State.PENDING, "it goes to another member"
        assert task.attempts == 0


@pytest.mark.parametrize("answer", [None, b"?? what\r\n\r\n", truncated()])
@pytest.mark.parametrize("work", FACES)
def test_failures_that_may_be_the_sites_blame_nobody_yet(
    app: App, proxies: Resources, proxy: StandIn, work: Callable[[Lease], Any], answer: bytes | None
) -> None:
    proxy.answer = lambda request: answer

    def swallowed(lease: Lease) -> str:
        try:
            asyncio.run(work(lease)) if asyncio.iscoroutinefunction(work) else work(lease)
        except httpx.TransportError as error:
            return type(error).__name__
        return "nothing"

    task, member = _ran(app, proxies, swallowed, proxy)
    assert task.result in ('"RemoteProtocolError"', '"ReadError"')
    assert (member.record.last_outcome, member.record.ok, member.record.failed) == ("task_error", 0, 0)


@pytest.mark.parametrize("work", FACES)
def test_a_dead_proxy_is_at_fault_even_if_the_handler_hides_it(
    app: App, proxies: Resources, work: Callable[[Lease], Any]
) -> None:
    dead = StandIn()
    dead.__exit__()

    def swallowed(lease: Lease) -> None:
        try:
            asyncio.run(work(lease)) if asyncio.iscoroutinefunction(work) else work(lease)
        except httpx.ConnectError:
            return

    _, member = _ran(app, proxies, swallowed, dead)
    assert (member.record.last_outcome, member.record.failed) == ("resource_error", 1)


def test_a_tunnel_whose_far_end_stalls_is_not_the_proxys_fault(app: App, proxies: Resources) -> None:
    """httpx raises ConnectTimeout, as for a proxy that cannot be reached; the client saw how far it came."""
    with StandIn(tunnels=True) as proxy:
        proxy.answer = stall(proxy)

        async def work(lease: Lease) -> None:
            # Without TLS at the other end nothing answers the hello.
            async with lease.http(timeout=0.3) as client:
                await client.get("https://site.example/")

        _, member = _ran(app, proxies, work, proxy)
    assert member.record.last_outcome == "task_error"


def test_the_handlers_own_verdict_wins(app: App, proxies: Resources, proxy: StandIn) -> None:
    proxy.answer = _status(403)

    async def fine(lease: Lease) -> None:
        await lease.http().get(SITE)
        lease.ok()

    _, member = _ran(app, proxies, fine, proxy)
    assert (member.record.last_outcome, member.record.cooldown_until) == ("ok", 0)


def test_so_does_the_pools_judge(app: App, proxies: Resources, proxy: StandIn) -> None:
    proxy.answer = _status(403)
    proxies.judge(lambda error: "task_error" if isinstance(error, ValueError) else None)
    _, member = _ran(app, proxies, fetch_carelessly, proxy)
    assert member.record.last_outcome == "task_error"


def test_a_good_answer_ends_a_failure_but_not_a_pause(app: App, proxies: Resources, proxy: StandIn) -> None:
    answers = [page(status=429, headers={"Retry-After": "30"}), page(status=502), page()]
    proxy.answer = lambda request: answers.pop(0)

    async def persistent(lease: Lease) -> int:
        async with lease.http() as client:
            return [(await client.get(SITE)).status_code for _ in range(3)][-1]

    task, member = _ran(app, proxies, persistent, proxy)
    assert (task.result, member.record.last_outcome) == ("200", "rate_limited")
    answers = [page(status=502), page()]

    async def twice(lease: Lease) -> int:
        async with lease.http() as client:
            return [(await client.get(SITE)).status_code for _ in range(2)][-1]

    _, member = _ran(app, proxies, twice, proxy)
    assert member.record.last_outcome == "ok"


def test_a_chosen_outcome_still_tells_what_was_seen(app: App, proxies: Resources, proxy: StandIn) -> None:
    proxy.answer = _status(429, {"Retry-After": "30"})

    async def later(lease: Lease) -> None:
        await lease.http().get(SITE)
        raise Retry("later", after="1s")

    task, member = _ran(app, proxies, later, proxy)
    assert (task.state, member.record.last_outcome) == (State.SCHEDULED, "rate_limited")


def test_a_failure_names_the_host_that_was_asked(app: App, proxies: Resources, proxy: StandIn) -> None:
    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        with proxies.lease() as lease:
            lease.http_sync().get(SITE)
            report = proxies.report_on(lease, ValueError("odd page"))
    assert report is not None
    assert (report.outcome, report.destination) == (ResourceOutcome.TASK_ERROR, "site.example")


def test_a_good_report_names_the_only_host_that_answered(app: App, proxies: Resources, proxy: StandIn) -> None:
    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        with proxies.lease() as lease, lease.http_sync() as client:
            told = []
            for url in (SITE, OTHER):
                client.get(url)
                told.append(proxies.report_on(lease, None))
    assert [report and (report.outcome, report.destination) for report in told] == [
        ("ok", "site.example"),
        ("ok", None),
    ]


def test_a_date_to_wait_for_is_compared_with_the_wall_clock(app: App, proxies: Resources, proxy: StandIn) -> None:
    # The stand-in sends no Date, and the sandbox's clock shows another year.
    proxy.answer = _status(429, {"Retry-After": formatdate(time.time() + 30, usegmt=True)})
    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        with proxies.lease() as lease:
            lease.http_sync().get(SITE)
            answered = proxies.report_on(lease, None)
            error = httpx.HTTPStatusError(
                "429",
                request=httpx.Request("GET", SITE),
                response=httpx.Response(429, headers={"Retry-After": formatdate(time.time() + 30, usegmt=True)}),
            )
            raised = proxies.blamed(lease, error)
    assert answered is not None
    assert raised is not None
    assert 20 * SECOND < (answered.retry_after or 0) <= 30 * SECOND
    assert 20 * SECOND < (raised.retry_after or 0) <= 30 * SECOND


def test_a_member_that_was_removed_before_a_request_hands_the_task_on(app: App, proxies: Resources) -> None:
    seen: list[str] = []

    @app.task(backoff="1h")
    async def check(held: Lease = proxies.lease()) -> int:
        seen.append(held.name)
        async with held.http() as client:
            await client.get(url)
            if len(seen) == 1:
                await proxies.aremove(held.name)
            return (await client.get(url)).status_code

    with StandIn() as site, sandbox(app) as box:
        url = site.url
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert (handle.result(timeout=1), seen, handle.task().attempts) == (200, ["p1", "p2"], 1)


def test_a_lease_with_a_guard_that_is_used_late_counts_from_its_request(app: App, proxy: StandIn) -> None:
    pool = app.resources("slow", rate="9/10s", guard="50ms")
    with sandbox(app) as box:
        pool.add("p1", {"url": proxy.url})
        with pool.lease() as lease:
            box.clock.advance(5)
            time.sleep(0.06)
            lease.http_sync().get(SITE)
            assert _one(pool).last_used_at == box.clock.now()


def test_bodies_are_not_read_early(app: App, proxies: Resources, proxy: StandIn) -> None:
    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        with proxies.lease() as lease, lease.http_sync() as client, client.stream("GET", SITE) as answer:
            assert not answer.is_stream_consumed
            assert b"".join(answer.iter_bytes()) == b"hello"


def test_connections_are_kept_between_tasks_and_rebuilt_on_new_secrets(
    app: App, proxies: Resources, proxy: StandIn
) -> None:
    declared = [app.task(name=f"by_{kind}")(_handler(proxies, kind)) for kind in ("async", "sync")]
    with sandbox(app) as box:
        for handler in declared:
            proxy.requests.clear()
            for password in ("hunter22", None, "hunter33"):
                if password:
                    proxies.add("p1", {"url": proxy.url}, {"password": password})
                handler.enqueue()
                box.drain()
            first, second, third = (request.connection for request in proxy.requests)
            assert first == second != third
            ways = {request.headers["proxy-authorization"] for request in proxy.requests}
            assert len(ways) == 2


def _handler(pool: Resources, kind: str) -> Callable[..., Any]:
    async def by_async(lease: Lease = pool.lease()) -> int:
        return await fetch(lease)

    def by_sync(lease: Lease = pool.lease()) -> int:
        return fetch_sync(lease)

    return by_async if kind == "async" else by_sync


def test_cookies_are_the_tasks_unless_asked(app: App, proxies: Resources, proxy: StandIn) -> None:
    proxy.answer = lambda request: page(headers={"Set-Cookie": "seen=1"})

    def sent(**options: Any) -> list[str | None]:
        proxy.requests.clear()
        for _ in range(2):
            with proxies.lease() as lease:
                for _ in range(2):
                    lease.http_sync(**options).get(SITE)
        return [request.headers.get("cookie") for request in proxy.requests]

    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        assert sent() == [None, "seen=1", None, "seen=1"]
        assert sent(cookies="member") == [None, "seen=1", "seen=1", "seen=1"]
        assert sent(cookies={"own": "2"}) == ["own=2", "own=2", "own=2", "own=2"]
        with proxies.lease() as lease, pytest.raises(InvalidInput, match="is not known"):
            lease.http(cookies="everyone")


@pytest.mark.parametrize("option", ["proxy", "transport", "mounts", "limits", "http2"])
def test_options_that_would_go_round_the_member_are_refused(app: App, proxies: Resources, option: str) -> None:
    with sandbox(app):
        proxies.add("p1")
        with proxies.lease() as lease, pytest.raises(InvalidInput, match=f"takes no {option}"):
            lease.http(**{option: None})


class _Closed:
    def __init__(self) -> None:
        self.closed = False


def test_connections_are_bounded_and_never_closed_under_a_request(app: App, proxies: Resources) -> None:
    kept = Connections(most=2)
    with sandbox(app):
        for name in ("p1", "p2", "p3"):
            proxies.add(name)
        leased = {name: proxies.acquire().leased for name in ("p1", "p2", "p3")}
    first, none = kept.take(leased["p1"], None, _Closed)
    assert not none
    second, _ = kept.take(leased["p2"], None, _Closed)
    assert not kept.give_back(second)
    _, over = kept.take(leased["p3"], None, _Closed)
    assert not over, "p1 carries a request"
    assert len(kept) == 2
    assert kept.give_back(first) == [first.transport]


def test_connections_of_a_loop_are_closed_when_it_ends(app: App, proxies: Resources, proxy: StandIn) -> None:
    async def work() -> None:
        async with proxies.lease() as lease:
            await lease.http().get(SITE)

    with sandbox(app):
        proxies.add("p1", {"url": proxy.url})
        # pytest turns the warning about an unclosed socket into an error.
        asyncio.run(work())
        asyncio.run(work())
    assert [request.connection for request in proxy.requests] == [1, 2]


@pytest.mark.parametrize("face", ["http", "http_sync"])
def test_a_request_waits_for_the_budget_and_not_on_a_stale_connection(tmp_path: Any, proxy: StandIn, face: str) -> None:
    app = App(f"sqlite:///{tmp_path}/pitboss.db")
    pool = app.resources("slow", min_delay="1100ms")
    arrived: list[float] = []

    def answer(request: Request) -> bytes:
        arrived.append(request.at)
        return page()

    proxy.answer = answer

    async def work() -> None:
        async with pool.lease() as lease, lease.http() as client:
            for _ in range(2):
                await client.get(SITE)

    pool.add("p1", {"url": proxy.url})
    try:
        if face == "http":
            asyncio.run(work())
        else:
            with pool.lease() as lease, lease.http_sync() as client:
                for _ in range(2):
                    client.get(SITE)
    finally:
        app.close()
    assert arrived[1] - arrived[0] >= 1.1
    assert [request.connection for request in proxy.requests] == [1, 2], "the first one may be stale"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_limits_hold_where_requests_arrive(tmp_path: Any, proxy: StandIn, concurrency: int) -> None:
    """Requests take up to 60 ms to arrive, and not all the same; the moments at which they leave say little."""
    delays = iter([0.06, 0.0] * 20)
    proxy.arrival = lambda: next(delays)
    app = App(f"sqlite:///{tmp_path}/pitboss.db")
    pool = app.resources("proxies", min_delay="80ms", rate="4/600ms", concurrency=concurrency)
    pool.add("p1", {"url": proxy.url})

    def work() -> None:
        with pool.lease() as lease, lease.http_sync() as client:
            for _ in range(3):
                client.get(SITE)

    try:
        with ThreadPoolExecutor(3) as threads:
            for one in [threads.submit(work) for _ in range(3)]:
                one.result(timeout=30)
    finally:
        app.close()
    arrived = sorted(request.at for request in proxy.requests)
    assert len(arrived) == 9
    assert min(later - earlier for earlier, later in pairwise(arrived)) >= 0.08
    assert min(later - earlier for earlier, later in zip(arrived, arrived[4:], strict=False)) >= 0.6


def test_a_request_that_the_limits_forbid_for_too_long_is_not_sent(tmp_path: Any, proxy: StandIn) -> None:
    app = App(f"sqlite:///{tmp_path}/pitboss.db")
    pool = app.resources("scarce", per_hour=1)
    pool.add("p1", {"url": proxy.url})
    try:
        with pool.lease() as lease, lease.http_sync(wait=0) as client:
            client.get(SITE)
            with pytest.raises(BudgetSpent):
                client.get(SITE)
    finally:
        app.close()
    assert len(proxy.requests) == 1


def test_the_how_to_runs_as_it_is_printed(proxy: StandIn) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "requests.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    with sandbox(names["app"]) as box:
        names["proxies"].add("p1", {"url": proxy.url})
        done = [names[name].enqueue(SITE) for name in ("read", "read_plainly", "is_public")]
        box.drain_all()
        assert [one.result(timeout=1) for one in done] == ["hello", "hello", True]


def test_importing_pitboss_does_not_load_httpx() -> None:
    code = "import sys, pitboss; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
