"""Sweeping: what dead sessions held, what waits for a handler that is known by now, and figures to fold."""

from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.session import Reclaimed

_AT_ONCE = 1000
_FOLDED_AT_ONCE = 50_000


def reclaim(say: Statements, limit: int, now: Moment | None) -> Script[Reclaimed]:
    ((lost, cancelled, long, _),) = yield say.ask("lose", now, limit=limit)
    if long:
        yield say.ask("trim", tasks=texts(long))
    ((released, _),) = yield say.ask("release", now, handlers=None, limit=limit)
    yield from tidy_up(say, now)
    # One more than the limit would be known only by locking it: a full sweep asks for another.
    more = bool(limit) and (lost + cancelled >= limit or released >= limit)
    return Reclaimed(lost=lost, cancelled=cancelled, released=released, more=more)


def tidy_up(say: Statements, now: Moment | None) -> Script[None]:
    yield say.ask("fold", limit=_FOLDED_AT_ONCE, lock=fold_lock(say.schema))
    yield say.ask("forget_starts", now, limit=_AT_ONCE)
    yield say.ask("forget_sessions", now)


def release(say: Statements, handlers: str, now: Moment | None) -> Script[None]:
    """Held tasks of these handlers may run; in bites, so that no lock is held for long."""
    while True:
        ((released, _),) = yield say.ask("release", now, handlers=handlers, limit=_AT_ONCE)
        if released < _AT_ONCE:
            return


def fold_lock(schema: str) -> int:
    """A number for the server's advisory locks, the same in every process."""
    return int.from_bytes(f"pitboss fold {schema}".encode()[-8:], signed=True)
