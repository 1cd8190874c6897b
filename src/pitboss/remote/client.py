"""Calls to the Pitboss API, repeated until they succeed. `APIClient` blocks, `AsyncAPIClient` is awaited."""

import asyncio
import email.utils
import functools
import inspect
import ipaddress
import json
import random
import ssl
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httpx

from pitboss.remote.config import Config
from pitboss.remote.errors import APIConnectionError, APIError
from pitboss.remote.logs import logger
from pitboss.remote.routes import Answer, Call, Routes

T = TypeVar("T")

REPEATED = frozenset({429, 500, 502, 503, 504})
LIMITS = httpx.Limits(max_keepalive_connections=10, max_connections=20)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 4.0
SLICE = 0.2  # how long a pause may last before it asks again whether to give up
NOT_FOUND = 404


async def settled(value: Awaitable[T] | T) -> T:
    """The value, awaited if need be: code that calls either client is written once."""
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else value


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose calls all block, so that it never suspends. This is how async code serves sync callers."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("a coroutine of a sync worker suspended: it awaited something that does not block")


class _Caller:
    """Repeats a call and reads its answer. `_send` and `_sleep` block in one client and are awaited in the other."""

    def __init__(
        self, api_url: str | None = None, api_key: str | None = None, *, timeout: float = 10.0, retry_for: float = 15.0,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Any] | None = None,
    ) -> None:  # fmt: skip
        if api_url is None or api_key is None:
            settings = Config.load(settings={"api_url": api_url} if api_url else None)
            api_url, api_key = settings.api_url, settings.api_key if api_key is None else api_key
        self.base_url = base_url(api_url)
        self._timeout, self._patience, self._clock, self._pause = timeout, retry_for, clock, sleep
        self._headers = {"User-Agent": "pitboss-remote", "Accept": "application/json"}
        if api_key:
            self._headers["X-API-Key"] = api_key
        warn_of_plain_http(self.base_url)

    async def _send(self, request: dict[str, Any]) -> httpx.Response:
        raise NotImplementedError

    async def _sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def _exchange(self, call: Call) -> Answer:
        request = self._request(call)
        began = self._clock()
        patience = self._patience if call.patience is None else call.patience
        attempt = 0
        while True:
            try:
                response = await self._send(request)
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
                problem = APIConnectionError(f"Cannot reach {without_password(self.base_url)}: {reason}")
            else:
                if response.status_code not in REPEATED:
                    return _read(response, call)
                problem = _repeatable(response)
            pause = _pause_after(attempt, patience - (self._clock() - began), problem)
            if attempt == 0:
                logger.warning("%s. Trying again for up to %g s", problem, patience)
            await self._wait(pause, call.give_up)
            if call.give_up():
                raise problem
            attempt += 1

    def _request(self, call: Call) -> dict[str, Any]:
        headers = dict(self._headers)
        if call.key:
            headers["Idempotency-Key"] = call.key
        content = None
        if call.body is not None:
            content = json.dumps(call.body, allow_nan=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        limit = self._timeout if call.timeout is None else call.timeout
        timeout = httpx.Timeout(limit, read=limit + call.wait)
        url = f"{self.base_url}{call.path}"
        return {"method": call.method, "url": url, "content": content, "headers": headers, "timeout": timeout}

    async def _wait(self, seconds: float, give_up: Callable[[], bool]) -> None:
        ends = self._clock() + seconds
        while not give_up() and (left := ends - self._clock()) > 0:
            await self._sleep(min(left, SLICE))


class APIClient(_Caller, Routes[Answer]):
    """Blocking calls. Threads may share it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._http = httpx.Client(limits=LIMITS, verify=_trust())
        self.close = weakref.finalize(self, self._http.close)

    def send(self, call: Call) -> Answer:
        return finish(self._exchange(call))

    async def _send(self, request: dict[str, Any]) -> httpx.Response:
        return self._http.request(**request)

    async def _sleep(self, seconds: float) -> None:
        (self._pause or time.sleep)(seconds)

    def __enter__(self) -> "APIClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAPIClient(_Caller, Routes[Awaitable[Answer]]):
    """The same calls, to be awaited."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._http = httpx.AsyncClient(limits=LIMITS, verify=_trust())

    def send(self, call: Call) -> Awaitable[Answer]:
        return self._exchange(call)

    async def _send(self, request: dict[str, Any]) -> httpx.Response:
        return await self._http.request(**request)

    async def _sleep(self, seconds: float) -> None:
        await (self._pause or asyncio.sleep)(seconds)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncAPIClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def base_url(api_url: str) -> str:
    """`http://host:8000` and `http://host:8000/api` are the same API."""
    stem = api_url.rstrip("/")
    return stem if stem.endswith("/api") else f"{stem}/api"


def without_password(url: str) -> str:
    """The address as it may be logged."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return url if place == parts.netloc else parts._replace(netloc=f"***@{place}").geturl()


@functools.cache
def warn_of_plain_http(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
    if parts.scheme == "http" and not local:
        logger.warning("API URL should use HTTPS: %s sends the key and all data in plain text", without_password(url))


@functools.cache
def _trust() -> ssl.SSLContext:
    """Reading the certificates takes 40 ms: once is enough."""
    return httpx.create_ssl_context()


def _pause_after(attempt: int, left: float, problem: APIConnectionError) -> float:
    """How long to wait before the next attempt. It is never sooner than the server asked for."""
    asked = problem.retry_after or 0.0
    if left <= 0 or asked > left:
        raise problem
    backoff = min(FIRST_PAUSE * 2.0**attempt, LONGEST_PAUSE) * random.uniform(0.75, 1.25)
    return min(max(asked, backoff), left)


def _repeatable(response: httpx.Response) -> APIConnectionError:
    text = f"{without_password(str(response.request.url))} answered {response.status_code}: {_message(_body(response))}"
    return APIConnectionError(text, status=response.status_code, retry_after=_retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("Retry-After", "")
    if said.replace(".", "", 1).isdigit():
        return float(said)
    try:
        when: float = email.utils.parsedate_to_datetime(said).timestamp()
        return max(0.0, when - time.time())
    except ValueError:
        return None


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _read(response: httpx.Response, call: Call) -> Answer:
    body = _body(response)
    refused = isinstance(body, dict) and "error" in body
    if response.is_success and (isinstance(body, dict) or not response.content):
        data = (body or {}).get("data", body)
        answer = Answer(data if isinstance(data, dict) else {"data": data})
        answer.timestamp = (body or {}).get("timestamp")
    elif response.status_code == NOT_FOUND and call.none_is_404 and refused and _says_none(body):
        answer = Answer()
    elif refused:
        raise APIError(response.status_code, _message(body))
    else:
        said = f"{response.request.url} answered {response.status_code} without JSON: is this the address of the API?"
        raise APIError(response.status_code, said)
    answer.status = response.status_code
    return answer


def _says_none(body: dict[str, Any]) -> bool:
    """Another 404 of a claim says that its task types do not exist."""
    return "no available tasks" in str(body["error"]).lower()


def _message(body: Any) -> str:
    """The one sentence of an error, with what it says on the cause and the remedy."""
    if not isinstance(body, dict):
        return "no reason given"
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    wrong = [f"{one.get('field')}: {one.get('message')}" for one in details.get("errors", ()) if isinstance(one, dict)]
    said = [body.get("error"), body.get("message"), details.get("why"), *wrong, details.get("fix")]
    return "; ".join(str(part) for part in said if part)
