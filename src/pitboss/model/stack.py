"""Where a running task is: the lines of its stack, asked for through desired state and answered in a snapshot."""

from collections.abc import Iterable, Mapping

import msgspec

from pitboss.model.duration import Moment

_KEY = "stack/"


class StackWish(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of this task is wanted; `ask` tells one wish from the next."""

    task: str
    ask: str


class TaskStack(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one `ask`. `lines` have file, line and function of each frame, the innermost last, and no values.
    `note` says what they are if they are not simply the task's own, or why there are none."""

    task: str
    ask: str
    worker: str = ""
    at: Moment = 0
    lines: tuple[str, ...] = ()
    note: str = ""


def stack_key(session: int) -> str:
    """The key of the desired state that the manager with this session looks at."""
    return f"{_KEY}{session}"


def stack_wishes(values: Mapping[str, str], sessions: Iterable[int]) -> list[StackWish]:
    """What is wanted of a manager that has or had these sessions."""
    texts = [values[key] for key in map(stack_key, sessions) if key in values]
    return [wish for text in texts if (wish := _read(text)) is not None]


def _read(text: str) -> StackWish | None:
    """A value that we cannot read is of another release, and asks for nothing."""
    try:
        return msgspec.json.decode(text, type=StackWish)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
