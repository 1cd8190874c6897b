"""What happened in a store, as a log that people read: a worker crashed, the lead changed, the store was away.

A happening is stored; a fact (`model.facts`) is what hooks hear, and is not. What operators do is in the audit log.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from pitboss.model.canonical import Json, from_json, printable, to_json
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import make_id

HappeningId = str
# More than these are not kept, however young they are.
MOST_KEPT = 100_000
_LONGEST_TEXT = 1000
_LONGEST_SUBJECT = 200
# Greater than every id.
LAST = "~"


class Kind(StrEnum):
    """What happened."""

    WORKER_CRASHED = "worker_crashed"
    WORKER_GIVEN_UP = "worker_given_up"
    POOL_SCALED = "pool_scaled"
    LEAD_CHANGED = "lead_changed"
    LIMITS_CHANGED = "limits_changed"
    STORE_AWAY = "store_away"
    STORE_BACK = "store_back"
    MANAGER_STARTED = "manager_started"
    MANAGER_STOPPED = "manager_stopped"
    MANAGER_LOST = "manager_lost"
    RELEASE_CHANGED = "release_changed"
    ALERT = "alert"
    OPERATION_STOPPED = "operation_stopped"


class Severity(StrEnum):
    """How much a person should care."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


SEVERITIES = {
    Kind.WORKER_CRASHED: Severity.WARNING,
    Kind.WORKER_GIVEN_UP: Severity.ERROR,
    Kind.STORE_AWAY: Severity.ERROR,
    Kind.MANAGER_LOST: Severity.ERROR,
    Kind.OPERATION_STOPPED: Severity.WARNING,
}


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened `at` a moment of the store's clock; its id begins with the same millisecond.

    `subject` is what it is about ("pool default", "queue mail", "store"), `text` one sentence for people. `manager` is
    the session of the manager that says it, 0 if it has none. `count` is how many like it the row stands for: a storm
    is not written one by one.
    """

    id: HappeningId
    at: Moment
    kind: Kind
    severity: Severity = Severity.INFO
    subject: str = ""
    text: str = ""
    host: str = ""
    manager: int = 0
    details: Json = "{}"
    count: int = 1


def happening(new_id: HappeningId, at: Moment, kind: Kind, subject: str, text: str, **about: Any) -> Happening:
    """Make one whose texts every store can keep. `about`: `severity`, `host`, `manager`, `count`, and `details` as
    plain values."""
    details = {name: value for name, value in about.pop("details", {}).items() if value not in (None, "")}
    return Happening(
        id=new_id,
        at=at,
        kind=kind,
        severity=about.pop("severity", SEVERITIES.get(kind, Severity.INFO)),
        subject=printable(subject)[:_LONGEST_SUBJECT],
        text=printable(text)[:_LONGEST_TEXT],
        details=to_json(_storable(details), what="details"),
        **about,
    )


def pool_of(one: Happening) -> str:
    """The worker pool of the worker that it is about; empty if it is about none. One row and the sum of a storm name
    different subjects, and the same pool."""
    return str(from_json(one.details).get("pool", ""))


def floor_id(moment: Moment | None) -> HappeningId:
    """No younger id is smaller: ids are read and pruned by age through it."""
    return "" if moment is None else make_id(max(0, moment) // 1000, 0, 0)


def checked_kinds(names: tuple[str, ...] | list[str], *, known: Callable[[], list[str]] = lambda: list(Kind)) -> None:
    """Refuse a name that is not among those known."""
    unknown = sorted(set(names) - set(known()))
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)} is not a kind", why=f"the kinds are {', '.join(known())}", fix="name one of them"
        )


def _storable(value: Any) -> Any:
    """Texts may come from outside: an error message, a path."""
    if isinstance(value, str):
        return printable(value)[:_LONGEST_TEXT]
    if isinstance(value, dict):
        return {str(name): _storable(one) for name, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list | tuple) else value
