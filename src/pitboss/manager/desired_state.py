"""What operators want, as this manager has last read it from the store."""

from collections.abc import Iterable

from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.protocol import Desired
from pitboss.model.desired_state import DesiredManager, DesiredState


class DesiredStateReader:
    """Asks the store only when there may be something new."""

    def __init__(self, engine: Desired) -> None:
        self._engine = engine
        self.state = DesiredState()

    def may_have_changed(self, session: Dispatcher | None) -> bool:
        """Whether reading is worth a call: a wish rings, and every renewal returns the version of the newest wish."""
        if session is None:
            return False
        rung, session.claimer.rung = session.claimer.rung, False
        return rung or session.desired > self.state.version

    async def read(self) -> bool:
        """Read what has changed; whether anything has."""
        changes = await self._engine.wishes(self.state.version)
        self.state.take(changes)
        return bool(changes)

    def of_manager(self, sessions: Iterable[int]) -> DesiredManager:
        """What is wanted from this manager. Wishes for its earlier sessions still count."""
        wanted = [self.state.manager(number) for number in sessions]
        return DesiredManager(
            drain=any(wish.drain for wish in wanted),
            stop=any(wish.stop for wish in wanted),
            now=any(wish.now for wish in wanted),
        )
