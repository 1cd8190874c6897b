"""What operators can want of managers, as keys and values of the desired state. Managers read, CLI and web write."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from pitboss.model.queue import Wish


class PoolWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of one pool, on every host or on one.

    `size` replaces what configuration and scaling say; workers older than `generation` are replaced one by one;
    a paused pool takes no new tasks. Each None says nothing.
    """

    size: int | None = None
    generation: int | None = None
    paused: bool | None = None


class ManagerWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of the one manager that has this session, or that follows it in the same process."""

    drain: bool = False
    stop: bool = False
    now: bool = False


def pool_key(pool: str, host: str | None = None) -> str:
    return f"pool/{pool}@{host}" if host else f"pool/{pool}"


def manager_key(session: int) -> str:
    return f"manager/{session}"


W = TypeVar("W", PoolWish, ManagerWish)


class Wishes:
    """The wishes as known so far, read from the store's changes."""

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

    def pool(self, name: str, host: str) -> PoolWish:
        """What is wanted of a pool on a host: what is said for this host comes before what is said for all."""
        here, everywhere = (_read(self._values.get(key), PoolWish) for key in (pool_key(name, host), pool_key(name)))
        return PoolWish(
            size=everywhere.size if here.size is None else here.size,
            generation=max((one.generation or 0 for one in (here, everywhere)), default=0) or None,
            paused=everywhere.paused if here.paused is None else here.paused,
        )

    def manager(self, session: int) -> ManagerWish:
        return _read(self._values.get(manager_key(session)), ManagerWish)


def _read(text: str | None, kind: type[W]) -> W:
    """A wish of a release that we do not know wants nothing of us."""
    try:
        return msgspec.json.decode(text, type=kind) if text else kind()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return kind()
