"""The options of one enqueue, beyond the arguments of its handler."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.new_task import TaskOptions
from pitboss.model.queue import checked_name
from pitboss.model.task import TaskChange

PRIORITIES = range(-32_768, 32_768)
ATTEMPTS = range(1, 1_000_001)
MAX_KEY = 512
_SPANS = ("delay", "timeout", "expires_in", "key_period", "wait")
_MOMENTS = ("run_at", "expires_at")
# One tag, or several.
Tags = str | Iterable[str]


class Options(TaskOptions, frozen=True, kw_only=True):
    """Checked options. Times are spans and moments here; people write "10m" or datetimes."""

    wait: Span | None = None
    within: Any = None

    def changed(self, **options: Any) -> "Options":
        """These options, overridden by others. Refuses unknown options and invalid values."""
        unknown = sorted(set(options) - set(self.__struct_fields__))
        if unknown:
            raise InvalidInput(
                f"there is no option {', '.join(unknown)}",
                why="a mistyped option would be ignored silently",
                fix=f"the options are queue, {', '.join(self.__struct_fields__)}",
            )
        return msgspec.structs.replace(self, **{name: _checked(name, value) for name, value in options.items()})


def _checked(name: str, value: Any) -> Any:
    if value is None or name == "within":
        return value
    if name in _SPANS:
        return span(value, what=name)
    if name in _MOMENTS:
        return _moment(name, value)
    match name:
        case "priority":
            return whole_number(name, value, PRIORITIES)
        case "max_attempts":
            return whole_number(name, value, ATTEMPTS)
        case "tags":
            return tuple(checked_name(tag, "tag") for tag in ((value,) if isinstance(value, str) else value))
    return _key(name, value)


def task_change(priority: int | None, tag: Tags, untag: Tags) -> TaskChange:
    """The change that these options describe."""
    return TaskChange(
        priority=msgspec.UNSET if priority is None else _checked("priority", priority),
        tag=tuple(dict.fromkeys(_checked("tags", tag))),
        untag=tuple(dict.fromkeys(_checked("tags", untag))),
    )


def _moment(name: str, value: Any) -> Moment:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(
            f"{name}={value!r:.60} is not a moment",
            why="a moment is a datetime with a time zone; without one it means different times on different machines",
            fix=f"pass datetime(..., tzinfo=UTC), or a span with {'delay' if name == 'run_at' else 'expires_in'}=…",
        )
    try:
        return round(value.astimezone(UTC).timestamp() * SECOND)
    except OverflowError as error:
        raise InvalidInput(
            f"{name}={value!r:.60} is too far away",
            why="in UTC it is outside the years 1 to 9999",
            fix="choose a nearer one",
        ) from error


def whole_number(name: str, value: Any, valid: range) -> int:
    """The value itself, if it is a whole number in that range."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in valid:
        raise InvalidInput(
            f"{name}={value!r:.60} cannot be used",
            why=f"it is a whole number from {valid.start} to {valid.stop - 1}",
            fix="choose one in that range",
        )
    return value


def _key(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY or "\0" in value:
        raise InvalidInput(
            f"{name}={value!r:.60} cannot be {'an order key' if name == 'order_key' else 'a unique key'}",
            why=f"a key is text of 1 to {MAX_KEY} characters",
            fix="build it from what the task is about, such as an account's id",
        )
    return value
