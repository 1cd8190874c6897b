"""HTTP clients of a lease: every request is a use of its member at the moment it is sent, and every answer is judged.

Only the first `lease.http()` or `lease.http_sync()` loads this module, and httpx with it.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

from pitboss.client.http_connections import Connections, HttpConnections, Kept, aclose, close
from pitboss.client.lease import Lease
from pitboss.client.resource_client import Grant
from pitboss.engines.host_clock import wall
from pitboss.model.blame import CARRIED, answered, at, blame
from pitboss.model.duration import Time
from pitboss.model.errors import InvalidInput

# If a request waited longer than this on its open connection, the far end may have closed that.
_STALE_SECONDS = 1.0
# They choose connections, which belong to the member and outlive the client.
_OF_CONNECTIONS = ("transport", "mounts", "proxy", "limits", "http1", "http2")
_MEMBER = "member"
# Few idle connections, because many members are kept, and long enough for the next task. httpx notices closed ones.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=4, keepalive_expiry=30.0)
# Steps of httpcore after which a request has left, or a part of it.
_SENT = ("send_request_body.complete", "send_request_body.failed", "send_request_headers.failed")
Trace = Callable[[str, dict[str, Any]], Any]


def async_client(lease: Lease, kept: HttpConnections, wait: Time | None, options: dict[str, Any]) -> httpx.AsyncClient:
    settings = _settings(lease, kept, options)
    return httpx.AsyncClient(transport=_AsyncTransport(lease, kept, wait, _tls(settings)), **settings)


def sync_client(lease: Lease, kept: HttpConnections, wait: Time | None, options: dict[str, Any]) -> httpx.Client:
    settings = _settings(lease, kept, options)
    return httpx.Client(transport=_Transport(lease, kept, wait, _tls(settings)), **settings)


def _settings(lease: Lease, kept: HttpConnections, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the client, with the cookies that it begins with."""
    wrong = [name for name in _OF_CONNECTIONS if name in options]
    if wrong:
        raise InvalidInput(
            f"lease.http() takes no {', '.join(wrong)}",
            why="its connections are those of the member, which its tasks share",
            fix="leave it out; for connections of your own use httpx.AsyncClient(proxy=lease.url) and lease.use()",
        )
    cookies = options.get("cookies")
    if isinstance(cookies, str) and cookies != _MEMBER:
        raise InvalidInput(
            f"cookies={cookies!r:.60} is not known",
            why='cookies are those of this task by default, of the member with "member", or a mapping of your own',
            fix=f'write cookies="{_MEMBER}", or leave it out',
        )
    if cookies is None or cookies == _MEMBER:
        cookies = lease.cookies if cookies is None else kept.jar(lease.leased)
    return {"trust_env": False, **options, "cookies": cookies}


def _tls(settings: dict[str, Any]) -> tuple[Any, Any]:
    return settings.pop("verify", None), settings.pop("cert", None)


class _Waited(Exception):
    """The use is granted now, but the connection has waited for so long that the request goes over another one."""


class _Exchange:
    """One request and its answer."""

    def __init__(self, lease: Lease, request: httpx.Request) -> None:
        self._lease, self._host = lease, request.url.host
        self.grant: Grant | None = None
        self._waited = False
        self._sent_at: float | None = None
        self._to_site = self._unreached = False
        lease.answers.asked(self._host)

    def is_due(self, event: str, info: dict[str, Any]) -> bool:
        """Whether the request itself, and not a CONNECT for it, is sent next and needs its use. Sees every event."""
        step = event.partition(".")[2]
        if step == "send_request_headers.started":
            self._to_site = info["request"].method != b"CONNECT"
            return self._to_site
        if step in ("connect_tcp.started", "connect_tcp.failed"):
            self._unreached = step == "connect_tcp.failed"
        elif step in _SENT and self._to_site and self.grant is not None:
            self._lease.request_sent(self.grant)
        return False

    def granted(self, grant: Grant, began: float) -> None:
        self.grant = grant
        self._sent_at = time.monotonic()
        if self._sent_at - began > _STALE_SECONDS and not self._waited:
            self._waited = True
            raise _Waited

    def answered(self, status: int, headers: httpx.Headers) -> None:
        if self.grant is not None:
            self._lease.request_answered(self.grant)
        if self._sent_at is not None:
            self._lease.answers.timed(time.monotonic() - self._sent_at)
        self._lease.answers.add(self._host, answered(status, headers, wall(), self._host))

    def failed(self, error: BaseException) -> None:
        """No answer, or not a whole one. The error carries the report, because only this knows how far it got."""
        if self.grant is not None:
            self._lease.request_unanswered(self.grant)
        if isinstance(error, httpx.TransportError):
            lease = self._lease
            report = blame(error, wall(), has_address=lease.has_address and self._unreached)
            report = at(report, self._host)
            lease.answers.add(self._host, report)
            vars(error)[CARRIED] = report


