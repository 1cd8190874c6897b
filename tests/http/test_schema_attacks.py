"""Schemas, patterns and filters of clients: they reach no other machine, and none of them is slow."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that a schema may name. It must never be asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def register(site: Site, name: str, schema: dict[str, Any]) -> httpx.Response:
    body = {"name": name, "version": "1", "param_schema": {"type": "object", **schema}}
    return site.http.post("/api/task-types/register", json=body)


def within(seconds: float, began: float) -> bool:
    return time.monotonic() - began < seconds


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "{}"},
        {"properties": {"a": {"$ref": "{}#/b"}}},
        {"$schema": "{}"},
        {"$id": "{}", "properties": {"a": {"$ref": "other.json"}}},
        {"$dynamicRef": "{}#a"},
        {"$recursiveRef": "{}"},
        {"allOf": [{"items": {"not": {"$ref": "{}"}}}]},
        {"$defs": {"a": {"$id": "{}", "$ref": "b"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_makes_no_request(site: Site, listener: socket.socket, schema: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"const": "secret"}')
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema"
    for target in (url, url.replace("http:", "https:"), f"file://{tmp_path}/secret.json", f"{tmp_path}/secret.json"):
        answer = register(site, "remote-ref", _filled(schema, target))
        assert answer.status_code in (200, 201, 400)
        for params in ({"a": 1}, {"a": "secret"}):
            created = site.http.post("/api/tasks", json={"type": "remote-ref", "params": params})
            assert "secret.json" not in created.text
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*a){25}$", r"^(\w+\s?)*$", "(x+x+)+y"])
def test_an_evil_pattern_in_a_schema_is_quick(site: Site, pattern: str) -> None:
    began = time.monotonic()
    register(site, "evil", {"properties": {"a": {"type": "string", "pattern": pattern}}})
    for text in ("a" * 50_000 + "!", "x" * 50_000 + "!"):
        answer = site.http.post("/api/tasks", json={"type": "evil", "params": {"a": text}})
        assert answer.status_code == 400
        assert len(answer.content) < 5_000
    assert within(2, began)


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", r"(a)\1", "(?=a)a", "(", "[z-a]", r"\p{Nonsense}"])
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused(site: Site, pattern: str) -> None:
    began = time.monotonic()
    answer = register(site, "no-pattern", {"properties": {"a": {"pattern": pattern}}})
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid JSON schema format")
    assert within(1, began)


def test_a_schema_that_checks_a_value_for_ever_is_refused(site: Site) -> None:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    answer = register(site, "for-ever", {"$ref": "#/$defs/d0", "$defs": twice | {"d60": {}}})
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid JSON schema format")


def test_a_schema_that_refers_to_itself_ends(site: Site) -> None:
    for schema in ({"$ref": "#"}, {"not": {"$ref": "#"}}, {"properties": {"a": {"$ref": "#"}}}):
        register(site, "itself", schema)
        params: dict[str, Any] = {}
        for _ in range(60):
            params = {"a": params}
        assert site.http.post("/api/tasks", json={"type": "itself", "params": params}).status_code in (200, 201, 400)


def test_thousands_of_faults_are_told_in_few_words(site: Site) -> None:
    register(site, "faulty", {"allOf": [{"anyOf": [{"type": "array"}]}] * 240})
    began = time.monotonic()
    answer = site.http.post("/api/tasks", json={"type": "faulty", "params": {"a": "x" * 250_000}})
    assert answer.status_code == 400
    assert len(answer.content) < 5_000
    assert within(2, began)


def test_patterns_for_types_are_quick(site: Site) -> None:
    register(site, "a" * 128, {})
    site.http.post("/api/tasks", json={"type": "a" * 128, "params": {}})
    began = time.monotonic()
    evil = "%a" * 99 + "%b"
    claim = {"worker_id": "w", "type_pattern": evil}
    assert site.http.post("/api/tasks/claim", json=claim).status_code == 404
    assert site.http.get("/api/tasks", params={"type": evil}).json()["data"]["count"] == 0
    assert site.http.get("/api/tasks", params={"filter": f"task:{'*a' * 99}*b"}).json()["data"]["count"] == 0
    assert within(1, began)


def test_a_long_filter_is_quick(site: Site) -> None:
    began = time.monotonic()
    for text in (
        '"' * 1_999,
        "a:" * 900,
        "task:" + '"a' * 800,
        "-" * 2_000,
        "\\" * 2_000,
        "args." + "a." * 900 + "a:1",
    ):
        assert site.http.get("/api/tasks", params={"filter": text}).status_code in (200, 400)
        assert site.http.post("/api/tasks/cancel", json={"filter": text}).status_code in (200, 400)
    assert within(2, began)


def _filled(schema: Any, target: str) -> Any:
    if isinstance(schema, dict):
        return {key: _filled(value, target) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_filled(value, target) for value in schema]
    return schema.replace("{}", target) if isinstance(schema, str) else schema
