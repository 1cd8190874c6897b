"""Requests that are too large, too fast or too slow."""

import gzip
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pitboss.http.gate import GateRules
from pitboss.http.protocol import LimitedProtocol
from pitboss.http.rate import RateLimit
from pitboss.model.limits import Window
from tests.http import raw
from tests.http.site import Site

MOST = 4_096
JSON = {"Content-Type": "application/json"}
# One that the gate serves itself, one that the framework serves; both with the smaller limit.
ROUTES = ("/api/tasks", "/api/workers/register")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(GateRules(local=True, max_body=MOST)) as running:
        yield running


def chunked(size: int) -> Iterator[bytes]:
    yield b'{"text": "'
    for start in range(0, size, 1_000):
        yield b"x" * min(1_000, size - start)
    yield b'"}'


@pytest.mark.parametrize("path", ROUTES)
def test_a_body_that_is_too_large_is_refused(site: Site, path: str) -> None:
    large = b'"' + b"x" * MOST + b'"'
    for body in (large, chunked(MOST)):
        found = site.http.post(path, content=body, headers=JSON)
        assert found.status_code == 413
        assert found.json()["error"] == "The body is too large"
    fits = site.http.post(path, content=chunked(MOST - 12), headers=JSON)
    assert (fits.status_code, fits.json()["error"][:8]) == (400, "Missing ")


