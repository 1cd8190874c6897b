"""Who is let in: without keys only programs on this machine, with keys only those that have one."""

from collections.abc import Iterator

import pytest

from pitboss.http.gate import GateRules
from pitboss.model import access
from pitboss.model.access import key_text
from tests.http import raw
from tests.http.site import Site

PAGE = "https://page.example"


@pytest.fixture(scope="module")
def open_site() -> Iterator[Site]:
    """No key exists: the state after the first start."""
    with Site() as site:
        yield site


class Locked(Site):
    """A site with a key, which lets a page of another site in."""

    def __init__(self) -> None:
        super().__init__(GateRules(local=True, origins=(PAGE,)))

    def __enter__(self) -> "Locked":
        super().__enter__()
        self.admin = {"X-API-Key": self.key("admin")}
        return self


@pytest.fixture(scope="module")
def locked_site() -> Iterator[Locked]:
    with Locked() as site:
        yield site


def test_a_server_for_other_machines_needs_a_key_even_if_none_exists() -> None:
    with Site(GateRules(local=False)) as site:
        assert site.http.get("/api/tasks").status_code == 401
        assert site.http.get("/health").status_code == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "localhost:8000", "[::1]:8000"])
def test_names_of_this_machine_are_answered(open_site: Site, host: str) -> None:
    assert raw.send(open_site, raw.get("/api/tasks", host=host)).code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[::2]", "0.0.0.0", "", "192.168.1.5:8000"]
)
def test_any_other_host_name_is_refused_because_a_page_could_have_been_sent_here(open_site: Site, host: str) -> None:
    for path in ("/api/tasks", "/docs", "/openapi.json"):
        found = raw.send(open_site, raw.get(path, host=host))
        assert found.code == 421
        assert found.json()["error"] == "Wrong Host header"
    assert raw.send(open_site, "GET /api/tasks HTTP/1.1\r\n\r\n").code == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[", "", "file://"])
def test_a_page_of_another_origin_is_refused(open_site: Site, origin: str) -> None:
    host = f"localhost:{open_site.port}"
    found = raw.send(open_site, raw.get("/api/tasks", f"Origin: {origin}", host=host))
    assert found.code == 403
    assert found.json()["error"] == "Requests from other sites are refused"
    assert "access-control" not in found.head


def test_a_page_of_this_server_is_answered(open_site: Site) -> None:
    host = f"localhost:{open_site.port}"
    assert raw.send(open_site, raw.get("/api/tasks", f"Origin: http://{host}", host=host)).code == 200


@pytest.mark.parametrize(
    ("site", "code"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_the_browser_says_where_a_request_without_origin_comes_from(open_site: Site, site: str, code: int) -> None:
    assert open_site.http.get("/api/tasks", headers={"Sec-Fetch-Site": site}).status_code == code


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Any", "X-Real-IP", "Via"],
)
def test_a_request_through_a_proxy_is_refused(open_site: Site, header: str) -> None:
    found = open_site.http.get("/api/tasks", headers={header: "127.0.0.1"})
    assert found.status_code == 403
    assert found.json()["error"] == "Requests through a proxy are refused"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_form_of_a_page_cannot_send_a_body(open_site: Site, kind: str | None) -> None:
    """These need no preflight, so that a page of any site can send them. It cannot send JSON without asking first."""
    before = open_site.counts()
    body = b'{"name": "evil", "version": "1", "param_schema": {"type": "object"}}'
    headers = {} if kind is None else {"Content-Type": kind}
    found = open_site.http.post("/api/task-types/register", content=body, headers=headers)
    assert found.status_code == 415
    assert open_site.counts() == before


def test_without_a_list_no_page_may_ask(open_site: Site) -> None:
    asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    found = open_site.http.options("/api/tasks", headers=asks)
    assert found.status_code == 403
    assert not [name for name in found.headers if name.startswith("access-control")]


def test_a_page_on_the_list_may_ask_and_read(locked_site: Locked) -> None:
    asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    allowed = locked_site.http.options("/api/tasks", headers=asks)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert "X-API-Key" in allowed.headers["access-control-allow-headers"]
    assert "DELETE" in allowed.headers["access-control-allow-methods"]
    assert allowed.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in allowed.headers
    for headers, code in ((locked_site.admin, 200), ({}, 401)):
        found = locked_site.http.get("/api/tasks", headers={**headers, "Origin": PAGE})
        assert found.status_code == code
        assert found.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", ["https://other.example", f"{PAGE}.evil.example", "http://page.example", "null"])
def test_a_page_that_is_not_on_the_list_may_neither_ask_nor_read(locked_site: Locked, origin: str) -> None:
    asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    for found in (
        locked_site.http.options("/api/tasks", headers=asks),
        locked_site.http.get("/api/tasks", headers={**locked_site.admin, "Origin": origin}),
    ):
        assert "access-control-allow-origin" not in found.headers


def test_with_keys_any_host_and_proxy_may_be_used(locked_site: Locked) -> None:
    key = f"X-API-Key: {locked_site.admin['X-API-Key']}"
    found = raw.send(locked_site, raw.get("/api/tasks", key, "X-Forwarded-For: 1.2.3.4", host="tasks.example"))
    assert found.code == 200


def test_what_a_client_says_of_its_address_is_not_believed(locked_site: Locked) -> None:
    said = {**locked_site.admin, "X-Forwarded-For": "6.6.6.6", "Forwarded": "for=6.6.6.6"}
    locked_site.http.post("/api/keys", json={"name": "audited", "roles": ["viewer"]}, headers=said)
    entry = locked_site.http.get("/api/audit", headers=locked_site.admin).json()["data"]["entries"][0]
    assert (entry["act"], entry["source"]) == ("keys create", "http 127.0.0.1")


@pytest.mark.parametrize(
    "path", ["/docs/../api/keys", "/docs/%2e%2e/api/keys", "/docs/static/../../api/keys", "//api/keys"]
)
def test_no_detour_leads_past_the_key(locked_site: Locked, path: str) -> None:
    assert raw.send(locked_site, raw.get(path)).code in (401, 404)


def test_the_documents_need_no_key_and_no_other_host(locked_site: Locked) -> None:
    page = locked_site.http.get("/docs")
    assert page.status_code == locked_site.http.get("/openapi.json").status_code == 200
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert "https://" not in page.text
    for part in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert locked_site.http.get(f"/docs/static/{part}").status_code == 200


def test_a_wrong_secret_is_compared_in_constant_time(locked_site: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing itself is too noisy to test: what is compared are digests of equal length, by the function made for it."""
    compared = list[tuple[str, str]]()

    def compare(known: str, given: str) -> bool:
        compared.append((known, given))
        return known == given

    monkeypatch.setattr(access, "compare_digest", compare)
    key_id = locked_site.admin["X-API-Key"].split("_")[1]
    for secret in ("x", "x" * 10_000):
        assert locked_site.http.get("/api/tasks", headers={"X-API-Key": key_text(key_id, secret)}).status_code == 401
    assert [(len(known), len(given)) for known, given in compared] == [(64, 64)] * len(compared)


def test_neither_a_key_nor_its_digest_is_ever_shown_again(locked_site: Locked) -> None:
    secret = locked_site.admin["X-API-Key"].split("_", 2)[2]
    digests = [key.digest for key in locked_site.do(locked_site.store.api_keys())]
    for path in ("/api/keys", "/api/audit", "/api/status"):
        text = locked_site.http.get(path, headers=locked_site.admin).text
        assert secret not in text
        assert not [digest for digest in digests if digest in text]


def test_every_answer_forbids_keeping_it(locked_site: Locked) -> None:
    for path in ("/", "/health", "/api/tasks", "/api/none", "/docs", "/openapi.json"):
        for headers in (locked_site.admin, {}):
            found = locked_site.http.get(path, headers=headers)
            assert found.headers["cache-control"] == "no-store, no-cache, must-revalidate, max-age=0", path
            assert "server" not in found.headers
