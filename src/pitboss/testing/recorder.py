"""How one process of a history asks a store, and what is written down of it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from pitboss.engines.protocol import Clock
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, NotFound, NotLeader, QueueFull, SessionLost, StaleLease
from pitboss.testing.failpoints import Killed
from pitboss.testing.history import Act, History
from pitboss.testing.store import CoreStore, Store

T = TypeVar("T")
Question = TypeVar("Question")
SURELY_NOT = (InvalidInput, NotFound, NotLeader, QueueFull, SessionLost, StaleLease)


class Recorder:
    """One process on one engine. Once a call ended in `Killed`, it is dead."""

    def __init__(self, engine: CoreStore, history: History, process: str = "p1", *, clock: Clock | None = None) -> None:
        self.engine, self.history, self.process = engine, history, process
        self._clock = clock
        self.dead = False
        self.name = engine.name

    @property
    def whole(self) -> Store:
        """The engine for who asks for what not every engine has; one that lacks it fails there."""
        return cast("Store", self.engine)

    async def _call(
        self, act: Act, verb: Callable[[Question], Awaitable[T]], question: Question, answered: Callable[[T], Act]
    ) -> T:
        self._check_alive()
        call = self.history.begin(self.process, act, self._now())
        try:
            answer = await verb(question)
        except SURELY_NOT as error:
            self.history.end(self.process, call, "fail", act, self._now(), type(error).__name__)
            raise
        except BaseException as error:
            self.dead = self.dead or isinstance(error, Killed)
            self.history.end(self.process, call, "info", act, self._now(), type(error).__name__)
            raise
        self.history.end(self.process, call, "ok", answered(answer), self._now())
        return answer

    def _now(self) -> Moment | None:
        return None if self._clock is None else self._clock.now()

    def _check_alive(self) -> None:
        if self.dead:
            raise Killed