@pytest.mark.parametrize("path", ROUTES)
def test_a_length_that_is_too_large_is_refused_before_the_body_comes(site: Site, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999"
    began = time.monotonic()
    assert raw.send(site, f"{head}\r\n\r\n").code == 413
    waits = raw.send(site, f"{head}\r\nExpect: 100-continue\r\n\r\n")
    assert (waits.code, time.monotonic() - began < 2) == (413, True)


@pytest.mark.parametrize("path", ["/api/tasks/bulk", "/api/tasks/complete", "/api/batches"])
def test_a_body_for_many_tasks_may_be_larger(site: Site, path: str) -> None:
    assert site.http.post(path, content=chunked(15 * MOST), headers=JSON).status_code == 400
    assert site.http.post(path, content=chunked(17 * MOST), headers=JSON).status_code == 413


def test_the_server_serves_on_after_a_body_that_was_too_large(site: Site) -> None:
    with raw.connect(site) as connection:
        for _ in range(2):
            connection.sendall(raw.post("/api/tasks", "x" * (MOST + 1)).replace("close", "keep-alive").encode())
            assert raw.answer(connection).code == 413


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("packed", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_compressed_bodies_are_refused(site: Site, path: str, packed: str) -> None:
    body = gzip.compress(b" " * 10_000_000)[:MOST]
    found = site.http.post(path, content=body, headers={**JSON, "Content-Encoding": packed})
    assert found.status_code == 415
    assert found.json()["error"] == "Compressed bodies are not read"


@pytest.mark.parametrize("kind", ["text/json", "application/xml", "application/jsonx", "json", "application/json5"])
def test_what_is_not_called_json_is_refused(site: Site, kind: str) -> None:
    for path in ROUTES:
        assert site.http.post(path, content=b"{}", headers={"Content-Type": kind}).status_code == 415


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_may_name_its_charset(site: Site, kind: str) -> None:
    for path in ROUTES:
        assert site.http.post(path, content=b"{}", headers={"Content-Type": kind}).status_code == 400


def test_a_flood_of_unknown_names_is_quick(site: Site) -> None:
    """Mistyped names are found by comparing them, which takes its time."""
    names = {f"{number:04}worker": 1 for number in range(15 * MOST // 20)}
    began = time.monotonic()
    assert site.http.post("/api/tasks/bulk", json={"tasks": [], **names}).status_code == 400
    assert site.http.post("/api/batches", json={"type": "a", "items": [{}], **names}).status_code in (400, 404)
    assert site.http.get("/api/tasks?" + "&".join(list(names)[:2_000])).status_code == 200
    assert time.monotonic() - began < 1


def test_a_flood_of_headers_ends_the_connection(site: Site) -> None:
    many = "".join(f"X-{number}: {'y' * 900}\r\n" for number in range(2_000))
    for flood in (many, f"X: {'y' * 2_000_000}"):
        found = raw.send(site, f"GET /api/tasks HTTP/1.1\r\nHost: localhost\r\n{flood}")
        assert found.code in (0, 400)
    assert site.http.get("/health").status_code == 200


def test_an_endless_path_is_refused(site: Site) -> None:
    assert raw.send(site, raw.get("/api/tasks/" + "a" * 500_000)).code in (0, 400)
    assert raw.send(site, raw.get("/api/tasks/" + "a" * 5_000)).code in (400, 404)


def test_a_head_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedProtocol, "head_seconds", 0.2)
    with Site() as site:
        for begin in ("", "GET /api/tasks HTTP/1.1\r\nHost: loc"):
            with raw.connect(site) as connection:
                connection.sendall(begin.encode())
                assert raw.answer(connection).code == 0
        with raw.connect(site) as connection:
            connection.sendall(raw.get("/health").replace("close", "keep-alive").encode())
            assert raw.answer(connection).code == 200
            connection.sendall(b"GET /hea")
            assert raw.answer(connection).code == 0


def test_slow_clients_do_not_keep_others_waiting(site: Site) -> None:
    slow = [raw.connect(site) for _ in range(200)]
    for number, connection in enumerate(slow):
        half = raw.post("/api/tasks", '{"type": "a"}')[: -5 if number % 2 else -40]
        connection.sendall(half.encode())
    began = time.monotonic()
    for _ in range(20):
        assert site.http.get("/api/tasks").status_code == 200
    assert time.monotonic() - began < 2
    for connection in slow:
        connection.close()


def test_a_body_that_is_cut_off_creates_nothing(site: Site) -> None:
    site.http.post("/api/task-types/register", json={"name": "cut", "version": "1", "param_schema": {"type": "object"}})
    before = site.counts()
    head = "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = '{"type": "cut", "params": {}}'
    for cut in (f"Content-Length: 100\r\n\r\n{whole}", f"Transfer-Encoding: chunked\r\n\r\n1d\r\n{whole}\r\n"):
        with raw.connect(site) as connection:
            connection.sendall((head + cut).encode())
    assert site.http.get("/api/tasks").status_code == 200
    assert site.counts() == before


def test_many_long_polls_do_not_keep_others_waiting(site: Site) -> None:
    polls = [raw.connect(site) for _ in range(100)]
    for connection in polls:
        connection.sendall(raw.post("/api/tasks/claim", '{"worker_id": "w", "wait": 30}').encode())
    began = time.monotonic()
    assert site.http.get("/api/tasks").status_code == 200
    assert time.monotonic() - began < 1
    for connection in polls:
        connection.close()


class Limited(Site):
    def __init__(self, count: int) -> None:
        rate = RateLimit(Window(count, 60_000_000))
        super().__init__(GateRules(local=True, rate=rate))


def test_the_rate_limit_says_how_much_is_left_and_then_how_long_to_wait() -> None:
    with Limited(3) as site:
        left = [site.http.get(path) for path in ("/api/tasks", "/api/none", "/docs")]
        assert [one.status_code for one in left] == [200, 404, 200]
        assert [one.headers["x-ratelimit-remaining"] for one in left] == ["2", "1", "0"]
        refused = site.http.post("/api/tasks", json={})
        assert refused.status_code == 429
        body = refused.json()
        assert body.keys() == {"error", "message", "retry_after", "limit", "window", "timestamp"}
        assert (body["error"], body["limit"], body["window"]) == ("Too Many Requests", 3, 60)
        assert 0 < body["retry_after"] <= 60
        assert refused.headers["retry-after"] == refused.headers["x-ratelimit-reset"] == str(body["retry_after"])
        assert refused.headers["x-ratelimit-limit"] == "3"


def test_health_is_answered_at_any_rate() -> None:
    with Limited(1) as site:
        assert [site.http.get("/api/tasks").status_code for _ in range(2)] == [200, 429]
        assert [site.http.get(path).status_code for path in ("/health", "/livez", "/readyz")] == [200] * 3


def test_each_key_has_a_rate_of_its_own_and_wrong_keys_share_one() -> None:
    with Limited(4) as site:
        first, second = site.key("viewer"), site.key("viewer")

        def ask(key: str) -> int:
            found = site.http.get("/api/tasks", headers={"X-API-Key": key})
            assert found.headers["x-ratelimit-limit"] == "4"
            return found.status_code

        assert [ask(first) for _ in range(5)] == [200, 200, 200, 200, 429]
        assert ask(second) == 200
        assert [ask(f"guess-{number}") for number in range(5)] == [401, 401, 401, 401, 429]


def test_the_rate_limit_is_exact_for_many_at_once() -> None:
    with Limited(50) as site, ThreadPoolExecutor(8) as threads:
        barrier = threading.Barrier(8)

        def ask(_: int) -> list[int]:
            barrier.wait()
            return [site.http.get("/api/status").status_code for _ in range(10)]

        codes = [code for part in threads.map(ask, range(8)) for code in part]
    assert (codes.count(200), codes.count(429)) == (50, 30)
