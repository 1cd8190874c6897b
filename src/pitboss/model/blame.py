"""What is to blame for an exception: the resource that a task holds, the far side's limits, or the task itself.

Errors of HTTP clients are recognised by their attributes, not by their class: none of these libraries is needed.
"""

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
# Raised if a proxy or a host cannot be reached.
_NOT_REACHED = frozenset({"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "ClientConnectorError"})
# The far end was reached, but its certificate or its protocol is wrong.
_REACHED = frozenset({"SSLError"})
_LONGEST_CHAIN = 5
_LONGEST_TEXT = 500
_LONGEST_PAUSE: Span = 366 * 86_400 * SECOND
CATEGORIES = {
    ResourceOutcome.RATE_LIMITED: "rate_limited",
    ResourceOutcome.BLOCKED: "blocked",
    ResourceOutcome.RESOURCE_ERROR: "resource",
}


def blame(error: BaseException, now: Moment, *, has_address: bool = False) -> Report:
    """What an exception says about the resource. `now` is only used for a Retry-After that is a date.

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
    for one in _chain(error):
        outcome, pause = _judged(one, now)
        if outcome is not None:
            return Report(outcome=outcome, retry_after=pause, error=_text(one), destination=_destination(one))
    found = next((place for one in _chain(error) if (place := _destination(one))), None)
    mine = has_address and _is_unreached(error)
    outcome = ResourceOutcome.RESOURCE_ERROR if mine else ResourceOutcome.TASK_ERROR
    return Report(outcome=outcome, error=_text(error), destination=found)


def retry_after(value: str, sent_at: str | None, now: Moment) -> Span | None:
    """A Retry-After header as a span: seconds, or a date as seen from the answer's own date, else from `now`."""
    text = value.strip()
    if text.isdecimal():
        return min(int(text) * SECOND, _LONGEST_PAUSE)
    then, began = _moment(text), _moment(sent_at or "")
    if then is None:
        return None
    return min(max(0, then - (now if began is None else began)), _LONGEST_PAUSE)


def _judged(error: BaseException, now: Moment) -> tuple[ResourceOutcome | None, Span | None]:
    status, headers = _answer(error)
    pause = _header(headers, "Retry-After")
    if status == TOO_MANY or (status == UNAVAILABLE and pause is not None):
        return ResourceOutcome.RATE_LIMITED, retry_after(pause, _header(headers, "Date"), now) if pause else None
    if any("proxy" in kind.__name__.lower() for kind in type(error).__mro__) or status in _NOT_LET_IN:
        return ResourceOutcome.RESOURCE_ERROR, None
    return (ResourceOutcome.BLOCKED, None) if status == FORBIDDEN else (None, None)


def _is_unreached(error: BaseException) -> bool:
    """Whether a connection could not be made, by what httpx, requests, aiohttp, urllib and sockets say."""
    # urllib keeps the original error as the reason.
    met = [one for link in _chain(error) for one in (link, _of(link, "reason"))]
    names = {kind.__name__ for one in met for kind in type(one).__mro__}
    return not names.isdisjoint(_NOT_REACHED) and names.isdisjoint(_REACHED)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from."""
    current: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__


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
    try:
        return urlsplit(str(url)).hostname if url else None
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
    try:
        message = str(error)
    except Exception:
        message = ""
    return printable(f"{type(error).__name__}: {message}", _LONGEST_TEXT) if message else type(error).__name__


def at(report: Report, destination: str | None) -> Report:
    """The report with the destination that the handler named, if it did."""
    return msgspec.structs.replace(report, destination=destination) if destination else report
