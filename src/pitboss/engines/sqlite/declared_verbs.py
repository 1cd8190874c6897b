"""The protocols `Declarations`, `Schedules`, `Events` and `LeaderActs`, each verb as one request to the store."""

import sqlite3
from collections.abc import Sequence

from pitboss.engines.sqlite import declared as declaring
from pitboss.engines.sqlite import events as publishing
from pitboss.engines.sqlite import schedules as scheduling
from pitboss.engines.sqlite.calls import Calls
from pitboss.model.declared import Declared
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published
from pitboss.model.schedule import DueSchedules, Firing, Schedule, ScheduleChange, ScheduleSpec


class DeclaredVerbs(Calls):
    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        return await self._write("declare", lambda act: declaring.declare(act, declared, session, self.clock.wall()))

    async def declarations(self) -> list[Declared]:
        return await self._read(declaring.declarations)

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        return await self._read(lambda reader: scheduling.listed(reader, names, limit, after))

    async def put_schedule(self, spec: ScheduleSpec, *, by: str | None = None) -> Schedule:
        return await self._operate("put_schedule", lambda act: scheduling.put_schedule(act, spec, self.clock.wall()))

    async def change_schedule(self, name: str, change: ScheduleChange | None) -> Schedule | None:
        return await self._operate(
            "change_schedule", lambda act: scheduling.change(act, name, change, self.clock.wall())
        )

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await self._read(lambda reader: scheduling.due(reader, limit, self.clock.wall()))

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        return await self._write("fire", lambda act: scheduling.fire(act, firings, term), len(firings))

    async def publish(self, events: Sequence[NewEvent]) -> list[Published]:
        return await self._write("publish", lambda act: publishing.publish(act, events), len(events))

    def publish_within(self, connection: sqlite3.Connection, events: Sequence[NewEvent]) -> list[Published]:
        """As `publish`, inside the transaction that is open on the caller's connection. Rings nothing, as
        `put_within`."""
        return self._within(connection, lambda act: publishing.publish(act, events))

    async def events(
        self,
        ids: Sequence[EventId] | None = None,
        *,
        name: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Event]:
        return await self._read(lambda reader: publishing.listed(reader, ids, name, limit, before))

    async def prune_events(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        return await self._write("prune_events", lambda act: publishing.prune(act, before, limit, term), limit)
