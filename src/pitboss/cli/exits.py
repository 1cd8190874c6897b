"""Exit codes: what a script can learn from a command without reading its words."""

from enum import IntEnum

from pitboss.model.errors import (
    InvalidInput,
    NotFound,
    NotLeader,
    PitbossError,
    QueueFull,
    SchemaMismatch,
    SessionLost,
    StoreUnavailable,
    TimedOutWaiting,
    Unsupported,
)


class Exit(IntEnum):
    """The code, and in `meaning` what it says."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "Exit":
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done; nothing to complain about"
    FAILED = 1, "the operation failed (with --wait: what was waited for failed), or something unexpected happened"
    USAGE = 2, "the command line, a setting or the app's own code cannot be used"
    UNREACHABLE = 3, "the store cannot be reached or opened"
    NOT_FOUND = 4, "no such task, batch, queue, handler, group, resource, pool, host or manager"
    REFUSED = 5, "refused: a conflict, a full queue, a newer schema, or nobody confirmed"
    UNHEALTHY = 6, "`pitboss status --check` found the store unhealthy, or `pitboss doctor` found a problem"
    TIMEOUT = 124, "what was waited for did not happen in time"
    INTERRUPTED = 130, "ended by Ctrl-C before it was done"


_BY_ERROR: tuple[tuple[type[PitbossError], Exit], ...] = (
    (InvalidInput, Exit.USAGE),
    (Unsupported, Exit.USAGE),
    (StoreUnavailable, Exit.UNREACHABLE),
    (NotFound, Exit.NOT_FOUND),
    (QueueFull, Exit.REFUSED),
    (SchemaMismatch, Exit.REFUSED),
    (SessionLost, Exit.REFUSED),
    (NotLeader, Exit.REFUSED),
    (TimedOutWaiting, Exit.TIMEOUT),
)


class Refused(PitbossError):
    """Not done, because it was not confirmed or would have harmed something."""

    code = "refused"


def exit_of(error: PitbossError) -> Exit:
    """The code that an error ends the process with."""
    if isinstance(error, Refused):
        return Exit.REFUSED
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)