class _AsyncTransport(httpx.AsyncBaseTransport):
    def __init__(self, lease: Lease, kept: HttpConnections, wait: Time | None, tls: tuple[Any, Any]) -> None:
        self._lease, self._connections, self._wait, self._tls = lease, kept, wait, tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connections = self._connections.of_loop()
        await connections.end_with_loop()
        kept, given_up = connections.take(self._lease.leased, self._tls, self._made)
        await aclose(given_up)
        exchange = _Exchange(self._lease, request)
        try:
            answer = await self._exchanged(kept, request, exchange)
            exchange.answered(answer.status_code, answer.headers)
        except BaseException as error:
            exchange.failed(error)
            await aclose(connections.give_back(kept))
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        answer.stream = _AsyncBody(answer.stream, exchange, connections, kept)
        return answer

    async def _exchanged(self, kept: Kept, request: httpx.Request, exchange: _Exchange) -> httpx.Response:
        own = request.extensions
        theirs: Trace | None = own.get("trace")

        async def trace(event: str, info: dict[str, Any]) -> None:
            if exchange.is_due(event, info):
                began = time.monotonic()
                exchange.granted(await self._lease.grant_request(self._wait, exchange.grant), began)
            if theirs is not None:
                await theirs(event, info)

        request.extensions = {**own, "trace": trace}
        try:
            try:
                answer: httpx.Response = await kept.transport.handle_async_request(request)
            except _Waited:
                answer = await kept.transport.handle_async_request(request)
            return answer
        finally:
            # A redirected request is made of this one.
            request.extensions = own

    def _made(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(**_ways(self._lease, self._connections, self._tls))


class _Transport(httpx.BaseTransport):
    def __init__(self, lease: Lease, kept: HttpConnections, wait: Time | None, tls: tuple[Any, Any]) -> None:
        self._lease, self._connections, self._wait, self._tls = lease, kept, wait, tls

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        connections = self._connections.of_threads
        kept, given_up = connections.take(self._lease.leased, self._tls, self._made)
        close(given_up)
        exchange = _Exchange(self._lease, request)
        try:
            answer = self._exchanged(kept, request, exchange)
            exchange.answered(answer.status_code, answer.headers)
        except BaseException as error:
            exchange.failed(error)
            close(connections.give_back(kept))
            raise
        assert isinstance(answer.stream, httpx.SyncByteStream)
        answer.stream = _Body(answer.stream, exchange, connections, kept)
        return answer

    def _exchanged(self, kept: Kept, request: httpx.Request, exchange: _Exchange) -> httpx.Response:
        own = request.extensions
        theirs: Trace | None = own.get("trace")

        def trace(event: str, info: dict[str, Any]) -> None:
            if exchange.is_due(event, info):
                began = time.monotonic()
                exchange.granted(self._lease.grant_request_sync(self._wait, exchange.grant), began)
            if theirs is not None:
                theirs(event, info)

        request.extensions = {**own, "trace": trace}
        try:
            try:
                answer: httpx.Response = kept.transport.handle_request(request)
            except _Waited:
                answer = kept.transport.handle_request(request)
            return answer
        finally:
            request.extensions = own

    def _made(self) -> httpx.HTTPTransport:
        return httpx.HTTPTransport(**_ways(self._lease, self._connections, self._tls))


class _AsyncBody(httpx.AsyncByteStream):
    """The body of an answer, which the handler may read late or not at all."""

    def __init__(
        self, stream: httpx.AsyncByteStream, exchange: _Exchange, connections: Connections, kept: Kept
    ) -> None:
        self._stream, self._exchange = stream, exchange
        self._connections, self._kept = connections, [kept]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except Exception as error:
            self._exchange.failed(error)
            raise

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            while self._kept:
                await aclose(self._connections.give_back(self._kept.pop()))


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, exchange: _Exchange, connections: Connections, kept: Kept) -> None:
        self._stream, self._exchange = stream, exchange
        self._connections, self._kept = connections, [kept]

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except Exception as error:
            self._exchange.failed(error)
            raise

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            while self._kept:
                close(self._connections.give_back(self._kept.pop()))


def _ways(lease: Lease, kept: HttpConnections, tls: tuple[Any, Any]) -> dict[str, Any]:
    """How a transport reaches servers: through the member, if it has an address."""
    verify, cert = tls
    if verify is None or verify is True:
        # Reading the usual certificates takes longer than a request: that is done once.
        kept.tls = kept.tls or httpx.create_ssl_context()
        verify = kept.tls
    return {"verify": verify, "cert": cert, "proxy": lease.url if lease.has_address else None, "limits": _LIMITS}
