"""Answers in their envelope, and every error as one."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from pitboss.http.patterns import EXPLAINED
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import (
    InvalidInput,
    NotFound,
    PitbossError,
    QueueFull,
    Refused,
    SessionLost,
    StoreFull,
    StoreUnavailable,
    TimedOutWaiting,
    Unsupported,
)

_COPIED = ("id", "type", "status", "params")
_encode = msgspec.json.Encoder().encode
_SHOWN = 20
Headers = list[tuple[bytes, bytes]]
NO_STORE = (b"cache-control", b"no-store, no-cache, must-revalidate, max-age=0")
_JSON = (b"content-type", b"application/json")
_CODES: list[tuple[type[PitbossError], int]] = [
    (StoreUnavailable, 503),
    (SessionLost, 503),
    (QueueFull, 503),
    (StoreFull, 503),
    (TimedOutWaiting, 503),
    (NotFound, 404),
    (Refused, 409),
    (Unsupported, 400),
    (InvalidInput, 400),
]
_RETRY_AFTER = {503: b"1"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A success: what goes into the envelope. `params` may be a `msgspec.Raw`."""

    data: Mapping[str, Any]
    message: str = "Success"
    code: int = 200


class ApiError(Exception):
    """An error with its code. `details` has `why` and `fix`, or `errors` by field."""

    def __init__(self, code: int, error: str, *, why: str = "", fix: str = "", **details: Any) -> None:
        super().__init__(error)
        self.code, self.error = code, error
        told = {name: text for name, text in (("why", why), ("fix", fix)) if text}
        self.details: dict[str, Any] = {**told, **details}


class Stream(NamedTuple):
    """A text that is sent while it is made."""

    parts: AsyncIterator[bytes]
    kind: str


class Reply(msgspec.Struct, frozen=True):
    """A whole answer as it is sent."""

    code: int
    body: bytes
    headers: Headers

    @classmethod
    def of(cls, code: int, content: object, *more: tuple[bytes, bytes]) -> "Reply":
        body = _encode(content)
        length = (b"content-length", str(len(body)).encode())
        return cls(code, body, [_JSON, length, NO_STORE, *more])

    @classmethod
    def text(cls, body: bytes, content_type: str) -> "Reply":
        """A success that is no JSON."""
        length = (b"content-length", str(len(body)).encode())
        return cls(200, body, [(b"content-type", content_type.encode()), length, NO_STORE, (b"vary", b"Accept")])


def success(answer: Answer, wall: Moment) -> Reply:
    data = answer.data
    content: dict[str, Any] = {
        "success": True,
        "message": answer.message,
        "data": data,
        "timestamp": wall // SECOND,
    }
    for name in _COPIED:
        if name in data:
            content[name] = data[name]
    return Reply.of(answer.code, content)


def failure(error: ApiError, wall: Moment) -> Reply:
    content: dict[str, Any] = {"success": False, "error": error.error, "timestamp": wall // SECOND}
    if error.details:
        content["details"] = error.details
    retry = _RETRY_AFTER.get(error.code)
    return Reply.of(error.code, content, *([(b"retry-after", retry)] if retry else []))


def unauthorized(wall: Moment) -> Reply:
    """The one body that has another form, because clients of the original API know it so."""
    at = datetime.fromtimestamp(wall // SECOND, UTC).isoformat().replace("+00:00", "Z")
    content = {
        "error": "Unauthorized",
        "message": "Invalid or missing API key. Include X-API-Key header with your request.",
        "timestamp": at,
    }
    return Reply.of(401, content, (b"www-authenticate", b'Bearer realm="pitboss"'))


def too_fast(wall: Moment, *, limit: int, window: int, retry_after: int) -> Reply:
    content = {
        "error": "Too Many Requests",
        "message": f"Rate limit of {limit} requests per {window} seconds exceeded. Wait {retry_after} s.",
        "retry_after": retry_after,
        "limit": limit,
        "window": window,
        "timestamp": wall // SECOND,
    }
    return Reply.of(429, content, (b"retry-after", str(retry_after).encode()))


def of_pitboss(error: PitbossError) -> ApiError:
    code = next((code for kind, code in _CODES if isinstance(error, kind)), 400)
    fix = "try again later, or raise the queue's capacity" if isinstance(error, QueueFull) else error.fix
    return ApiError(code, error.what, why=error.why, fix=fix)


def of_fault() -> ApiError:
    """A fault of Pitboss itself: the client gets no details, the log gets all of them."""
    return ApiError(500, "A fault of Pitboss itself", fix="look at the log of the HTTP server")


def of_validation(error: ValidationError) -> ApiError:
    return of_faults(error.errors(include_url=False, include_input=False))


def of_faults(faults: Sequence[Mapping[str, Any]]) -> ApiError:
    """Wrong fields, as pydantic describes them; the first one is the error's sentence."""
    told = [_fault(fault) for fault in faults[:_SHOWN]]
    first = told[0] if told else {"field": "body", "message": "Invalid request"}
    missing = bool(faults) and faults[0]["type"] == "missing" and first["field"] != "body"
    if missing:
        sentence = f"Missing required field: {first['field']}"
    elif faults and faults[0]["type"] == "value_error":
        sentence = first["message"]
    elif faults and faults[0]["type"] == "json_invalid":
        sentence = "Invalid JSON in request body"
    else:
        sentence = f"{first['field']}: {first['message']}"
    return ApiError(400, sentence, errors=told)


def _fault(fault: Mapping[str, Any]) -> dict[str, str]:
    # FastAPI begins the place with where the value stood: body, query or path.
    place = [str(step) for step in fault["loc"] if step not in ("body", "query", "path")]
    pattern = fault.get("ctx", {}).get("pattern")
    message = EXPLAINED.get(pattern) or str(fault["msg"]).removeprefix("Value error, ")
    return {"field": ".".join(place) or "body", "message": message}
