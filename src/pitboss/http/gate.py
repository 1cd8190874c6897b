"""What every request passes first: where it comes from, who asks, how fast and how large it may be.

The routes that workers use all the time are served here too, without the framework's routing and dependency solving: a
FastAPI route answers 7,500 requests a second on one core, this way 20,000 (decision 0031).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from pitboss.config import is_loopback
from pitboss.http.access import CONTRACT, ROLES, Roles
from pitboss.http.answers import (
    NO_STORE,
    Answer,
    ApiError,
    Reply,
    failure,
    of_fault,
    of_pitboss,
    of_validation,
    success,
    too_fast,
    unauthorized,
)
from pitboss.http.bodies import check_names
from pitboss.http.context import Call, Caller, Server
from pitboss.http.rate import Allowance, RateLimit
from pitboss.model.access import Role
from pitboss.model.errors import PitbossError, StoreUnavailable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = Callable[[Call, Any], Awaitable[Answer]]

PREFIX = "/api"
UI = "/ui"
PREFIX_KEY = "pitboss.prefix"
_HEALTH = frozenset({"/health", "/livez", "/readyz"})
_OPEN_PATHS = _HEALTH | {"/", "/openapi.json", "/docs"}
_STATIC = "/docs/"
_WITHOUT_STORE = _OPEN_PATHS - {"/health", "/readyz"}
# How the headers begin that a proxy adds.
_PROXIED = (b"forwarded", b"x-forwarded-", b"x-real-ip", b"via")
_BULK = 16
_BULK_PATHS = frozenset({"/tasks/bulk", "/tasks/complete", "/batches"})
_LONGEST_KEY = 300
EVERYONE = frozenset(Role)
_log = logging.getLogger("pitboss.http")


class Fast(NamedTuple):
    """A route that is served without the framework."""

    endpoint: Endpoint
    body: type[BaseModel]
    roles: Roles


class GateRules(NamedTuple):
    """How the server was started. `local`: it listens on loopback only. `host` is where it listens, `hosts` are other
    names that it is known by. `base_path` stands before every path, unless a proxy takes it away. `environment` is
    shown beside the name of the dashboard. `secure`: by TLS."""

    local: bool
    origins: tuple[str, ...] = ()
    max_body: int = 1_048_576
    rate: RateLimit | None = None
    host: str = ""
    hosts: tuple[str, ...] = ()
    base_path: str = ""
    environment: str = ""
    secure: bool = False


class _Request:
    """The headers that matter, read in one pass."""

    __slots__ = ("head", "headers", "method", "most", "path", "scope")

    def __init__(self, scope: Scope) -> None:
        # Every route that can be read can be asked for its head alone. uvicorn must know that it is only that.
        self.head = scope["method"] == "HEAD"
        self.scope = {**scope, "method": "GET"} if self.head else scope
        self.method: str = self.scope["method"]
        path: str = scope["path"]
        if path.endswith("/"):
            path = self.scope["path"] = path.rstrip("/") or "/"
        self.path = path[len(PREFIX) :] if path.startswith(PREFIX + "/") else path
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        # How many bytes of its body are read.
        self.most = 0

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else "unknown"


class Gate:
    """The outermost application."""

    def __init__(
        self, server: Server, rules: GateRules, app: App, fast: dict[tuple[str, str], Fast], site: App | None = None
    ) -> None:
        self._server, self._rules, self._app, self._site = server, rules, app, site
        self._whole: dict[tuple[str, str], Fast] = {}
        # "/tasks/{task_id}/complete" by its method, what stands before the id, and its last word.
        self._parts: dict[tuple[str, str, str], Fast] = {}
        for (method, path), one in fast.items():
            for prefix in (PREFIX, "") if (method, path) in CONTRACT else (PREFIX,):
                before, brace, _ = path.partition("{")
                if brace:
                    self._parts[method, prefix + before, path.rsplit("/", 1)[1]] = one
                else:
                    self._whole[method, prefix + path] = one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = unprefixed(scope, self._rules.base_path)
        if self._site is not None and (scope["path"] == UI or scope["path"].startswith(f"{UI}/")):
            await self._site(scope, receive, send)
            return
        request = _Request(scope)
        extra: list[tuple[bytes, bytes]] = []
        try:
            reply = await self._reply(request, receive, extra)
        except ApiError as error:
            reply = failure(error, self._server.clock.wall())
        except PitbossError as error:
            reply = failure(of_pitboss(error), self._server.clock.wall())
        except Exception:
            reply = self.broken(request.scope)
        if reply is None:
            await self._framework(request, receive, send, extra)
            return
        headers = [*reply.headers, *extra] if extra else reply.headers
        await send({"type": "http.response.start", "status": reply.code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.head else reply.body})

    def broken(self, scope: Scope) -> Reply:
        """A fault of Pitboss itself: the client gets no details, the log gets all of them."""
        _log.exception("a fault in %s %s", scope["method"], scope["path"])
        return failure(of_fault(), self._server.clock.wall())

    async def _reply(self, request: _Request, receive: Receive, extra: list[tuple[bytes, bytes]]) -> Reply | None:
        """The answer; None if the framework shall give it."""
        origin = request.header(b"origin")
        if origin is not None:
            cors = self._cors(origin)
            extra += cors
            if request.method == "OPTIONS" and cors:
                return Reply(204, b"", [(b"content-length", b"0"), NO_STORE])
        caller, refused = await self._caller_or_refusal(request, origin)
        if self._rules.rate is not None and request.path not in _HEALTH:
            allowance = self._rules.rate.take(counted(caller, request.address), self._server.clock.now())
            extra += _rate_headers(allowance)
            if not allowance.granted:
                return too_fast(
                    self._server.clock.wall(),
                    limit=allowance.limit,
                    window=allowance.window,
                    retry_after=allowance.reset,
                )
        if refused is not None:
            raise refused
        if caller is None:
            return unauthorized(self._server.clock.wall())
        self._check_body(request)
        fast, path = self._find(request)
        if fast is not None:
            return await self._fast(request, receive, fast, path, caller)
        request.scope["call"] = Call(self._server, caller, idempotency=_idempotency(request))
        return None

    async def _caller_or_refusal(self, request: _Request, origin: str | None) -> tuple[Caller | None, ApiError | None]:
        """A request that is refused counts for the rate limit too."""
        try:
            return await self._caller(request, origin), None
        except ApiError as refused:
            return None, refused

    async def _caller(self, request: _Request, origin: str | None) -> Caller | None:
        """Who asks. None: a key is needed, and there is none that opens."""
        keys = self._server.keys
        if not keys.any and self._rules.local:
            if request.path not in _HEALTH:
                _check_local(request, origin)
            return Caller("local", EVERYONE, request.address)
        text = request.header(b"x-api-key") or _bearer(request.header(b"authorization"))
        key = None if text is None else await keys.find(text)
        if key is not None:
            return Caller(key.name, frozenset(key.roles), request.address)
        if request.path in _OPEN_PATHS or request.path.startswith(_STATIC):
            return Caller("anonymous", frozenset(), request.address)
        return None

    def _check_body(self, request: _Request) -> None:
        length = request.header(b"content-length")
        most = request.most = self._rules.max_body * (_BULK if request.path in _BULK_PATHS else 1)
        if length is not None and (not length.isdigit() or int(length) > most):
            raise _too_large(most)
        has_body = length not in (None, "0") or b"transfer-encoding" in request.headers
        if not has_body:
            return
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(
                415,
                "Content-Type must be application/json",
                why=f"it is {kind[:80]}" if kind else "the request does not say what its body is",
                fix="send JSON, and the header Content-Type: application/json",
            )
        packed = request.header(b"content-encoding") not in (None, "identity")
        if packed or request.header(b"transfer-encoding") not in (None, "chunked"):
            raise ApiError(415, "Compressed bodies are not read", fix="send the body as it is")

    def _find(self, request: _Request) -> tuple[Fast | None, str]:
        path: str = request.scope["path"]
        whole = self._whole.get((request.method, path))
        if whole is not None:
            return whole, ""
        rest, _, act = path.rpartition("/")
        before, slash, task = rest.rpartition("/")
        part = self._parts.get((request.method, before + slash, act))
        return (part, task.strip().lower()) if part is not None and task else (None, "")

    async def _fast(self, request: _Request, receive: Receive, fast: Fast, path: str, caller: Caller) -> Reply:
        check_role(caller, fast.roles)
        body = await _read(receive, request.most)
        try:
            read = fast.body.model_validate_json(body)
        except ValidationError as error:
            raise of_validation(error) from error
        check_names(read)
        call = Call(self._server, caller, path=path, idempotency=_idempotency(request), receive=receive)
        async with self._server.watch.guard():
            answer = await fast.endpoint(call, read)
        return success(answer, self._server.clock.wall())

    async def _framework(
        self, request: _Request, receive: Receive, send: Send, extra: list[tuple[bytes, bytes]]
    ) -> None:
        left = request.most

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large(request.most)
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and extra:
                message["headers"] = [*message["headers"], *extra]
            elif message["type"] == "http.response.body" and request.head:
                message["body"] = b""
            await send(message)

        if request.path in _WITHOUT_STORE or request.path.startswith(_STATIC):
            await self._app(request.scope, limited, with_headers)
            return
        begun = False

        async def begin(message: Message) -> None:
            nonlocal begun
            begun = True
            self._server.watch.release(limit)
            await with_headers(message)

        try:
            async with self._server.watch.guard() as limit:
                await self._app(request.scope, limited, begin)
        except StoreUnavailable as error:
            if begun:
                raise
            # Who has no key learns nothing of the store.
            known = bool(request.scope["call"].caller.roles)
            told = of_pitboss(error) if known else ApiError(503, "The store does not answer")
            reply = failure(told, self._server.clock.wall())
            await with_headers({"type": "http.response.start", "status": reply.code, "headers": reply.headers})
            await with_headers({"type": "http.response.body", "body": reply.body})

    def _cors(self, origin: str) -> list[tuple[bytes, bytes]]:
        """The headers that let a page of another site read the answer, if it is on the list."""
        if origin not in self._rules.origins and "*" not in self._rules.origins:
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"Origin"),
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, OPTIONS"),
            (b"access-control-allow-headers", b"Content-Type, Authorization, X-API-Key, Idempotency-Key"),
            (
                b"access-control-expose-headers",
                b"Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
            ),
            (b"access-control-max-age", b"600"),
        ]


def unprefixed(scope: Scope, base_path: str) -> Scope:
    """The request as if nothing stood before its path: neither what another application has mounted this one under, nor
    the configured path, which a proxy may have left or taken away. Links need both (`PREFIX_KEY`)."""
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    for before in (root, base_path):
        if before and (path == before or path.startswith(f"{before}/")):
            path = path[len(before) :] or "/"
    return {**scope, "path": path, "raw_path": path.encode(), "root_path": "", PREFIX_KEY: root + base_path}


def roles_of(method: str, path: str) -> Roles:
    """Fails for a route without an entry in the table, when the server starts."""
    return ROLES[method, path]


def check_role(caller: Caller, roles: Roles) -> None:
    if roles and caller.roles.isdisjoint(roles):
        has = ", ".join(sorted(caller.roles)) or "no role"
        needs = ", ".join(role for role in Role if role in roles)
        raise ApiError(
            403,
            "This key may not do that",
            why=f"it is a key for {has}; this needs {needs}",
            fix="use another key: pitboss keys create NAME --role …",
        )


def _check_local(request: _Request, origin: str | None) -> None:
    """Without keys only programs on this machine may ask. A browser on it may run pages of other sites, which must not:
    their requests have another origin, or another name for this machine. A proxy passes on what comes from elsewhere.
    """
    host = request.header(b"host") or ""
    if not is_loopback(host_name(host)):
        raise ApiError(
            421,
            "Wrong Host header",
            why=f'"{host[:80]}" is not this machine; while no key exists, only local requests are answered',
            fix="ask for localhost or 127.0.0.1, or create a key: pitboss keys create NAME --role …",
        )
    foreign = origin is not None and origin != f"{request.scope['scheme']}://{host}"
    if foreign or request.header(b"sec-fetch-site") in ("cross-site", "same-site"):
        raise ApiError(
            403,
            "Requests from other sites are refused",
            why="while no key exists, every page in this machine's browser could ask otherwise",
            fix="create a key, and list the page's origin in [http] origins",
        )
    if is_proxied(request.headers.items()):
        raise ApiError(
            403,
            "Requests through a proxy are refused",
            why="while no key exists, a proxy would open this server to everyone who reaches the proxy",
            fix="create a key: pitboss keys create NAME --role …",
        )


def is_proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy passed the request on."""
    return any(name.startswith(_PROXIED) for name, _ in headers)


def host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def counted(caller: Caller | None, address: str) -> str:
    """Whose request it is for the rate limit."""
    return f"{'anonymous' if caller is None else caller.name} {address}"


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    scheme, _, key = header.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _idempotency(request: _Request) -> str | None:
    key = request.header(b"idempotency-key")
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise ApiError(400, f"An Idempotency-Key has 1 to {_LONGEST_KEY} characters", fix="send a UUID")
    return key


async def _read(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "The client hung up")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body"):
            return part if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(
        413,
        "The body is too large",
        why=f"at most {most:,} bytes are read",
        fix="store the data elsewhere and send its name, or create the tasks in several requests",
    )


def _rate_headers(allowance: Allowance) -> list[tuple[bytes, bytes]]:
    return [
        (b"x-ratelimit-limit", str(allowance.limit).encode()),
        (b"x-ratelimit-remaining", str(allowance.remaining).encode()),
        (b"x-ratelimit-reset", str(allowance.reset).encode()),
    ]
