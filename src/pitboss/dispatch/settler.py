"""Writes what came of claims, in groups: whatever has gathered while the last group was written."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from pitboss.engines.protocol import Engine
from pitboss.model.canonical import printable
from pitboss.model.errors import StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Transition
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import TaskError, Token

GROUP = 4000
FULL = 12_000
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0

Told = Callable[[SettleAnswer], None]


class _Entry(NamedTuple):
    settlement: Settlement
    told: Told | None


class Settler:
    """A queue in front of `engine.settle`. A store that is away is asked again: repeating is harmless.

    `returned` hears that members of pools may have been given back.
    """

    def __init__(self, engine: Engine, returned: Callable[[], None]) -> None:
        self._engine, self._returned = engine, returned
        self._waiting: dict[tuple[TaskId, int], _Entry] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight: frozenset[tuple[TaskId, int]] = frozenset()

    @property
    def backlog(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def full(self) -> bool:
        """Back-pressure: no new claims while the store does not keep up with the old ones."""
        return self.backlog >= FULL

    def add(self, settlement: Settlement, told: Told | None = None) -> None:
        """Queue a settlement. It replaces an unsent one of the same claim, which can only be a progress report."""
        self._waiting[settlement.id, settlement.token.claim] = _Entry(settlement, told)
        self._idle.clear()
        self._work.set()

    def holds(self, task: TaskId, token: Token) -> bool:
        """Whether a settlement of that claim is on its way."""
        return (task, token.claim) in self._waiting or (task, token.claim) in self._in_flight

    async def run(self) -> None:
        """Write groups until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await self._write(self._next_group())
            if not self._waiting:
                self._idle.set()

    async def flushed(self) -> None:
        """Returns once everything added so far has been written."""
        await self._idle.wait()

    def _next_group(self) -> list[_Entry]:
        keys = list(self._waiting)[:GROUP]
        return [self._waiting.pop(key) for key in keys]

    async def _write(self, group: list[_Entry]) -> None:
        self._in_flight = frozenset((entry.settlement.id, entry.settlement.token.claim) for entry in group)
        try:
            verdicts = await self._settled([entry.settlement for entry in group])
        finally:
            self._in_flight = frozenset()
        if any(_gives_back(entry.settlement) for entry in group):
            self._returned()
        for entry, verdict in zip(group, verdicts, strict=True):
            if entry.told:
                entry.told(verdict)

    async def _settled(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        pause = _PAUSE
        while True:
            try:
                return await self._engine.settle(settlements)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:
                return await self._split(settlements, error)

    async def _split(self, settlements: Sequence[Settlement], error: Exception) -> list[SettleAnswer]:
        """One that cannot be stored must not keep the others from it, nor leave its task running for ever."""
        if len(settlements) > 1:
            middle = len(settlements) // 2
            return [*await self._settled(settlements[:middle]), *await self._settled(settlements[middle:])]
        plain = _unstorable(error)
        if settlements[0].transition.reason == plain.reason:
            return [SettleAnswer(False, f"it could not be stored: {error}")]
        return await self._settled([msgspec.structs.replace(settlements[0], transition=plain)])


def _gives_back(settlement: Settlement) -> bool:
    return settlement.resource is not None and settlement.transition.state is not State.RUNNING


def _unstorable(error: Exception) -> Transition:
    return Transition(
        state=State.FAILED,
        outcome="failed",
        reason="its outcome could not be stored",
        error=TaskError(
            category="store", type=type(error).__name__, message=printable(str(error), 2000), retryable=False
        ),
    )
