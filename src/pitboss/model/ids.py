"""Task ids: UUID version 7, made by the client, so that a repeated put after a lost reply is harmless.

The id is also the task's age: within one priority, a smaller id runs first.
"""

import re
from collections.abc import Callable
from hashlib import blake2b

from pitboss.model.errors import InvalidInput

TaskId = str
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_ANY_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FIRST, _LAST = (re.sub("x", digit, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") for digit in "0f")
_SEQUENCE = 1 << 12
# Takes half as long as other ways to format it, and every task has one.
_TEXT = "%08x-%04x-7%03x-%04x-%012x"


def make_id(millis: int, sequence: int, entropy: int) -> TaskId:
    """UUIDv7 text from a millisecond, a 12-bit sequence within it and 62 random bits."""
    return _TEXT % (millis >> 16, millis & 0xFFFF, sequence, 0x8000 | entropy >> 48, entropy & 0xFFFF_FFFF_FFFF)


def millis_of(task_id: TaskId) -> int:
    """The millisecond that a UUIDv7 carries."""
    return int(task_id[:8] + task_id[9:13], 16)


def moment_of(task_id: TaskId) -> int:
    """When the id was made."""
    return millis_of(task_id) * 1000


def first_id(millis: int) -> TaskId:
    """The ids of this millisecond and later ones are not below this text, and those of earlier ones are."""
    within = min(max(millis, 0), (1 << 48) - 1)
    return f"{within >> 16:08x}-{within & 0xFFFF:04x}-0000-0000-000000000000"


def ids_beginning(piece: str) -> tuple[TaskId, TaskId] | None:
    """The first and the last id that begin with this piece; None if no id does."""
    first, last = piece + _FIRST[len(piece) :], piece + _LAST[len(piece) :]
    return (first, last) if _ANY_UUID.fullmatch(first) else None


def id_of_run(task_id: TaskId, run: int) -> TaskId:
    """The id for run 1, 2, … of something that is repeated: the first has the id itself, and each run its own."""
    if run == 1:
        return task_id
    entropy = int(task_id[19:23] + task_id[24:], 16) ^ (run - 1)
    return f"{task_id[:19]}{entropy >> 48:04x}-{entropy & 0xFFFF_FFFF_FFFF:012x}"


def derived_id(moment: int, *parts: object) -> TaskId:
    """The same id for the same moment and parts, made anywhere: a repetition meets what the first one stored."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    bits = int.from_bytes(blake2b(text, digest_size=10).digest(), "big")
    return make_id(moment // 1000, bits >> 68, bits & (1 << 62) - 1)


def checked_id(text: str) -> TaskId:
    """The id itself if it is canonical UUIDv7 text; refuses anything else."""
    if not _UUID7.match(text):
        raise InvalidInput(
            f"{text!r:.80} is not a task id",
            why="a task id is a UUID of version 7 in lower case, such as 01900000-0000-7000-8000-000000000000",
            fix="leave the id out to have one made, or make a UUIDv7",
        )
    return text


class IdMaker:
    """Makes ids that only grow, even if the clock is set back. One per process; not shared between threads."""

    def __init__(self, now: Callable[[], int], randbits: Callable[[int], int]) -> None:
        self._now, self._randbits = now, randbits
        self._millis = 0
        self._sequence = 0

    def __call__(self) -> TaskId:
        millis = self._now() // 1000
        if millis > self._millis:
            self._millis, self._sequence = millis, 0
        elif self._sequence + 1 < _SEQUENCE:
            self._sequence += 1
        else:
            # More than 4,096 ids in a millisecond, or a clock that does not move: use the next millisecond.
            self._millis, self._sequence = self._millis + 1, 0
        return make_id(self._millis, self._sequence, self._randbits(62))
