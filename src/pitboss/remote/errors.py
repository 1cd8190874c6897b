"""The errors of a worker, and how each of them is reported to the API."""

import traceback
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any

import httpx

# A report is at most 1 MiB.
_LONGEST_ERROR = 10_000
_LONGEST_TRACEBACK = 50_000

# Connection errors of libraries that handlers use, by name: this package does not import them.
_FOREIGN = {
    ("requests.exceptions", "ConnectionError"),
    ("requests.exceptions", "Timeout"),
    ("aiohttp.client_exceptions", "ClientConnectionError"),
}


class WorkerError(Exception):
    """Base of every error of this package. A handler may say whether and when its task is tried again."""

    def __init__(self, *args: object, retryable: bool | None = None, retry_after: float | None = None) -> None:
        super().__init__(*args)
        self.retryable, self.retry_after = retryable, retry_after


class TaskValidationError(WorkerError):
    """The parameters of a task cannot be used. It is not tried again."""


class APIConnectionError(WorkerError):
    """An API cannot be reached, or asks to come back later. The task is tried again."""

    def __init__(self, *args: object, status: int | None = None, **said: Any) -> None:
        super().__init__(*args, **said)
        self.status = status


class TaskProcessingError(WorkerError):
    """The work of a task went wrong."""


class APIError(WorkerError):
    """The Pitboss API refused a call. Repeating it would not help."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def claim_is_over(self) -> bool:
        """As the refusal of a report: the task is not claimed by this worker any more."""
        if self.status == HTTPStatus.BAD_REQUEST:
            return "not in claimed state" in str(self).lower()
        return self.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class ConfigError(WorkerError, ValueError):
    """A setting cannot be used."""

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        super().__init__(f"{what}\nWhy: {why}\nFix: {fix}")


class StopNow(BaseException):
    """The worker stops at once. Not an Exception, so that a handler does not swallow it."""


def kind_of(error: BaseException) -> tuple[str, bool]:
    """What `error_type` an error has, and whether its task is tried again."""
    kind, retryable = "unknown", False
    if isinstance(error, TaskValidationError | ValueError | TypeError) and not isinstance(error, JSONDecodeError):
        kind = "validation"
    elif isinstance(error, APIConnectionError | ConnectionError | TimeoutError | httpx.TransportError) or _foreign(
        error
    ):
        kind, retryable = "connection", True
    said = error.retryable if isinstance(error, WorkerError) else None
    return kind, retryable if said is None else said


def failure(error: BaseException) -> dict[str, Any]:
    """The fields of a report that a task failed with this error."""
    kind, retryable = kind_of(error)
    text = _text(error)
    if kind == "unknown" and not isinstance(error, WorkerError):
        text = f"{type(error).__name__}: {text}"
    fields: dict[str, Any] = {"error": text[:_LONGEST_ERROR], "error_type": kind, "retryable": retryable}
    # A ValueError may also be a mistake in the handler: the others say all there is to know.
    if not isinstance(error, TaskValidationError | APIConnectionError) and kind != "connection":
        fields["traceback"] = plain("".join(traceback.format_exception(error)))[-_LONGEST_TRACEBACK:]
    if isinstance(error, WorkerError) and error.retry_after is not None:
        fields["retry_after"] = error.retry_after
    return fields


def _text(error: BaseException) -> str:
    try:
        return plain(str(error)) or type(error).__name__
    except Exception:  # its own __str__ fails
        return type(error).__name__


def plain(text: str) -> str:
    """Text that JSON and every store can hold: without lone surrogates and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _foreign(error: BaseException) -> bool:
    return any((base.__module__, base.__name__) in _FOREIGN for base in type(error).__mro__)
