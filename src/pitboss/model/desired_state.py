"""What operators want of worker pools and managers: keys and values in the store, which managers follow."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.pool import Range
from pitboss.model.queue import Wish
from pitboss.model.stack import StackWish, stack_wishes


class DesiredPool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of one worker pool, on every host or on one.

    `size` overrides configuration and scaling; workers older than `generation` are replaced one by one; a paused pool
    takes no new tasks, and remembers who paused it, when and why. `delay` is the least and the most pause after each
    task, instead of the configured one. A field that is None asks for nothing.
    """

    size: int | None = None
    generation: int | None = None
    paused: bool | None = None
    paused_by: str | None = None
    paused_at: Moment | None = None
    paused_reason: str | None = None
    delay: Range | None = None


class DesiredManager(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of the manager that has this session, or a later session in the same process."""

    drain: bool = False
    stop: bool = False
    now: bool = False


def pool_key(pool: str, host: str | None = None) -> str:
    return f"pool/{pool}@{host}" if host else f"pool/{pool}"


def manager_key(session: int) -> str:
    return f"manager/{session}"


W = TypeVar("W", DesiredPool, DesiredManager)


class DesiredState:
    """The desired state as known so far; `take` adds what has changed in the store."""

    def __init__(self) -> None:
        self.version = 0
        self._values: dict[str, str] = {}

    def take(self, changes: Iterable[Wish]) -> None:
        for wish in changes:
            self.version = max(self.version, wish.version)
            if wish.value is None:
                self._values.pop(wish.key, None)
            else:
                self._values[wish.key] = wish.value

    def pool(self, name: str, host: str) -> DesiredPool:
        """What is wanted of a pool on a host: a value for this host overrides the value for all hosts."""
        here, everywhere = (_read(self._values.get(key), DesiredPool) for key in (pool_key(name, host), pool_key(name)))
        pause = everywhere if here.paused is None else here
        return DesiredPool(
            size=everywhere.size if here.size is None else here.size,
            generation=max((one.generation or 0 for one in (here, everywhere)), default=0) or None,
            paused=pause.paused,
            paused_by=pause.paused_by,
            paused_at=pause.paused_at,
            paused_reason=pause.paused_reason,
            delay=everywhere.delay if here.delay is None else here.delay,
        )

    def stacks(self, sessions: Iterable[int]) -> list[StackWish]:
        """The stacks that are wanted of a manager that has or had these sessions."""
        return stack_wishes(self._values, sessions)

    def manager(self, session: int) -> DesiredManager:
        return _read(self._values.get(manager_key(session)), DesiredManager)


def _read(text: str | None, kind: type[W]) -> W:
    """A value that we cannot read is of another release, and asks for nothing."""
    try:
        return msgspec.json.decode(text, type=kind) if text else kind()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return kind()
