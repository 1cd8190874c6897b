"""What is to blame for an exception: the resource that a task holds, the far side's limits, or the task itself.

Errors of HTTP clients are recognised by their attributes, not by their class: none of these libraries is needed.
"""

import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pitboss.model.canonical import printable
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.resource import Report, ResourceOutcome
from pitboss.model.signals import Blocked, RateLimited, ResourceFailed

TOO_MANY = 429
UNAVAILABLE = 503
FORBIDDEN = 403
_NOT_LET_IN = (401, 407)
_SERVER_ERRORS = 500
# Raised if a proxy or a host cannot be reached.
_NOT_REACHED = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "ConnectionRefusedError",
        "ClientConnectorError",
        "ConnectionTimeoutError",
        "NewConnectionError",
    }
)
# A connection was made, but the certificate or the protocol at its end is wrong, or it was closed.
_REACHED = frozenset(
    {
        "SSLError",
        "EndOfStream",
        "BrokenResourceError",
        "ConnectionResetError",
        "BrokenPipeError",
        "RemoteDisconnected",
    }
)
# Base classes of errors of httpx, requests, aiohttp, urllib and sockets: a request that got no answer, if none is kept.
_NO_ANSWER = frozenset(
    {"TransportError", "RequestException", "ClientError", "HTTPException", "OSError", "CancelledError"}
)
# What urllib and browsers say instead of raising an error of its own class for a proxy.
_PROXY_TEXT = re.compile(
    r"^Tunnel connection failed|ERR_(PROXY|TUNNEL|SOCKS)_|ERR_\w*_PROXY_|ERR_INVALID_AUTH|NS_ERROR_PROXY_"
)
# A browser says where it wanted to go: "net::ERR_EMPTY_RESPONSE at http://site.example/".
_PLACE_TEXT = re.compile(r"(?:(?:ERR_|NS_ERROR_)\w+ at |navigating to \")([^\s\"]+)")
_MOST_ERRORS = 12
# The attribute of an error that a client of a lease has judged itself.
CARRIED = "pitboss_report"
_LONGEST_TEXT = 500
_LONGEST_PAUSE: Span = 366 * 86_400 * SECOND
CATEGORIES = {
    ResourceOutcome.RATE_LIMITED: "rate_limited",
    ResourceOutcome.BLOCKED: "blocked",
    ResourceOutcome.RESOURCE_ERROR: "resource",
}


def blame(error: BaseException, now: Moment, *, has_address: bool = False) -> Report:
    """What an exception says about the resource. `now` is what a wall clock shows: a Retry-After may be a date.

    If the resource has an address, requests go there, and a connection that cannot be made is its own fault. A dead
    site behind it looks the same to some clients; failures of many members on one destination are forgiven later.
    """
    match error:
        case RateLimited():
            return Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=error.retry_after, error=_text(error))
        case Blocked():
            return Report(outcome=ResourceOutcome.BLOCKED, error=_text(error))
        case ResourceFailed():
            return Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=_text(error))
    met = list(_met(error))
    carried = next((found for one in met if isinstance(found := _of(one, CARRIED), Report)), None)
    if carried is not None:
        return carried
    place = next((found for one in met if (found := _destination(one))), None)
    reached = not _names(met).isdisjoint(_REACHED)
    for one in met:
        outcome, pause = _judged(one, now, reached=reached)
        if outcome is not None:
            return Report(outcome=outcome, retry_after=pause, error=_text(one), destination=place)
    mine = has_address and not reached and _is_unreached(met)
    outcome = ResourceOutcome.RESOURCE_ERROR if mine else ResourceOutcome.TASK_ERROR
    return Report(outcome=outcome, error=_text(error), destination=place)


def answered(status: int, headers: Any, now: Moment, destination: str | None) -> Report | None:
    """What an answer says about the resource; None if it says that the resource works.

    A server error may be the fault of the resource or of the destination. It is reported as a failure of this use, for
    which the resource is not blamed yet: only a comparison with other members can tell.
    """
    outcome, pause = _by_status(status, headers, now)
    if outcome is None and status >= _SERVER_ERRORS:
        outcome = ResourceOutcome.TASK_ERROR
    if outcome is None:
        return None
    return Report(outcome=outcome, retry_after=pause, error=f"status {status}", destination=destination)


