"""Log settings: the folder, the level, how much is kept, and how a pool names the files of its workers."""

import re
from string import Formatter
from typing import Any

import msgspec

from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_DAY: Span = 86_400 * SECOND
_MEGABYTE = 1024 * 1024
_SMALLEST_FILE, _LARGEST_FILE = 64 * 1024, 10 * _MEGABYTE
_FILES_IN_ALL = 20
# `slot0` counts the workers of a pool on a host from 0 on, `slot` from 1 on.
MANAGER_FILE = "manager.log"
_NUMBERED = {"slot0", "slot", "worker"}
_FIELDS = _NUMBERED | {"pool"}
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}\.log\Z")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are microseconds, sizes bytes.

    A file is rotated when it has `file_size`, or when its first line is older than `file_age`; at most `files` rotated
    files are kept per worker. All files together are kept within `total_size`, and none longer than `age`. `file` is
    the name of a worker's file, if its pool names files in its own way.
    """

    folder: str = "logs"
    file: str = ""
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


def checked_log_file(pattern: Any) -> str:
    """The pattern itself; refuses one that does not make names of files in the log folder."""
    try:
        parts = list(Formatter().parse(pattern)) if isinstance(pattern, str) else []
    except ValueError:
        parts = []
    plain = all(not spec and not conversion and field in {None, *_FIELDS} for _, field, spec, conversion in parts)
    sample = "".join(text + ("" if field is None else "0") for text, field, _, _ in parts)
    if not plain or not _FILE_NAME.match(sample):
        raise InvalidInput(
            f"{pattern!r:.80} does not name log files",
            why="it is the name of a file in the log folder that ends in .log: letters, digits, - _ . and the fields"
            " {slot0} or {slot} (the worker's number from 0 or from 1 on), {pool} and {worker}",
            fix='write it like "state_worker_{slot0}.log"',
        )
    return str(pattern)


def numbers_files(pattern: str) -> bool:
    """Whether each worker of a pool has a file of its own."""
    return any(field in _NUMBERED for _, field, _, _ in Formatter().parse(pattern))


def log_file_name(pattern: str, pool: str, place: int) -> str:
    """The name of the file of the pool's worker at this place, which counts from 0 on."""
    return pattern.format(slot0=place, slot=place + 1, pool=pool, worker=f"{pool}-{place + 1}")
