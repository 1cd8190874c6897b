"""Calls are repeated until they succeed, and a repeat never does anything twice."""

import email.utils
import logging
import time
from typing import Any

import pytest

from pitboss.remote import APIClient, APIConnectionError, APIError, AsyncAPIClient
from pitboss.remote.client import base_url
from tests.remote.running import Time
from tests.remote.stub_api import StubAPI


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://host:8000", "http://host:8000/api"),
        ("http://host:8000/", "http://host:8000/api"),
        ("http://host:8000/api", "http://host:8000/api"),
        ("http://host:8000/api/", "http://host:8000/api"),
        ("https://host/tasks/api", "https://host/tasks/api"),
    ],
)
def test_the_address_with_and_without_api_is_the_same(given: str, base: str) -> None:
    assert base_url(given) == base


def test_both_addresses_reach_the_api(api: StubAPI) -> None:
    for url in (api.url, api.url.removesuffix("/api")):
        with APIClient(url) as client:
            assert client.health()["status"] == "healthy"


def test_the_key_is_from_the_environment(api: StubAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMANAGER_API_KEY", "secret")
    monkeypatch.setenv("TASKMANAGER_API_URL", api.url)
    with APIClient() as client:
        client.health()
    assert api.requests[0].headers["x-api-key"] == "secret"


@pytest.mark.parametrize("fault", [{"cut": "after"}, {"cut": "before"}, {"status": 500}, {"status": 502}])
def test_a_creation_is_repeated_with_the_same_key_and_creates_one_task(api: StubAPI, fault: dict[str, Any]) -> None:
    api.fail("/tasks", **fault, times=2)
    now = Time()
    with APIClient(api.url, clock=now.clock, sleep=now.sleep) as client:
        made = client.create_task("echo", {"a": 1}, priority=3)
    assert made.status == 201
    assert list(api.tasks) == [made["id"]]
    assert len({one.headers["idempotency-key"] for one in api.sent("/tasks")}) == 1
    assert api.sent("/tasks")[0].body == {"type": "echo", "params": {"a": 1}, "priority": 3}
    assert 1.0 < now.now < 2.0  # about 0.5 and 1 second


def test_a_claim_whose_answer_was_lost_gets_the_same_task_again(api: StubAPI) -> None:
    first, second = api.add(), api.add()
    api.fail("/tasks/claim", cut="after")
    now = Time()
    with APIClient(api.url, clock=now.clock, sleep=now.sleep) as client:
        assert client.claim("w1")["id"] == first
    assert api.tasks[first]["attempts"] == 1
    assert api.tasks[second]["status"] == "pending"


async def test_the_async_client_does_the_same(api: StubAPI) -> None:
    api.fail("/tasks", cut="after", times=2)
    now = Time()
    async with AsyncAPIClient(api.url, clock=now.clock, sleep=now.asleep) as client:
        made = await client.create_task("echo", {"a": 1})
        claimed = await client.claim("w1")
        assert claimed["id"] == made["id"]
        assert await client.claim("w1") == {}
    assert len(api.tasks) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(api: StubAPI, status: int) -> None:
    api.fail("/tasks/t/complete", status=status, headers={"Retry-After": "7"})
    now = Time()
    with APIClient(api.url, clock=now.clock, sleep=now.sleep) as client, pytest.raises(APIError, match="not found"):
        client.report("t", "complete", {"success": True})
    assert now.now == pytest.approx(7)


def test_retry_after_may_be_a_date(api: StubAPI) -> None:
    api.fail("/health", status=503, headers={"Retry-After": email.utils.formatdate(time.time() + 100)})
    with APIClient(api.url) as client, pytest.raises(APIConnectionError) as raised:
        client.health()
    assert raised.value.retry_after == pytest.approx(100, abs=3)


def test_a_retry_after_beyond_the_patience_is_raised_at_once(api: StubAPI) -> None:
    api.fail("/tasks", status=429, headers={"Retry-After": "3600"})
    now = Time()
    with APIClient(api.url, clock=now.clock, sleep=now.sleep) as client, pytest.raises(APIConnectionError) as raised:
        client.create_task("echo", {})
    assert (raised.value.status, raised.value.retry_after, now.now) == (429, 3600, 0)


def test_patience_is_used_up_before_a_call_fails(api: StubAPI) -> None:
    api.stop()
    now = Time()
    with (
        APIClient(api.url, retry_for=15, clock=now.clock, sleep=now.sleep) as client,
        pytest.raises(APIConnectionError, match="Cannot reach"),
    ):
        client.create_task("echo", {})
    assert now.now == pytest.approx(15)


def test_no_tasks_is_an_empty_answer_and_no_error(api: StubAPI) -> None:
    with APIClient(api.url) as client:
        answer = client.claim("w1")
    assert (answer, answer.status) == ({}, 404)


@pytest.mark.parametrize("body", [b"<html>", b'{"detail": "Not Found"}'])
def test_a_404_that_is_not_from_the_api_is_an_error(api: StubAPI, body: bytes) -> None:
    api.fail("/tasks/claim", status=404, body=body)
    with APIClient(api.url) as client, pytest.raises(APIError, match="is this the address of the API"):
        client.claim("w1")


def test_a_refusal_says_what_why_and_how_to_fix_it(api: StubAPI) -> None:
    said = (
        b'{"error": "Validation failed", "details": {"errors": [{"field": "a", "message": "missing"}], "fix": "add a"}}'
    )
    api.fail("/tasks", status=400, body=said)
    api.fail("/tasks", status=401, body=b'{"error": "Unauthorized", "message": "Invalid or missing API key."}')
    with APIClient(api.url) as client:
        with pytest.raises(APIError, match="Validation failed; a: missing; add a") as raised:
            client.create_task("echo", {})
        with pytest.raises(APIError, match="Unauthorized; Invalid or missing API key"):
            client.create_task("echo", {})
    assert raised.value.status == 400
    assert api.count("/tasks") == 2  # refusals are not repeated


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://10.0.0.1", 1),
        ("https://10.0.0.1", 0),
        ("http://127.0.0.1:80", 0),
        ("http://localhost", 0),
        ("http://[::1]", 0),
    ],
)
def test_plain_http_to_another_machine_is_warned_of_once(
    url: str, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        APIClient(url)
        APIClient(url)
    assert caplog.text.count("should use HTTPS") == warned


def test_a_closed_client_is_closed_once(api: StubAPI) -> None:
    client = APIClient(api.url)
    client.health()
    client.close()
    client.close()


def test_any_route_can_be_called(api: StubAPI) -> None:
    with APIClient(api.url) as client:
        assert client.request("POST", "/tasks", {"type": "echo", "params": {}}).status == 201
        with pytest.raises(APIError):
            client.get_task("a/b")
    assert "idempotency-key" in api.requests[0].headers
    assert api.requests[1].path == "/tasks/a%2Fb"
