"""What operators want, as this manager has read it from the store."""

from collections.abc import Iterable
from typing import Protocol

from pitboss.engines.protocol import Desired
from pitboss.model.desired_state import DesiredManager, DesiredState


class Messenger(Protocol):
    """What a session hears: that somebody rang, and with each renewal the store's newest version of a wish."""

    rung: bool
    desired: int


class Orders:
    """Asks the store only when there may be something new."""

    def __init__(self, engine: Desired) -> None:
        self._engine = engine
        self.wishes = DesiredState()

    def expected(self, messenger: Messenger | None) -> bool:
        """Whether a look is worth a call: a wish rings, and a ring that was lost shows in the next renewal."""
        if messenger is None:
            return False
        rung, messenger.rung = messenger.rung, False
        return rung or messenger.desired > self.wishes.version

    async def read(self) -> bool:
        """Take what has changed; whether anything has."""
        changes = await self._engine.wishes(self.wishes.version)
        self.wishes.take(changes)
        return bool(changes)

    def of_manager(self, sessions: Iterable[int]) -> DesiredManager:
        """Asked of any of its sessions so far: a wish must not be forgotten because a new session has begun."""
        wanted = [self.wishes.manager(number) for number in sessions]
        return DesiredManager(
            drain=any(wish.drain for wish in wanted),
            stop=any(wish.stop for wish in wanted),
            now=any(wish.now for wish in wanted),
        )
