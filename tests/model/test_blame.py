"""What is to blame for an exception, by its attributes."""

import ssl
from email.message import Message
from io import BytesIO
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import httpx
import pytest

from pitboss.model.blame import blame, retry_after
from pitboss.model.duration import SECOND
from pitboss.model.resource import ResourceOutcome
from pitboss.model.signals import Blocked, RateLimited, ResourceFailed

NOW = 1_800_000_000 * SECOND


class HTTPStatusError(Exception):
    """As httpx and requests have it."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"answer {status}")
        self.response = SimpleNamespace(status_code=status, headers=headers or {})
        self.request = SimpleNamespace(url="https://site.example/page?x=1")


class ClientResponseError(Exception):
    """As aiohttp has it."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"answer {status}")
        self.status, self.headers = status, headers
        self.request_info = SimpleNamespace(real_url="https://site.example/")


class ProxyError(Exception):
    pass


class Socks5ProxyTimeout(ProxyError):
    pass


class Awkward(Exception):
    """An object whose attributes raise errors."""

    @property
    def request(self) -> Any:
        raise RuntimeError("the request was not set")

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("kind", [HTTPStatusError, ClientResponseError])
@pytest.mark.parametrize(
    ("status", "headers", "outcome", "pause"),
    [
        (429, {}, "rate_limited", None),
        (429, {"Retry-After": "30"}, "rate_limited", 30 * SECOND),
        (429, {"retry-after": "soon"}, "rate_limited", None),
        (503, {"Retry-After": "5"}, "rate_limited", 5 * SECOND),
        (503, {}, "task_error", None),
        (403, {}, "blocked", None),
        (401, {}, "resource_error", None),
        (407, {}, "resource_error", None),
        (404, {}, "task_error", None),
        (500, {}, "task_error", None),
    ],
)
def test_an_answer_is_judged_by_its_status(
    kind: type[Exception], status: int, headers: dict[str, str], outcome: str, pause: int | None
) -> None:
    report = blame(kind(status, headers), NOW)
    assert (report.outcome, report.retry_after) == (ResourceOutcome(outcome), pause)
    assert report.destination == "site.example"


@pytest.mark.parametrize("error", [ProxyError("refused"), Socks5ProxyTimeout("late")])
def test_an_error_of_a_proxy_is_its_own(error: Exception) -> None:
    assert blame(error, NOW).outcome is ResourceOutcome.RESOURCE_ERROR


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), TimeoutError(), Awkward()])
def test_other_errors_are_the_tasks(error: Exception) -> None:
    assert blame(error, NOW).outcome is ResourceOutcome.TASK_ERROR


def test_errors_of_httpx_are_understood_as_they_are() -> None:
    request = httpx.Request("GET", "https://site.example/x")
    response = httpx.Response(429, headers={"retry-after": "7"}, request=request)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        response.raise_for_status()
    limited = blame(caught.value, NOW)
    assert (limited.outcome, limited.retry_after) == (ResourceOutcome.RATE_LIMITED, 7 * SECOND)
    assert limited.destination == "site.example"
    assert blame(httpx.ProxyError("407"), NOW).outcome is ResourceOutcome.RESOURCE_ERROR
    refused = httpx.ConnectError("refused", request=request)
    assert blame(refused, NOW).outcome is ResourceOutcome.TASK_ERROR
    dead = blame(refused, NOW, has_address=True)
    assert (dead.outcome, dead.destination) == (ResourceOutcome.RESOURCE_ERROR, "site.example")


class ClientConnectorError(OSError):
    """As aiohttp has it; errors of certificates are below it."""


class ClientConnectorCertificateError(ClientConnectorError, ssl.SSLError):
    pass


class ClientConnectorDNSError(ClientConnectorError):
    pass


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (httpx.ConnectTimeout("late"), "resource_error"),
        (ConnectionRefusedError(111, "refused"), "resource_error"),
        (ClientConnectorError("refused"), "resource_error"),
        (ClientConnectorDNSError("unknown"), "resource_error"),
        (URLError(ConnectionRefusedError(111, "refused")), "resource_error"),
        (_caused(RuntimeError("no page"), httpx.ConnectError("refused")), "resource_error"),
        (_caused(httpx.ConnectError("bad certificate"), ssl.SSLError("expired")), "task_error"),
        (ClientConnectorCertificateError("expired"), "task_error"),
        (httpx.ReadTimeout("late"), "task_error"),
        (URLError("unknown scheme"), "task_error"),
        (TimeoutError(), "task_error"),
        (Awkward(), "task_error"),
    ],
)
def test_who_has_an_address_is_to_blame_if_nothing_answers_there(error: Exception, outcome: str) -> None:
    assert blame(error, NOW, has_address=True).outcome is ResourceOutcome(outcome)
    assert blame(error, NOW).outcome is ResourceOutcome.TASK_ERROR


def test_errors_of_urllib_are_understood_as_they_are() -> None:
    headers = Message()
    headers["Retry-After"] = "7"
    with HTTPError("https://site.example/x", 503, "busy", headers, BytesIO()) as error:
        report = blame(error, NOW)
    assert (report.outcome, report.retry_after) == (ResourceOutcome.RATE_LIMITED, 7 * SECOND)


def test_the_cause_counts() -> None:
    error = RuntimeError("could not fetch")
    error.__cause__ = ProxyError("refused")
    assert blame(error, NOW).outcome is ResourceOutcome.RESOURCE_ERROR


def test_what_a_handler_says_itself() -> None:
    limited = blame(RateLimited(retry_after="1m"), NOW)
    assert (limited.outcome, limited.retry_after) == (ResourceOutcome.RATE_LIMITED, 60 * SECOND)
    assert blame(Blocked("captcha"), NOW).outcome is ResourceOutcome.BLOCKED
    assert blame(ResourceFailed("dead"), NOW).outcome is ResourceOutcome.RESOURCE_ERROR


def test_a_date_counts_from_the_answers_own_date() -> None:
    later, sent = "Fri, 31 Dec 2027 23:59:59 GMT", "Fri, 31 Dec 2027 23:59:29 GMT"
    assert retry_after(later, sent, NOW) == 30 * SECOND
    assert retry_after("Fri, 15 Jan 2027 08:01:00 GMT", None, NOW) == 60 * SECOND
    assert retry_after("Fri, 15 Jan 2027 07:00:00 GMT", None, NOW) == 0
    assert retry_after("99999999999999999999", None, NOW) == 366 * 86_400 * SECOND
