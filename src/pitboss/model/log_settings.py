"""Log settings: the folder, the level, and how much is kept."""

import msgspec

from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_DAY: Span = 86_400 * SECOND
_MEGABYTE = 1024 * 1024
_SMALLEST_FILE, _LARGEST_FILE = 64 * 1024, 10 * _MEGABYTE
_FILES_IN_ALL = 20


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are microseconds, sizes bytes.

    A file is rotated when it has `file_size`, or when its first line is older than `file_age`; at most `files` rotated
    files are kept per worker. All files together are kept within `total_size`, and none longer than `age`.
    """

    folder: str = "logs"
    level: str = "info"
    file_size: int = _LARGEST_FILE
    file_age: Span = _DAY
    files: int = 10
    total_size: int = 200 * _MEGABYTE
    age: Span = 14 * _DAY


def log_settings(folder: str, *, level: str, total_size: int, age: Span) -> LogSettings:
    """The settings that a user chooses; the others follow from them.

    If `total_size` is small, files are small: pruning removes whole files.
    """
    file_size = max(_SMALLEST_FILE, min(_LARGEST_FILE, total_size // _FILES_IN_ALL))
    return LogSettings(folder=folder, level=level, file_size=file_size, total_size=total_size, age=age)


def level_number(name: str) -> int:
    """The number of a level in Python's logging."""
    number = LEVELS.get(name.strip().lower())
    if number is None:
        raise InvalidInput(
            f"{name!r:.60} is not a log level", why=f"the levels are {', '.join(LEVELS)}", fix="write one of them"
        )
    return number
