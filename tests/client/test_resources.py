"""Resource pools in programs that use them outside tasks."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pitboss import App, InvalidInput, Lease, RateLimited, Resources, TimedOutWaiting, wiring
from pitboss.client.app_core import Connection
from pitboss.client.client import Client
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotFound, StaleLease
from pitboss.model.limits import Window
from pitboss.model.resource import HOUR, Limits, Report, Resource, ResourceOutcome
from pitboss.secrets import KeyRing, new_key


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/pool.db"
    with App(url) as app:
        app.secrets_file = str(tmp_path / "keys")
        app.use(url)
        yield app


def _one(pool: Resources, name: str) -> Resource:
    (found,) = pool.members(name)
    return found


def test_a_member_is_added_changed_and_removed(app: App) -> None:
    proxies = app.resources("proxies", per_hour=50)
    assert proxies.add("p1", {"host": "10.0.0.1"}, {"password": "hunter22"}, labels=["eu"], weight=50, per_hour=5)
    assert not proxies.add("p1", {"host": "10.0.0.2"}, {"password": "hunter22"})
    (member,) = proxies.members()
    assert (member.name, member.fields, member.labels) == ("p1", '{"host":"10.0.0.2"}', ())
    assert "hunter22" not in str(member)
    assert proxies.remove("p1") == ["p1"]
    assert proxies.members() == []


def test_credentials_in_the_url_of_a_member_are_sealed_and_come_back(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add("p1", {"url": "http://anna:hunter22@h:1"})
    member = _one(proxies, "p1")
    assert (member.fields, sorted(member.secrets)) == ('{"url":"http://h:1"}', ["password", "user"])
    assert "hunter22" not in str(member)
    with proxies.lease() as lease:
        assert lease.url == "http://anna:hunter22@h:1"
    with pytest.raises(InvalidInput, match="is a URL with a password"):
        proxies.add_many([{"name": "p2", "fields": {"exit": "http://anna:hunter22@h:1"}}])
    assert len(proxies.members()) == 1


def test_own_limits_of_a_member_replace_the_pools(app: App) -> None:
    proxies = app.resources("proxies", per_hour=50)
    proxies.add("p1", per_hour=5, min_delay="1s")
    limits = _one(proxies, "p1").limits
    assert limits is not None
    assert (limits.windows, limits.min_delay) == ((Window(5, HOUR),), SECOND)
    with pytest.raises(InvalidInput, match="a member has no key"):
        proxies.add("p2", colour="red")  # type: ignore[call-arg]


def test_members_are_disabled_with_a_reason_enabled_and_reset(app: App) -> None:
    proxies = app.resources("proxies", max_failures=1, max_ejected=1.0)
    proxies.add_many({"name": name} for name in ("p1", "p2"))
    assert proxies.disable("p1", reason="rented out") == ["p1"]
    assert _one(proxies, "p1").disabled_reason == "rented out"
    assert proxies.enable() == ["p1", "p2"]
    lease = proxies.acquire()
    proxies.release(lease, "resource_error", error="dead")
    assert _one(proxies, lease.name).record.blacklisted_until > 0
    proxies.reset(lease.name)
    assert _one(proxies, lease.name).record.blacklisted_until == 0
    with pytest.raises(InvalidInput, match="which members"):
        proxies.remove()


def test_a_file_is_loaded_as_a_whole(app: App, tmp_path: Path) -> None:
    proxies = app.resources("proxies")
    file = tmp_path / "proxies.txt"
    file.write_text("10.0.0.1:80:anna:hunter22\nhttp://bob:hunter33@10.0.0.2:81\n")
    assert proxies.load(file, labels=["rented"]) == 2
    assert proxies.load(file) == 0
    with proxies.lease(labels=()) as lease:
        assert lease.url in ("http://anna:hunter22@10.0.0.1:80", "http://bob:hunter33@10.0.0.2:81")
    file.write_text("10.0.0.3:80\n10.0.0.4:x\n")
    with pytest.raises(InvalidInput, match="line 2"):
        proxies.load(file)
    assert len(proxies.members()) == 2
    with pytest.raises(InvalidInput, match="cannot be read"):
        proxies.load(tmp_path / "nothing.txt")


def test_a_lease_opens_its_secrets_and_hides_them_in_its_text(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add("p1", {"host": "::1", "port": 80, "user": "a/b"}, {"password": "p@ss:1"})
    with proxies.lease() as lease:
        assert (lease.name, lease.pool, lease["port"], lease.get("none", 7)) == ("p1", "proxies", 80, 7)
        assert lease.secret("password") == "p@ss:1"
        assert lease.url == "http://a%2Fb:p%40ss%3A1@[::1]:80"
        assert "p@ss" not in f"{lease} {lease!r} {lease.leased}"
        with pytest.raises(InvalidInput, match='has no secret "cookie"'):
            lease.secret("cookie")
        with pytest.raises(KeyError, match="has no field 'x'"):
            _ = lease["x"]
    assert app.redactor.hidden("got p@ss:1 back") == "got *** back"


def test_with_gives_back_and_what_was_raised_is_blamed(app: App) -> None:
    proxies = app.resources("proxies", cooldown="1h")
    proxies.add("p1")
    with proxies.lease():
        assert _one(proxies, "p1").in_use == 1
    assert _one(proxies, "p1").record.ok == 1
    with pytest.raises(RateLimited), proxies.lease():
        raise RateLimited(retry_after="2h")
    member = _one(proxies, "p1")
    assert (member.in_use, member.record.last_outcome) == (0, ResourceOutcome.RATE_LIMITED)
    assert member.record.cooldown_until - member.record.last_error_at == 2 * HOUR
    with pytest.raises(TimedOutWaiting, match="no member of proxies"), proxies.lease(wait="10ms"):
        raise AssertionError("it cools down")


def test_a_lease_reports_how_it_went(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)
    proxies.add("p1", {}, {})
    with proxies.lease() as lease:
        lease.destination = "site.example"
        lease.failed("does not connect")
    assert _one(proxies, "p1").record.last_error == "does not connect"
    with proxies.lease() as lease:
        lease.failed("no")
        lease.ok()
    assert _one(proxies, "p1").record.failures == 0


def test_a_judge_has_the_last_word_about_exceptions(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)
    proxies.add("p1")

    @proxies.judge
    def judge(error: BaseException) -> Any:
        match str(error):
            case "captcha":
                return "blocked"
            case "report":
                return Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="told")
        return None

    for word, outcome in (("report", "resource_error"), ("other", "task_error"), ("captcha", "blocked")):
        with pytest.raises(ValueError, match=word), proxies.lease():
            raise ValueError(word)
        assert _one(proxies, "p1").record.last_outcome == outcome


async def test_async_callers_have_the_same(app: App) -> None:
    proxies = app.resources("proxies", concurrency=2)
    await proxies.aadd("p1", secrets={"key": "hunter22"})
    await proxies.aadd_many([{"name": "p2", "labels": "eu"}])
    assert [member.name for member in await proxies.amembers()] == ["p1", "p2"]
    async with proxies.lease(labels="eu") as lease:
        assert lease.name == "p2"
        assert await lease.use() > 0
    other = await proxies.aacquire(key="anna")
    assert await proxies.arelease(other)
    again = await proxies.aacquire(key="anna")
    assert again.name == other.name, "a key keeps its member"
    assert await proxies.arelease(again, "rate_limited", retry_after="1m")
    assert not await proxies.arelease(again), "it was given back"
    assert await proxies.adisable("p1") == ["p1"]
    assert await proxies.aenable("p1") == ["p1"]
    assert await proxies.areset("p1") == ["p1"]
    assert await proxies.aremove("p1", "p2") == ["p1", "p2"]


def _rules(app: App) -> Limits:
    async def read(client: Client) -> Limits:
        (pool,) = await client.store.resource_pools()  # type: ignore[attr-defined]
        found: Limits = pool.rules.limits
        return found

    return app.ask(read, limit=5, what="reading")


@pytest.mark.parametrize("keys", [{}, {"per_hour": 50}, {"concurrency": None, "rate": "7/3s"}])
def test_another_program_leaves_the_rules_as_they_are(
    app: App, keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first = app.resources("proxies", per_hour=50, min_delay="1ms")
    first.add_many([{"name": "p1"}, {"name": "p2"}, {"name": "p3"}])
    declared = _rules(app)
    assert declared.windows == (Window(50, HOUR),)
    other = App()
    other._connection = Connection(app._connected().engine, wiring.SystemClock(), lambda name: keys)
    proxies = other.resources("proxies", **keys)
    for _ in range(2):
        with proxies.lease(wait=5):
            pass
    proxies.add("p4")
    assert _rules(app) == declared
    told = [record.getMessage() for record in caplog.records if record.name == "pitboss"]
    assert len(told) == ("rate" in keys)
    for line in told:
        assert "this process says rate=7/3s, concurrency=none, but rate=none, concurrency=1 is declared" in line
        assert "pitboss resources limit proxies rate=7/3s concurrency=none" in line


def test_the_first_program_with_keys_declares_a_pool_that_was_only_created(app: App) -> None:
    App.resources(app, "proxies").add("p1")
    assert _rules(app) == Limits()
    app.resource_pools.clear()
    proxies = app.resources("proxies", per_hour=50)
    app.use(app._connected().engine)
    with proxies.lease(wait=5):
        assert _rules(app).windows == (Window(50, HOUR),)


def test_an_unknown_name_is_an_error_that_changes_nothing(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add_many([{"name": "alpha"}, {"name": "beta"}])
    for act in (proxies.disable, proxies.enable, proxies.reset, proxies.remove):
        with pytest.raises(NotFound, match="proxies has no member alfa") as caught:
            act("beta", "alfa")
        assert "did you mean alpha?" in caught.value.fix
    assert [(one.name, one.enabled) for one in proxies.members()] == [("alpha", True), ("beta", True)]


def test_a_further_use_waits_for_the_limits_and_counts(app: App) -> None:
    proxies = app.resources("proxies", rate="2/200ms")
    proxies.add("p1")
    lease = proxies.acquire(hold="1m")
    first = lease.use_sync()
    second = lease.use_sync()
    assert second - first >= 100_000
    with pytest.raises(TimedOutWaiting, match="no member of proxies"):
        _use_up(lease)
    proxies.release(lease)
    with pytest.raises(StaleLease):
        lease.use_sync()


def _use_up(lease: Lease) -> None:
    for _ in range(3):
        lease.use_sync(wait=0)


def test_threads_share_a_pool_and_never_a_member(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add_many({"name": f"p{number}"} for number in range(3))
    held: list[str] = []
    lock = threading.Lock()

    def work(_: int) -> None:
        with proxies.lease(wait="20s") as lease:
            with lock:
                assert lease.name not in held
                held.append(lease.name)
            with lock:
                held.remove(lease.name)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(40)))
    assert sum(member.record.ok for member in proxies.members()) == 40


def test_one_request_may_be_entered_by_many_at_once(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add_many([{"name": "p1"}, {"name": "p2"}])
    asked = proxies.lease()
    with asked as outer, asked as inner:
        assert {outer.name, inner.name} == {"p1", "p2"}
    assert all(member.in_use == 0 for member in proxies.members())


async def test_held_by_with_a_lease_is_extended_by_itself(app: App) -> None:
    proxies = app.resources("proxies")
    await proxies.aadd("p1")
    extended = asyncio.Event()
    loop = asyncio.get_running_loop()
    engine: Any = app._connected().engine
    extend = engine.extend

    async def noted(lease: str, hold: int) -> Any:
        loop.call_soon_threadsafe(extended.set)
        return await extend(lease, hold)

    engine.extend = noted
    async with proxies.lease(hold="1s") as lease:
        await asyncio.wait_for(extended.wait(), 10)
        assert lease.id is not None


def test_terms_for_handlers_are_refused_elsewhere(app: App) -> None:
    proxies = app.resources("proxies")
    for asked in (proxies.lease(sticky="account"), proxies.lease(labels=("group-{worker}",))):
        with pytest.raises(InvalidInput, match="works only as a handler's parameter"), asked:
            raise AssertionError("refused")
    with pytest.raises(InvalidInput, match="too short"):
        proxies.lease(hold="10ms")
    with pytest.raises(InvalidInput, match="not an outcome"):
        proxies.release(_fake(proxies), "fine")


def _fake(proxies: Resources) -> Lease:
    proxies.add("p1")
    return proxies.acquire()


def test_secrets_are_sealed_again_with_a_new_key(app: App, tmp_path: Path) -> None:
    proxies = app.resources("proxies")
    proxies.add("p1", secrets={"password": "hunter22"})
    old = (tmp_path / "keys").read_text().splitlines()[-1]
    new = new_key()
    app.use_keys(KeyRing([new, old]))
    assert proxies.reseal() == 1
    assert proxies.reseal() == 0
    app.use_keys(KeyRing([new]))
    with proxies.lease() as lease:
        assert lease.secret("password") == "hunter22"


def test_a_session_is_made_once_and_kept(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add("p1", secrets={"password": "hunter22"})
    made: list[str] = []

    @proxies.session("cookie", valid_for="6h")
    async def log_in(lease: Lease) -> str:
        made.append(lease.secret("password"))
        return f"cookie-{len(made)}"

    for _ in range(2):
        with proxies.lease() as lease:
            assert lease.secret("cookie") == "cookie-1"
    assert made == ["hunter22"]
    member = _one(proxies, "p1")
    assert sorted(member.secrets) == ["cookie", "password"]
    assert member.valid_until is not None


async def test_a_session_that_the_far_side_refused_is_made_anew_once_and_kept(app: App) -> None:
    proxies = app.resources("proxies", concurrency=2)
    await proxies.aadd("p1")
    made: list[str] = []

    @proxies.session("cookie", valid_for="6h")
    async def log_in(lease: Lease) -> str:
        made.append(lease.name)
        return f"cookie-{len(made)}"

    async with proxies.lease() as first, proxies.lease() as second:
        assert (first.secret("cookie"), second.secret("cookie")) == ("cookie-1", "cookie-1")
        await asyncio.gather(first.renew(), second.renew())
        assert (first.secret("cookie"), second.secret("cookie")) == ("cookie-2", "cookie-2")
    async with proxies.lease() as later:
        assert later.secret("cookie") == "cookie-2"
    assert len(made) == 2


async def test_what_no_hook_makes_cannot_be_made_anew(app: App) -> None:
    proxies = app.resources("proxies")
    await proxies.aadd("p1", secrets={"password": "hunter22"})
    async with proxies.lease() as lease:
        with pytest.raises(InvalidInput, match="no hook is declared"):
            await lease.renew()


def test_a_member_that_is_added_anew_logs_in_anew(app: App) -> None:
    proxies = app.resources("proxies")
    made: list[str] = []

    @proxies.session("cookie")
    async def log_in(lease: Lease) -> str:
        made.append(lease.secret("password"))
        return f"cookie-{len(made)}"

    for password in ("hunter22", "hunter33"):
        proxies.add("p1", secrets={"password": password})
        with proxies.lease():
            assert made[-1] == password
    assert made == ["hunter22", "hunter33"]


def test_a_session_that_cannot_be_made_blames_the_member(app: App) -> None:
    proxies = app.resources("proxies", max_failures=9)
    proxies.add("p1")

    @proxies.session("cookie")
    def log_in(lease: Lease) -> str:
        raise RuntimeError("wrong password")

    with pytest.raises(Exception, match="could not be made"):
        proxies.acquire()
    member = _one(proxies, "p1")
    assert (member.in_use, member.record.last_outcome) == (0, ResourceOutcome.RESOURCE_ERROR)
    assert "wrong password" in (member.record.last_error or "")
    with pytest.raises(InvalidInput, match="two hooks"):
        proxies.session("cookie")(log_in)


def test_an_expired_lease_is_given_back_without_a_manager(app: App) -> None:
    proxies = app.resources("proxies")
    proxies.add("p1")
    proxies.acquire(hold="1s")
    assert proxies.acquire(wait="10s").name == "p1"


def test_no_new_key_is_made_while_the_key_of_other_secrets_is_missing(app: App, tmp_path: Path) -> None:
    accounts, proxies = app.resources("accounts"), app.resources("proxies")
    accounts.add("a1", secrets={"password": "hunter22"})
    accounts.disable("a1")
    keys = tmp_path / "keys"
    kept = keys.rename(tmp_path / "kept")
    app.use_keys(None)
    proxies.add("open", {"host": "h"})
    with pytest.raises(InvalidInput, match="1 member of accounts") as caught:
        proxies.add("p1", {"url": "http://anna:hunter22@h:1"})
    assert "--new-key" in caught.value.fix
    with pytest.raises(InvalidInput, match="cannot be opened"):
        accounts.reseal()
    assert not keys.exists()
    kept.rename(keys)
    assert proxies.add("p1", secrets={"password": "hunter22"})
    keys.unlink()
    app.use_keys(None)
    app.ring().make()
    assert proxies.add("p2", secrets={"password": "hunter22"}), "a person wanted a new one"
