"""Handlers that hold a resource while they run: declared, enqueued, run and judged."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pitboss import (
    App,
    Blocked,
    Context,
    Fail,
    InvalidInput,
    Lease,
    RateLimited,
    ResourceFailed,
    Resources,
    Snooze,
    State,
    TimedOutWaiting,
    ctx,
)
from pitboss.client.member_sessions import NotPrepared
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.outcome import NO_KEY
from pitboss.model.resource import HOUR, Report, Resource, ResourceOutcome, Want
from pitboss.secrets import KeyRing
from pitboss.testing.sandbox import Sandbox, sandbox


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db")


def _one(pool: Resources, name: str = "p1") -> Resource:
    (found,) = pool.members(name)
    return found


def test_a_handler_gets_a_member_on_the_pools_queue(app: App) -> None:
    proxies = app.resources("proxies", per_hour=50)

    @app.task
    async def check(profile: str, proxy: Lease = proxies.lease(), context: Context = ctx) -> str:
        return f"{profile} by {proxy.name} {proxy['host']} {proxy.secret('password')[:2]} {context.attempt}"

    @app.task
    def check_plainly(profile: str, proxy: Lease = proxies.lease()) -> str:
        return f"{profile} by {proxy.name}"

    assert (check.queue, check.describe().resources) == ("proxies", "proxies")
    with sandbox(app) as box:
        proxies.add("p1", {"host": "10.0.0.1"}, {"password": "hunter22"})
        first, second = check.enqueue("anna"), check_plainly.enqueue("bob")
        box.drain()
        box.drain()
        assert first.result(timeout=1) == "anna by p1 10.0.0.1 hu 1"
        assert second.result(timeout=1) == "bob by p1"
        assert first.task().resource == "proxies/p1"
        assert _one(proxies).record.ok == 2
        assert _one(proxies).in_use == 0


def test_labels_and_keys_come_from_the_parameters(app: App) -> None:
    accounts = app.resources("accounts")

    @app.task
    def post(account: str, worker: int = 3, using: Lease = accounts.lease(("group-{worker}",), "account")) -> str:
        return using.name

    assert post.prepared("anna").want == Want(("group-3",), "anna")
    assert post.prepared(account="anna", worker=4).want == Want(("group-4",), "anna")
    with sandbox(app) as box:
        accounts.add("a3", labels=["group-3"])
        accounts.add("a4", labels=["group-4"])
        names = [post.enqueue("anna", worker=4), post.enqueue("bob")]
        box.drain()
        assert [one.result(timeout=1) for one in names] == ["a4", "a3"]
        by_name = app.send("post", {"account": "carl", "worker": 4})
        assert by_name.task().want == Want(("group-4",), "carl")


def _with_lease(pool: Resources) -> Callable[..., None]:
    def work(proxy: Lease = pool.lease()) -> None:
        """Holds one."""

    return work


def test_wrong_declarations_are_refused(app: App) -> None:
    proxies, keys = app.resources("proxies"), app.resources("keys")
    app.task(name="check")(_with_lease(proxies))
    app.task(name="plain", queue="mail")(lambda: None)
    with pytest.raises(InvalidInput, match='cannot be on queue "proxies"'):
        app.task(name="other", queue="proxies")(lambda: None)
    with pytest.raises(InvalidInput, match='cannot be on queue "proxies"'):
        app.task(name="other", queue="proxies")(_with_lease(keys))
    with pytest.raises(InvalidInput, match='cannot be on queue "mail"'):
        app.task(name="other", queue="mail")(_with_lease(keys))

    def two(a: Lease = proxies.lease(), b: Lease = keys.lease()) -> None: ...

    with pytest.raises(InvalidInput, match="asks for 2 leases"):
        app.task(two)

    def sticky(name: str, a: Lease = proxies.lease(sticky="nme")) -> None: ...

    with pytest.raises(InvalidInput, match="names nme"):
        app.task(sticky)

    def held(a: Lease = proxies.lease(hold="1m")) -> None: ...

    with pytest.raises(InvalidInput, match="key= or hold="):
        app.task(held)
    with pytest.raises(InvalidInput, match="does not have"):
        App().task(name="check")(_with_lease(proxies))
    with pytest.raises(InvalidInput, match="two resource pools"):
        app.resources("Proxies")
    assert sorted(app.handlers) == ["check", "plain"]


def test_a_task_cannot_be_put_where_it_would_get_no_member(app: App) -> None:
    proxies = app.resources("proxies")
    check = app.task(name="check")(_with_lease(proxies))
    plain = app.task(name="plain")(lambda: None)
    app.task(name="night", queue="night")(_with_lease(proxies))
    assert check.using(queue="night").queue == "night"
    with pytest.raises(InvalidInput, match="no handler binds that queue"):
        check.using(queue="elsewhere")
    with pytest.raises(InvalidInput, match='cannot be on queue "proxies"'):
        plain.using(queue="proxies")


def test_a_plain_call_must_bring_its_own_lease(app: App) -> None:
    proxies = app.resources("proxies")

    @app.task
    def check(profile: str, proxy: Lease = proxies.lease()) -> str:
        proxy.ok()
        return f"{profile} by {proxy.name}"

    with sandbox(app):
        proxies.add("p1")
        with pytest.raises(InvalidInput, match="only asked for, not held"):
            check("anna")
        with proxies.lease() as lease:
            assert check("anna", proxy=lease) == "anna by p1"


def _answer(status: int, **headers: str) -> Exception:
    error = Exception(f"answer {status}")
    error.response = SimpleNamespace(status_code=status, headers=headers)  # type: ignore[attr-defined]
    return error


class ProxyError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "outcome", "category", "attempts", "told"),
    [
        (RateLimited(retry_after="1h"), "rotated", "rate_limited", 0, "rate_limited"),
        (_answer(429), "rotated", "rate_limited", 0, "rate_limited"),
        (Blocked("captcha"), "failed", "blocked", 1, "blocked"),
        (_answer(403), "failed", "blocked", 1, "blocked"),
        (ResourceFailed("dead"), "failed", "resource", 1, "resource_error"),
        (ProxyError("refused"), "failed", "resource", 1, "resource_error"),
        (ValueError("mine"), "failed", "error", 1, "task_error"),
        (Fail("hopeless"), "failed", "error", 1, None),
        (Snooze("1h"), "snoozed", None, 0, None),
    ],
)
def test_what_a_handler_raises_is_blamed_on_whom_it_concerns(
    app: App, error: BaseException, outcome: str, category: str | None, attempts: int, told: str | None
) -> None:
    proxies = app.resources("proxies", max_failures=9)

    @app.task(backoff="1h")
    async def check(proxy: Lease = proxies.lease()) -> None:
        raise error

    with sandbox(app) as box:
        proxies.add("p1")
        handle = check.enqueue()
        box.drain()
        task = handle.task()
        assert (task.outcome, task.attempts) == (outcome, attempts)
        assert (task.error.category if task.error else None) == category
        assert _one(proxies).record.last_outcome == told
        assert _one(proxies).in_use == 0


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"url": "http://h:1"}, "resource_error"), ({"host": "h"}, "resource_error"), ({"zone": "eu"}, "task_error")],
)
def test_a_member_at_whose_address_nothing_answers_is_to_blame(app: App, fields: dict[str, Any], told: str) -> None:
    proxies = app.resources("proxies", max_failures=9)

    @app.task(backoff="1h")
    async def check(proxy: Lease = proxies.lease()) -> None:
        raise ConnectionRefusedError("refused")

    with sandbox(app) as box:
        proxies.add("p1", fields)
        check.enqueue()
        box.drain()
        assert _one(proxies).record.last_outcome == told


def test_a_rotated_task_goes_on_with_another_member(app: App) -> None:
    proxies = app.resources("proxies")
    seen: list[str] = []

    @app.task
    def check(proxy: Lease = proxies.lease()) -> str:
        seen.append(proxy.name)
        if len(seen) == 1:
            raise RateLimited(retry_after="10m")
        return proxy.name

    with sandbox(app) as box:
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert handle.result(timeout=1) == "p2"
        assert seen == ["p1", "p2"]
        assert handle.task().attempts == 1
        limited = _one(proxies, "p1")
        assert limited.record.cooldown_until >= box.clock.now() + 599 * SECOND


def test_what_is_said_on_the_lease_counts_more_than_how_it_ended(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)

    @app.task(backoff="1h")
    def check(word: str, proxy: Lease = proxies.lease()) -> None:
        proxy.destination = "site.example"
        match word:
            case "limited":
                proxy.rate_limited("1m")
                raise ValueError("gave up")
            case "blocked":
                proxy.blocked("captcha")

    with sandbox(app) as box:
        proxies.add("p1")
        handle = check.enqueue("blocked")
        box.drain()
        assert handle.task().state is State.COMPLETED
        assert _one(proxies).record.last_outcome == "blocked"
        proxies.reset()
        handle = check.enqueue("limited")
        box.drain()
        assert (handle.task().outcome, handle.task().attempts) == ("rotated", 0)


def test_a_rate_limit_without_a_lease_only_waits(app: App) -> None:
    @app.task
    def call(pause: str | None) -> None:
        raise RateLimited("slow down", retry_after=pause)

    with sandbox(app) as box:
        known, unknown = call.enqueue("1h"), call.enqueue(None)
        box.drain()
        assert (known.task().outcome, known.task().attempts) == ("snoozed", 0)
        assert (unknown.task().outcome, unknown.task().attempts) == ("retried", 1)


def test_every_further_use_waits_for_the_members_budget(app: App) -> None:
    proxies = app.resources("proxies", per_minute=2)

    @app.task
    async def check(proxy: Lease = proxies.lease()) -> list[int]:
        return [await proxy.use() for _ in range(3)]

    with sandbox(app) as box:
        began = box.clock.now()
        proxies.add("p1")
        handle = check.enqueue()
        box.drain()
        moments = handle.result(timeout=1)
        assert [(moment - began) // SECOND for moment in moments] == [0, 60, 60]
        assert _one(proxies).record.uses == 4


def _keep_the_clock(box: Sandbox) -> None:
    """A further use answers with the shortage, instead of moving the clock until there is none."""
    del vars(box.store)["use"]


@pytest.mark.parametrize("catches", [False, True])
def test_a_budget_that_is_spent_hands_the_task_on_at_no_attempt(app: App, catches: bool) -> None:
    proxies = app.resources("proxies", per_hour=1)
    seen: list[str] = []

    @app.task(backoff="1h")
    async def check(proxy: Lease = proxies.lease()) -> str:
        seen.append(proxy.name)
        if len(seen) == 1:
            try:
                await proxy.use(wait=0)
            except TimedOutWaiting:
                if catches:
                    return "made do"
                raise
        return proxy.name

    with sandbox(app) as box:
        _keep_the_clock(box)
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert handle.result(timeout=1) == ("made do" if catches else "p2")
        assert seen == (["p1"] if catches else ["p1", "p2"])
        assert handle.task().attempts == 1
        record = _one(proxies).record
        assert (record.failures, record.last_outcome) == (0, "ok" if catches else None)


def test_a_member_that_was_removed_hands_the_task_on_at_no_attempt(app: App) -> None:
    proxies = app.resources("proxies")
    seen: list[str] = []

    @app.task(backoff="1h")
    async def check(proxy: Lease = proxies.lease()) -> str:
        seen.append(proxy.name)
        if len(seen) == 1:
            await proxies.aremove(proxy.name)
        await proxy.use()
        return proxy.name

    with sandbox(app) as box:
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert handle.result(timeout=1) == "p2"
        assert seen == ["p1", "p2"]
        assert (handle.task().attempts, _one(proxies, "p2").record.failed) == (1, 0)


def test_what_was_said_on_the_lease_counts_more_than_its_spent_budget(app: App) -> None:
    proxies = app.resources("proxies", per_hour=1, max_failures=9)

    @app.task(backoff="1h")
    def check(proxy: Lease = proxies.lease()) -> None:
        proxy.failed("dead")
        proxy.use_sync(wait=0)

    with sandbox(app) as box:
        _keep_the_clock(box)
        proxies.add("p1")
        handle = check.enqueue()
        box.drain()
        assert (handle.task().outcome, handle.task().attempts) == ("failed", 1)
        assert _one(proxies).record.last_outcome == "resource_error"


def _sessions(proxies: Resources) -> tuple[list[str], list[str]]:
    made: list[str] = []
    bad: list[str] = []

    @proxies.session("cookie", valid_for="6h")
    async def log_in(lease: Lease) -> str:
        made.append(lease.name)
        if lease.name == "p1":
            raise ValueError("wrong password for p1")
        return f"cookie-{len(made)}"

    @proxies.valid
    def is_in(lease: Lease) -> bool:
        return lease.secret("cookie") not in bad

    return made, bad


def test_sessions_are_made_when_missing_over_or_invalid(app: App) -> None:
    proxies = app.resources("proxies")
    made, bad = _sessions(proxies)

    @app.task
    async def check(proxy: Lease = proxies.lease()) -> str:
        return proxy.secret("cookie")

    def run(box: Sandbox) -> str:
        handle = check.enqueue()
        box.drain()
        return handle.result(timeout=1)

    with sandbox(app) as box:
        proxies.add("p2")
        assert [run(box), run(box)] == ["cookie-1", "cookie-1"]
        box.clock.advance(7 * HOUR / SECOND)
        assert run(box) == "cookie-2"
        bad.append("cookie-2")
        assert run(box) == "cookie-3"
        assert len(made) == 3


def test_a_secret_that_is_made_later_does_not_lengthen_the_life_of_the_others(app: App) -> None:
    proxies = app.resources("proxies")
    made: list[str] = []

    def declare(secret: str, valid_for: str) -> None:
        @proxies.session(secret, valid_for=valid_for)
        async def make(lease: Lease) -> str:
            made.append(secret)
            return f"{secret}-{len(made)}"

    declare("cookie", "1h")
    with sandbox(app) as box:
        proxies.add("p1")
        proxies.release(proxies.acquire())
        until = _one(proxies).valid_until
        declare("token", "6h")
        proxies.release(proxies.acquire())
        assert made == ["cookie", "token"]
        assert _one(proxies).valid_until == until
        box.clock.advance(2 * HOUR / SECOND)
        proxies.release(proxies.acquire())
        assert made == ["cookie", "token", "cookie", "token"], "all that is over is made anew"


def test_a_session_that_cannot_be_made_sends_the_task_to_another_member(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)
    made, _ = _sessions(proxies)

    @app.task
    async def check(proxy: Lease = proxies.lease()) -> str:
        return proxy.name

    with sandbox(app) as box:
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert handle.result(timeout=1) == "p2"
        assert made == ["p1", "p2"]
        assert handle.task().attempts == 1
        record = _one(proxies, "p1").record
        assert (record.last_outcome, record.failures) == ("resource_error", 1)
        assert "wrong password" in (record.last_error or "")


def test_a_judge_that_breaks_changes_nothing(app: App) -> None:
    proxies = app.resources("proxies")

    @proxies.judge
    def judge(error: BaseException) -> str:
        raise RuntimeError("I do not know")

    @app.task(backoff="1h")
    async def check(proxy: Lease = proxies.lease()) -> None:
        raise ValueError("mine")

    with sandbox(app) as box:
        proxies.add("p1")
        handle = check.enqueue()
        box.drain()
        task = handle.task()
        assert task.error is not None
        assert (task.error.type, task.error.category) == ("ValueError", "error")


def test_a_judge_that_breaks_keeps_no_member(app: App) -> None:
    proxies = app.resources("proxies", max_failures=99)

    @proxies.judge
    def judge(error: BaseException) -> str:
        raise RuntimeError("I do not know")

    @proxies.session("cookie")
    async def log_in(lease: Lease) -> str:
        if lease.name == "p1":
            raise ConnectionError("cannot log in")
        return "cookie"

    @app.task
    async def check(proxy: Lease = proxies.lease()) -> str:
        return proxy.name

    with sandbox(app) as box:
        proxies.add_many([{"name": "p1"}, {"name": "p2"}])
        handle = check.enqueue()
        box.drain()
        assert handle.result(timeout=1) == "p2"
        proxies.disable("p1")
        with pytest.raises(ValueError, match="mine"), proxies.lease(wait=0):
            raise ValueError("mine")
        assert [member.in_use for member in proxies.members()] == [0, 0]


def test_secrets_are_masked_in_errors_notes_and_reports(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)

    @app.task(backoff="1h")
    def check(proxy: Lease = proxies.lease()) -> None:
        url = proxy.url
        ctx.progress(10, f"through {url}")
        raise ProxyError(f"{url} refused, Basic aHVudGVyMjI=")

    with sandbox(app) as box:
        proxies.add("p1", {"host": "h", "port": 80, "user": "anna"}, {"password": "hunter22"})
        handle = check.enqueue()
        box.drain()
        everything = f"{handle.task()} {_one(proxies)}"
        assert "hunter22" not in everything
        assert "http://anna:***@h:80 refused" in everything


def test_secrets_are_masked_in_what_a_login_that_failed_says_of_its_member(app: App) -> None:
    proxies = app.resources("proxies", max_failures=99)

    @proxies.session("cookie")
    async def log_in(lease: Lease) -> str:
        raise ConnectionError(f"cannot log in through {lease.url}")

    @app.task(max_attempts=1)
    async def check(proxy: Lease = proxies.lease()) -> str:
        return proxy.name

    with sandbox(app) as box:
        proxies.add("p1", {"host": "h", "port": 80, "user": "anna"}, {"password": "hunter22"})
        handle = check.enqueue()
        box.drain()
        with pytest.raises(NotPrepared):
            proxies.acquire(wait=0)
        everything = f"{handle.task()} {_one(proxies)}"
        assert "hunter22" not in everything
        assert "through http://anna:***@h:80" in (_one(proxies).record.last_error or "")


def test_a_login_that_failed_names_whom_it_failed_on(app: App) -> None:
    proxies = app.resources("proxies")

    @proxies.judge
    def judge(error: BaseException) -> Report:
        return Report(outcome=ResourceOutcome.TASK_ERROR, destination="site.example")

    with sandbox(app):
        proxies.add("p1")
        lease = proxies.acquire()
        report = proxies.sessions.fault(lease, ConnectionError("down"))
        assert report is not None
        assert (report.outcome, report.destination) == (ResourceOutcome.RESOURCE_ERROR, "site.example")


def test_a_task_without_its_member_fails_with_the_reason(app: App) -> None:
    proxies = app.resources("proxies")
    check = app.task(name="check")(_with_lease(proxies))
    with sandbox(app) as box:

        async def put(client: Any) -> Any:
            await client.introduce(app.describe())
            return await client.put([msgspec.structs.replace(check.prepared(), queue="elsewhere")])

        (placed,) = app.ask(put, limit=5, what="putting")
        box.drain()
        (task,) = box.tasks(id=placed.id)
        assert task.state is State.FAILED
        assert task.error is not None
        assert "came without a member of proxies" in task.error.message


def test_the_stored_params_do_not_hold_the_lease(app: App) -> None:
    proxies = app.resources("proxies")

    @app.task
    def check(profile: str, proxy: Lease = proxies.lease()) -> None: ...

    assert from_json(check.prepared("anna").params) == {"profile": "anna"}
    assert "proxy" not in check.describe().schema


def test_a_secret_that_cannot_be_opened_costs_no_attempt_and_blames_no_member(app: App) -> None:
    """The second wall: the manager usually leaves the queue out before it comes to this."""
    proxies = app.resources("proxies")

    @proxies.session("cookie")
    def log_in(lease: Lease) -> str:
        return lease.secret("password")

    @app.task(max_attempts=1)
    def check(proxy: Lease = proxies.lease()) -> str:
        return proxy.secret("cookie")

    with sandbox(app) as box:
        app.use_keys(KeyRing(["aa" * 32]))
        proxies.add("p1", secrets={"password": "hunter22"})
        app.use_keys(KeyRing(["bb" * 32]))
        handle = check.enqueue()
        box.drain()
        task = handle.task()
        assert (task.state, task.attempts, task.outcome) == (State.SCHEDULED, 0, "released")
        assert task.reason == NO_KEY.reason
        assert (_one(proxies).record.failed, _one(proxies).record.failures) == (0, 0)
        app.use_keys(KeyRing(["bb" * 32, "aa" * 32]))
        box.clock.advance("5s")
        box.drain()
        assert handle.result(timeout=1) == "hunter22"
