"""Fires schedules: puts the tasks of ticks that have come."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from pitboss.engines.declared_protocol import LeaderActs
from pitboss.engines.protocol import Clock, Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import PitbossError
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import Firing, Schedule, firing
from pitboss.model.states import State
from pitboss.upkeep.duties import Pause

# A schedule that was added meanwhile, and a wall clock that was set, are noticed within this time.
LOOK_SECONDS = 1.0
AT_ONCE = 1000
_READ_AT_ONCE = 1000
_SHORTEST = 0.005
_HANDLERS_KEPT: Span = 5 * SECOND


class Firer:
    """The duty. `warn` gets one sentence for each schedule that cannot be followed; the others fire."""

    def __init__(self, store: Store, acts: LeaderActs, clock: Clock, *, warn: Callable[[str], None]) -> None:
        self._store, self._acts, self._clock, self._warn = store, acts, clock, warn
        self._handlers: dict[str, HandlerInfo] = {}
        self._read_at: Moment | None = None
        # By name: the version that cannot be followed. A change of the schedule is a new chance.
        self._broken: dict[str, int] = {}

    async def fire(self, term: int) -> Pause:
        """Fire all that is due, under this term; returns the time until the next tick."""
        while True:
            # Broken ones stay due: they must not take the place of others.
            due = await self._acts.due_schedules(AT_ONCE + len(self._broken))
            firings = await self._firings(due.schedules)
            if not firings or not any(await self._put(firings[:AT_ONCE], term)):
                return self._pause(due.next_at, changed=bool(firings))

    async def _put(self, firings: Sequence[Firing], term: int) -> list[bool]:
        """All in one act; if the store cannot take one of them, each in its own."""
        try:
            return await self._acts.fire(firings, term=term)
        except PitbossError:
            raise
        except Exception as error:
            if len(firings) == 1:
                self._skip(firings[0].name, firings[0].version, error)
                return [False]
            return [done for one in firings for done in await self._put([one], term)]

    def _skip(self, name: str, version: int, error: Exception) -> None:
        self._broken[name] = version
        why = str(error).replace("\n", "; ")
        self._warn(f'the schedule "{name}" is skipped ({type(error).__name__}: {why})')

    def _pause(self, next_at: Moment | None, *, changed: bool) -> Pause:
        """`changed`: schedules were changed while this round fired them, so look again soon."""
        if changed:
            return Pause(_SHORTEST)
        ahead = SECOND if next_at is None else next_at - self._clock.wall()
        return Pause(max(_SHORTEST, ahead / SECOND))

    async def _firings(self, due: Sequence[Schedule]) -> list[Firing]:
        wanted = [one for one in due if self._broken.get(one.name) != one.version]
        handlers = await self._known({one.declared.handler for one in wanted})
        ended = await self._states(task for one in wanted for _, task in one.open)
        made: list[Firing] = []
        for schedule in wanted:
            one = self._made(schedule, handlers, ended)
            made += [] if one is None else [one]
            # After a long standstill each takes some milliseconds: let the manager work in between.
            await asyncio.sleep(0)
        return made

    def _made(
        self, schedule: Schedule, handlers: Mapping[str, HandlerInfo], ended: Mapping[TaskId, State | None]
    ) -> Firing | None:
        # It is due by the store's clock, whatever this process takes that to be.
        wall = max(self._clock.wall(), schedule.next_at or 0)
        try:
            return firing(schedule, handlers.get(schedule.spec.handler), wall, ended)
        except Exception as error:
            self._skip(schedule.name, schedule.version, error)
            return None

    async def _known(self, names: set[str]) -> Mapping[str, HandlerInfo]:
        """The registry, read every few seconds, and if it lacks one: an app registers just before it declares."""
        now = self._clock.now()
        if not names:
            return self._handlers
        fresh = self._read_at is not None and 0 <= now - self._read_at < _HANDLERS_KEPT
        if not fresh or not names <= self._handlers.keys():
            self._handlers = {one.name: one for one in await self._store.handlers()}
            self._read_at = now
        return self._handlers

    async def _states(self, tasks: Iterable[TaskId]) -> dict[TaskId, State | None]:
        ids, states = list(tasks), dict[TaskId, State | None]()
        for start in range(0, len(ids), _READ_AT_ONCE):
            some = ids[start : start + _READ_AT_ONCE]
            found = await self._store.get(some)
            states.update((one, None if task is None else task.state) for one, task in zip(some, found, strict=True))
        return states
