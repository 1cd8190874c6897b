"""One log record as one line: JSON for the file, text for a person. This never fails, whatever the record holds."""

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from pitboss.model.canonical import printable
from pitboss.model.task import Claim

LONGEST_LINE = 256 * 1024
_LONGEST_VALUE = 4096
_MOST_FIELDS = 50
_LARGEST = 1 << 63
_ID_END = 12
_TASKS_NAMED = 3
_OF_RECORDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "_logger", "_name"}
_TOLD_TWICE = ("level", "logger")
_ALWAYS = frozenset(("time", "level", "logger", "event", "exception"))
_OF_WORKERS = _ALWAYS | {"pool", "worker", "pid", "task_id", "handler", "queue", "attempt", "batch"}
_OF_MANAGERS = _ALWAYS | {"manager_pid", "task_id", "handler", "queue", "attempt", "batch", "tasks"}

Current = Callable[[], Claim | None]
Hidden = Callable[[bytes], bytes]


class StructuredMessage:
    """A structured message for `logging`: our files store its fields, other handlers get it as text."""

    __slots__ = ("event", "facts")

    def __init__(self, event: str, facts: Mapping[str, Any]) -> None:
        self.event, self.facts = event, facts

    def __str__(self) -> str:
        return f"{self.event}{_facts(self.facts)}"


class LineFormatter:
    """Formats records as lines. `who` is on every line; `current` returns the claim of the task that runs, if any.

    `current` is called for each line, in the thread that logs, so a task that logs nothing costs nothing. A manager
    logs about other processes, so its own pid has another name.
    """

    def __init__(
        self, who: Mapping[str, str], current: Current, *, pid: str = "pid", hidden: Hidden | None = None
    ) -> None:
        self._who, self._current, self._pid, self._hidden = dict(who), current, pid, hidden

    def line(self, record: logging.LogRecord) -> bytes:
        line = encoded(self.fields(record))
        return line if self._hidden is None else self._hidden(line)

    def shown(self, text: str) -> str:
        """A text for a person, without secrets."""
        return text if self._hidden is None else self._hidden(text.encode("utf-8", "replace")).decode()

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        event, facts = _told(record)
        found: dict[str, Any] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
            **self._who,
            self._pid: record.process,
        }
        claim = self._current()
        if claim is not None:
            found["task_id"] = claim.id
            found["handler"] = claim.handler
            found["queue"] = claim.queue
            found["attempt"] = claim.attempt
            if claim.batch is not None:
                found["batch"] = claim.batch
        for key, value in facts.items():
            # A field of the app must not replace one of ours: `pitboss logs` finds lines by them.
            found[f"{key}_" if key in found else key] = value
        if record.exc_info and (trace := _trace(record.exc_info)):
            found["exception"] = trace
        if record.stack_info:
            found["stack"] = record.stack_info
        return found


def stamp(seconds: float) -> str:
    """A time as it is written in every line: these texts sort like the times."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@lru_cache(maxsize=8)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def encoded(fields: Mapping[str, Any]) -> bytes:
    """One line. Values that JSON cannot hold become text; what is too long is cut."""
    try:
        data = _ENCODER.encode(fields)
    except Exception:  # a value may be anything, and its str() may raise anything
        data = _ENCODER.encode({printable(str(key)): _plain(value) for key, value in fields.items()})
    if len(data) > LONGEST_LINE:
        some = list(fields.items())[:_MOST_FIELDS]
        data = _ENCODER.encode({printable(str(key), 100): _plain(value, _LONGEST_VALUE) for key, value in some})
    return data + b"\n"


def as_text(fields: Mapping[str, Any], at: str, *, width: int = 0) -> str:
    """A line for a person, without its traceback. `width` is the width of the longest worker name."""
    level = str(fields.get("level", "")).upper()
    if "manager_pid" in fields:
        rest = _facts(_told_of(fields, _OF_MANAGERS))
        return f"{at} {'manager':<{width}} {level:<7} {fields.get('event')}{rest}{_about(fields)}"
    rest = _facts(_told_of(fields, _OF_WORKERS))
    text = f"{at} {fields.get('worker', ''):<{width}} {level:<7} {fields.get('logger')}: {fields.get('event')}{rest}"
    return f"{text}{_about(fields)}"


def _about(fields: Mapping[str, Any]) -> str:
    """The task that a line is about, or the tasks."""
    tasks = [one for one in (fields, *(fields.get("tasks") or ())) if isinstance(one, Mapping) and one.get("task_id")]
    named = [f"{one.get('handler')} {str(one['task_id'])[-_ID_END:]} #{one.get('attempt')}" for one in tasks]
    more = f" and {len(named) - _TASKS_NAMED} more" if len(named) > _TASKS_NAMED else ""
    return f"  [{', '.join(named[:_TASKS_NAMED])}{more}]" if named else ""


def _told_of(fields: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields that the logger added; empty ones are left out."""
    return {key: value for key, value in fields.items() if key not in known and value not in (None, "", [])}


def _told(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The message and its fields, from `extra` or from structlog."""
    message = record.msg
    if isinstance(message, StructuredMessage):
        return message.event, dict(message.facts)
    if isinstance(message, dict) and hasattr(record, "_name"):
        return _from_structlog(record, message)
    try:
        text = record.getMessage()
    except Exception:  # the arguments do not fit the format: show both
        text = f"{_plain(message)} {_plain(record.args)}"
    return text, {key: value for key, value in record.__dict__.items() if key not in _OF_RECORDS}


def _from_structlog(record: logging.LogRecord, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """From an app that configured structlog with its own formatter: the record's message is a dictionary."""
    facts = {key: value for key, value in message.items() if key not in _TOLD_TWICE}
    caught = facts.pop("exc_info", None)
    if caught and "exception" not in facts:
        facts["exception"] = _trace(caught)
    return str(facts.pop("event", "")), facts


def _trace(caught: Any) -> str:
    if caught is True:
        caught = sys.exc_info()
    error = caught if isinstance(caught, BaseException) else caught[1] if isinstance(caught, tuple) else None
    if error is None:
        return printable(str(caught)) if isinstance(caught, str) else ""
    try:
        return printable("".join(traceback.format_exception(error)).rstrip())
    except Exception:
        return type(error).__name__


def _facts(facts: Mapping[str, Any]) -> str:
    return "".join(f" {key}={_shown(value)}" for key, value in facts.items())


def _shown(value: Any) -> str:
    text = str(_plain(value))
    if "\n" in text:
        return f"\n{text.rstrip()}"
    return repr(text) if " " in text and isinstance(value, str) else text


def _plain(value: Any, limit: int = 65_536) -> Any:
    """The value itself if JSON can hold it, else its text."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _LARGEST):
        return value
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return printable(text, limit)


_ENCODER = msgspec.json.Encoder(enc_hook=str)