def retry_after(value: str, sent_at: str | None, now: Moment) -> Span | None:
    """A Retry-After header as a span: seconds, or a date as seen from the answer's own date, else from `now`."""
    text = value.strip()
    if text.isdecimal():
        return min(int(text) * SECOND, _LONGEST_PAUSE)
    then, began = _moment(text), _moment(sent_at or "")
    if then is None:
        return None
    return min(max(0, then - (now if began is None else began)), _LONGEST_PAUSE)


def _judged(error: BaseException, now: Moment, *, reached: bool) -> tuple[ResourceOutcome | None, Span | None]:
    outcome, pause = _by_status(*_answer(error), now)
    # requests says ProxyError, too, when a connection was made and then closed: the site may be the cause of that.
    if outcome is not ResourceOutcome.RATE_LIMITED and not reached and _names_proxy(error):
        return ResourceOutcome.RESOURCE_ERROR, None
    return outcome, pause


def _by_status(status: int | None, headers: Any, now: Moment) -> tuple[ResourceOutcome | None, Span | None]:
    pause = _header(headers, "Retry-After")
    if status == TOO_MANY or (status == UNAVAILABLE and pause is not None):
        return ResourceOutcome.RATE_LIMITED, retry_after(pause, _header(headers, "Date"), now) if pause else None
    if status in _NOT_LET_IN:
        return ResourceOutcome.RESOURCE_ERROR, None
    return (ResourceOutcome.BLOCKED, None) if status == FORBIDDEN else (None, None)


def _names_proxy(error: BaseException) -> bool:
    if any("proxy" in kind.__name__.lower() for kind in type(error).__mro__):
        return True
    return _PROXY_TEXT.search(_message(error)) is not None


def is_unanswered(error: BaseException) -> bool:
    """Whether a request may have been sent, and its client gave up or was stopped before an answer came."""
    met = list(_met(error))
    if any(_answer(one)[0] is not None for one in met) or _is_unreached(met):
        return False
    return not _names(met).isdisjoint(_NO_ANSWER) or any(type(one).__module__.startswith("playwright") for one in met)


def _is_unreached(met: list[BaseException]) -> bool:
    """Whether a connection could not be made, by what httpx, requests, aiohttp, urllib and sockets say."""
    if not _names(met).isdisjoint(_NOT_REACHED):
        return True
    # What urllib wraps happened while it connected; a read that takes too long is a plain TimeoutError.
    return any(type(one).__name__ == "URLError" and isinstance(_of(one, "reason"), TimeoutError) for one in met)


def _names(met: list[BaseException]) -> set[str]:
    return {kind.__name__ for one in met for kind in type(one).__mro__}


def _met(error: BaseException) -> Iterator[BaseException]:
    """The exception and those behind it: its cause, and what urllib (`reason`) and requests (`args`) put inside."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MOST_ERRORS:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inside = (current.__cause__, _of(current, "reason"), *(_of(current, "args") or ()))
        waiting += [one for one in inside if isinstance(one, BaseException)]


def _answer(error: BaseException) -> tuple[int | None, Any]:
    """Status and headers of the answer that an error is about, as httpx, requests, aiohttp and urllib keep them."""
    response = _of(error, "response")
    for holder, name in ((response, "status_code"), (response, "status"), (error, "status"), (error, "code")):
        status = _of(holder, name)
        if isinstance(status, int) and not isinstance(status, bool):
            return status, _of(holder, "headers")
    return None, None


def _header(headers: Any, name: str) -> str | None:
    if not isinstance(headers, Mapping) and not hasattr(headers, "items"):
        return None
    try:
        found = next((value for key, value in headers.items() if str(key).lower() == name.lower()), None)
    except Exception:  # a foreign object, which may raise anything
        return None
    return None if found is None else str(found)


def _destination(error: BaseException) -> str | None:
    """The host of the request that failed, if the error knows it."""
    request = _of(error, "request_info") or _of(error, "request")
    url = _of(request, "real_url") or _of(request, "url") or _of(error, "url")
    told = None if url else _PLACE_TEXT.search(_message(error))
    try:
        return urlsplit(told.group(1) if told else str(url)).hostname if told or url else None
    except ValueError:
        return None


def _of(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # httpx raises where there is no request
        return None


def _moment(text: str) -> Moment | None:
    try:
        return round(parsedate_to_datetime(text).timestamp() * SECOND)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _text(error: BaseException) -> str:
    message = _message(error)
    return printable(f"{type(error).__name__}: {message}", _LONGEST_TEXT) if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a foreign object, which may raise anything
        return ""


def at(report: Report, destination: str | None) -> Report:
    """The report with the destination that the handler named, if it did."""
    return msgspec.structs.replace(report, destination=destination) if destination else report
