"""Logging in and out, names of the server, base paths, and what a key may see."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pitboss.http.gate import GateRules
from pitboss.http.rate import RateLimit
from pitboss.http.web.live import TOPICS
from pitboss.model.duration import SECOND
from pitboss.model.limits import Window
from pitboss.operate.keys import revoke_key
from tests.http.site import Site

OPEN = GateRules(local=False, host="0.0.0.0", hosts=("jobs.example",))


def login(site: Site, key: str, prefix: str = "", **fields: str) -> httpx.Response:
    return site.http.post(f"{prefix}/ui/login", data={"key": key, **fields}, headers={"Origin": site.url})


def test_a_key_opens_a_session_and_logging_out_ends_it() -> None:
    with Site(OPEN) as site:
        key = site.key("viewer")
        away = site.http.get("/ui/queues?q=m")
        assert (away.status_code, away.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fqueues%3Fq%3Dm")
        assert 'name="key"' in site.http.get(away.headers["location"]).text
        failed = login(site, "pb_nonsense_key")
        assert failed.status_code == 401
        assert "opens nothing" in failed.text
        opened = login(site, key, next="/ui/queues?q=m")
        assert (opened.status_code, opened.headers["location"]) == (303, "/ui/queues?q=m")
        cookie = opened.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Path=/ui"))
        assert "Secure" not in cookie
        assert site.http.get("/ui/queues").status_code == 200
        site.http.post("/ui/logout", headers={"Origin": site.url})
        assert site.http.get("/ui/queues").status_code == 303


def test_the_session_is_for_https_only_where_it_began_so() -> None:
    with Site(OPEN) as site:
        headers = {"Host": "jobs.example", "Origin": "https://jobs.example", "X-Forwarded-Proto": "https"}
        opened = site.http.post("/ui/login", data={"key": site.key("viewer")}, headers=headers)
        assert "Secure" in opened.headers["set-cookie"]


def test_the_session_opens_nothing_outside_of_the_dashboard() -> None:
    with Site(OPEN) as site:
        site.http.cookies.set("pitboss_key", site.key("admin"))
        assert site.http.get("/ui/queues").status_code == 200
        assert site.http.get("/api/queues").status_code == 401


def test_a_revoked_key_ends_the_session_at_the_next_request() -> None:
    with Site(OPEN) as site:
        login(site, site.key("viewer", name="ana"))
        assert site.http.get("/ui").status_code == 200

        async def revoke() -> None:
            await revoke_key(site.store, "ana")
            await site.server.keys.read()

        site.do(revoke())
        assert site.http.get("/ui").status_code == 303
        assert site.http.get("/ui/live").status_code == 401


def test_guessing_keys_is_slowed_down() -> None:
    with Site(OPEN) as site:
        codes = [login(site, f"pb_{number}_x").status_code for number in range(12)]
        assert codes == [401] * 10 + [429] * 2


def test_others_who_guess_lock_out_no_key_that_opens() -> None:
    with Site(OPEN) as site:
        key, other = site.key("viewer"), site.key("viewer")
        codes = [login(site, "nonsense").status_code for _ in range(11)]
        codes += [login(site, f"pbk_unknown_{number}").status_code for number in range(3)]
        assert codes == [401] * 10 + [429] * 4
        # Who logs in often, as a program does, is let in too.
        assert [login(site, key).status_code for _ in range(12)] == [303] * 12
        wrong = key.rpartition("_")[0] + "_wrong"
        assert [login(site, wrong).status_code for _ in range(11)] == [401] * 10 + [429]
        assert login(site, key).status_code == 429
        assert login(site, other).status_code == 303


@pytest.mark.parametrize(("rules", "apart"), [(OPEN, True), (GateRules(local=False, host="0.0.0.0"), False)])
def test_behind_a_proxy_on_this_machine_browsers_are_told_apart(rules: GateRules, apart: bool) -> None:
    with Site(rules) as site:
        site.key("viewer")

        def tried(named: str) -> int:
            headers = {"Origin": site.url, "X-Forwarded-For": named}
            return site.http.post("/ui/login", data={"key": "x"}, headers=headers).status_code

        # Only the last address is that of the proxy.
        assert [tried(f"10.9.9.{number}, 10.0.0.1") for number in range(11)] == [401] * 10 + [429]
        assert tried("10.0.0.2") == (401 if apart else 429)
        assert tried("no address") == (401 if apart else 429)


def test_a_worker_or_producer_sees_no_page_and_does_nothing_from_one() -> None:
    with Site(OPEN) as site:
        login(site, site.key("worker", "producer"))
        answer = site.http.get("/ui")
        assert answer.status_code == 403
        assert "it is a key for producer, worker" in answer.text
        put = site.http.post("/ui/act/tasks", data={"type": "x", "params": "{}"}, headers={"Origin": site.url})
        assert put.status_code == 403
        assert "may not see that page" in put.text


def test_acts_count_for_the_rate_limit_and_pages_do_not() -> None:
    limited = GateRules(local=False, rate=RateLimit(Window(3, 60 * SECOND)))
    with Site(limited) as site:
        key = site.key("operator")
        login(site, key)
        assert {site.http.get("/ui").status_code for _ in range(5)} == {200}
        own = {"Origin": site.url, "HX-Request": "true"}
        acts = [site.http.post("/ui/act/queues/none/pause", data={"x": ""}, headers=own) for _ in range(4)]
        assert [one.status_code for one in acts] == [404, 404, 404, 429]
        assert "3 in 60 s" in acts[-1].json()["why"]
        # They are those of the API too.
        assert site.http.get("/api/queues", headers={"X-API-Key": key}).status_code == 429


@pytest.mark.parametrize(
    ("host", "more", "origin", "code"),
    [
        ("jobs.example:8000", {}, "http://jobs.example:8000", 303),
        ("jobs.example:8000", {}, "http://jobs.example:9000", 403),
        ("jobs.example:8000", {}, "http://jobs.example", 403),
        ("jobs.example", {}, "http://jobs.example:80", 303),
        ("jobs.example", {}, "https://jobs.example:443", 403),
        ("jobs.example", {"X-Forwarded-For": "10.0.0.1"}, "https://jobs.example:443", 303),
        ("127.0.0.1:8310", {}, "https://127.0.0.1:8310", 403),
        ("jobs.example", {"X-Forwarded-Proto": "https"}, "https://jobs.example", 303),
        ("jobs.example", {"X-Forwarded-Proto": "https"}, "http://jobs.example", 403),
        # The proxy leaves the port out, or changes the name: the browser itself has compared them.
        ("jobs.example", {"Sec-Fetch-Site": "same-origin"}, "https://jobs.example:8443", 303),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": "same-origin"}, "https://jobs.example", 303),
        ("jobs.example", {"Sec-Fetch-Site": "same-site"}, "https://jobs.example", 403),
        ("jobs.example", {"Sec-Fetch-Site": "none"}, "https://jobs.example", 403),
        ("jobs.example", {"Sec-Fetch-Site": "same-origin"}, "https://evil.example", 403),
        ("127.0.0.1:8000", {}, "http://127.0.0.1:9000", 403),
        ("127.0.0.1:8000", {}, "http://localhost:8000", 403),
    ],
)
def test_a_form_comes_from_the_same_scheme_name_and_port(
    host: str, more: dict[str, str], origin: str, code: int
) -> None:
    with Site(OPEN) as site:
        headers = {"Host": host, "Origin": origin, "Cookie": f"pitboss_key={site.key('admin')}", **more}
        assert site.http.post("/ui/act/queues/none/pause", data={"x": ""}, headers=headers).status_code == code


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost", 303), ("127.0.0.1", 303), ("10.1.2.3:80", 303), ("jobs.example:8000", 303), ("evil.example", 421)],
)
def test_the_server_answers_under_names_that_it_knows(host: str, code: int) -> None:
    with Site(OPEN) as site:
        site.key("viewer")
        answer = site.http.get("/ui", headers={"Host": host})
        assert answer.status_code == code
        if code == 421:
            assert "[http] hosts" in answer.text


def test_without_a_key_only_this_machine_may_come_in() -> None:
    with Site() as site:
        assert site.http.get("/ui").status_code == 200
        assert site.http.get("/ui", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 403
        cross = {"Sec-Fetch-Site": "cross-site"}
        assert site.http.get("/ui", headers={**cross, "Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert site.http.get("/ui/live", headers={**cross, "Sec-Fetch-Mode": "cors"}).status_code == 403
        site.key("viewer")
        assert site.http.get("/ui").status_code == 303


@pytest.mark.parametrize("kept", [True, False])
def test_a_base_path_is_in_every_address_whether_the_proxy_keeps_it_or_not(kept: bool) -> None:
    with Site(GateRules(local=True, base_path="/pitboss")) as site:
        login(site, site.key("admin"), "/pitboss" if kept else "")
        text = site.http.get(f"{'/pitboss' if kept else ''}/ui/tasks", headers={"Cookie": _cookie(site)}).text
        addresses = [
            part.partition('"')[0]
            for name in ("href", "src", "action", "data-base")
            for part in text.split(f'{name}="')[1:]
        ]
        inside = [one for one in addresses if not one.startswith("#")]
        assert inside
        assert all(one.startswith("/pitboss/ui") for one in inside), inside


@pytest.mark.parametrize("kept", ["", "/pitboss"])
def test_the_root_and_the_documents_have_the_base_path(kept: str) -> None:
    with Site(GateRules(local=True, base_path="/pitboss")) as site:
        assert site.http.get(f"{kept}/").headers["location"] == "/pitboss/ui"
        page = site.http.get(f"{kept}/docs").text
        assert page.count('"/pitboss/docs/static/') == 3
        assert "'/pitboss/openapi.json'" in page
        assert site.http.get("/pitboss/docs/static/swagger-ui.css").status_code == 200


def test_the_dashboard_can_be_mounted_in_another_application() -> None:
    with Site() as site:
        outer = Starlette(routes=[Mount("/jobs", app=site.app)])

        async def get(path: str) -> httpx.Response:
            transport = httpx.ASGITransport(outer, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.get(path)

        page = site.do(get("/jobs/ui/tasks"))
        assert page.status_code == 200
        assert 'href="/jobs/ui/queues"' in page.text
        assert site.do(get("/jobs/api/status")).status_code == 200
        assert site.do(get("/jobs/")).headers["location"] == "/jobs/ui"
        assert "'/jobs/openapi.json'" in site.do(get("/jobs/docs")).text
        assert site.do(get("/jobs/openapi.json")).json()["servers"] == [{"url": "/jobs"}]
        assert site.do(get("/jobs/none")).json()["details"]["fix"] == "see /jobs/docs"


def test_the_theme_is_written_by_the_server() -> None:
    with Site() as site:
        assert "data-theme" not in site.http.get("/ui").text
        site.http.post("/ui/theme", data={"theme": "dark", "_back": "/ui"}, headers={"Origin": site.url})
        assert '<html lang="en" data-theme="dark"' in site.http.get("/ui").text


def test_changes_are_told_while_a_page_is_open_and_nothing_is_read_while_none_is() -> None:
    with Site() as site:
        live: Any = site.dashboard._live
        assert live._looking is None
        with site.http.stream("GET", "/ui/live") as stream:
            lines = stream.iter_lines()
            # All topics after the first look, which only learns what there is.
            told = next(line for line in lines if line.startswith("data: "))
            assert set(told.removeprefix("data: ").split()) == TOPICS
            site.http.post("/api/tasks", json={"type": "x", "params": {}})
            site.do(site.store.wish("a", '"b"'))
            assert any(line.startswith("data: ") and "wishes" in line for line in lines)
        site.do(_ended(live))


async def _ended(live: Any) -> None:
    """Returns when nothing is read any more."""
    if live._looking is not None:
        await asyncio.wait({live._looking}, timeout=10)
    assert live._looking is None


def _cookie(site: Site) -> str:
    return "; ".join(f"{one.name}={one.value}" for one in site.http.cookies.jar)
