"""Requests that are not quite HTTP, odd paths and methods: each is answered for what it says, or refused."""

from collections.abc import Iterator

import pytest

from tests.http import raw
from tests.http.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1e3\r\n\r\n",
        "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nx",
        "GET /api/tasks HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "GET /api/tasks HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /api/tasks\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "CONNECT evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "NONSENSE /api/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\r\n" * 5 + "garbage\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(site: Site, request_text: str) -> None:
    assert raw.send(site, request_text).code in (0, 400)
    assert site.http.get("/health").status_code == 200


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_no_other_protocol_is_spoken(site: Site, upgrade: str) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
    asks = f"GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n{key}\r\n\r\n"
    found = raw.send(site, asks)
    assert found.code == 200
    assert "upgrade" not in found.head


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "PATCH", "DELETE"])
def test_a_method_that_a_path_does_not_have(site: Site, method: str) -> None:
    found = site.http.request(method, "/api/tasks", headers={"X-Secret": "shown-by-trace"})
    assert found.status_code == 405
    assert found.headers["allow"] == "GET, POST"
    assert "shown-by-trace" not in found.text
    assert found.json()["error"] == "Method not allowed"


def test_what_can_be_read_can_be_asked_for_its_head_alone(site: Site) -> None:
    for path in ("/api/tasks", "/health", "/api/none", "/docs", "/api/tasks/claim"):
        whole, head = site.http.get(path), site.http.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_the_methods_of_a_path_are_its_own(site: Site) -> None:
    """A task could be called "claim": still, a task is not claimed with GET."""
    assert site.http.options("/api/tasks/claim").headers["allow"] == "POST"
    assert site.http.options("/api/tasks/x").headers["allow"] == "DELETE, GET, PATCH"
    assert site.http.options("/api/workers/a/b/heartbeat").headers["allow"] == "POST"
    assert site.http.options("/tasks").headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    "path",
    [
        "//api/tasks", "/api//tasks", "/api/../api/tasks", "/api/%2e%2e/tasks", "/api/tasks%00", "/API/tasks",
        "/api/api/tasks", "/api", "/api/tasks;a=b", "/api/tasks/../../etc/passwd",
        "/docs/static/../../app.py", "/docs/static/%2e%2e/%2e%2e/__init__.py", "/docs/static/..%5c..%5capp.py",
        "/docs/static//etc/passwd", "/docs/static/%2fetc%2fpasswd", "/docs/static/", "/docs/static",
    ],
)  # fmt: skip
def test_a_path_is_what_it_says(site: Site, path: str) -> None:
    found = raw.send(site, raw.get(path))
    assert (found.code, found.json()["error"]) == (404, "Endpoint not found")


@pytest.mark.parametrize("text", ["%00", "%ff", "%ED%A0%80", "..", "%2e%2e", "a" * 3_000, "*", "%25", "%27%20OR%201=1"])
def test_odd_names_in_a_path_find_nothing(site: Site, text: str) -> None:
    for path in ("tasks/{}", "task-types/{}", "workers/{}", "workers/{}/stats", "queues/{}", "batches/{}"):
        assert raw.send(site, raw.get(f"/api/{path.format(text)}")).code in (400, 404), path


def test_a_worker_may_have_slashes_in_its_id(site: Site) -> None:
    assert site.http.post("/api/workers/register", json={"worker_id": "berlin/rack 2/w1"}).status_code == 201
    path = "/api/workers/berlin%2Frack%202%2Fw1"
    assert site.http.post(f"{path}/heartbeat").status_code == 200
    assert site.http.get(f"{path}/stats").json()["data"]["worker_id"] == "berlin/rack 2/w1"
    assert site.http.get(path).json()["data"]["worker_id"] == "berlin/rack 2/w1"


def test_a_parameter_that_is_given_twice_is_refused(site: Site) -> None:
    found = site.http.get("/api/tasks?limit=5&limit=6")
    assert (found.status_code, found.json()["error"]) == (400, "limit is given twice in the URL")


def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    lines = raw.get("/health").replace("close", "keep-alive") + raw.get("/api/none")
    with raw.connect(site) as connection:
        connection.sendall(lines.encode())
        assert raw.answer(connection).code == 200


def test_a_wrong_idempotency_key_is_refused_on_every_route(site: Site) -> None:
    for key in ("", "k" * 301):
        for method, path in (("GET", "/api/tasks"), ("POST", "/api/tasks"), ("POST", "/api/workers/register")):
            headers = {"Idempotency-Key": key}
            found = site.http.request(
                method, path, headers=headers, json=None if method == "GET" else {"worker_id": "w"}
            )
            assert found.status_code == 400, (method, path, key)
            assert found.json()["success"] is False


@pytest.mark.parametrize(
    "path", ["/api/tasks/claim", "/tasks/claim", "/api/workers/a/status", "/api/task-types/register"]
)
def test_a_path_with_a_name_of_its_own_is_not_one_of_a_thing(site: Site, path: str) -> None:
    assert site.http.get(path).status_code == 405
