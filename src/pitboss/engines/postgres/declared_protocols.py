"""The protocols `Declarations`, `Schedules` and `Events`."""

from collections.abc import Sequence

from psycopg.errors import UniqueViolation

from pitboss.engines.postgres import declared as declaring
from pitboss.engines.postgres import events as publishing
from pitboss.engines.postgres import schedules as scheduling
from pitboss.engines.postgres.doorbell import Doorbell
from pitboss.engines.postgres.resources_and_batches import ResourcesAndBatches
from pitboss.engines.postgres.rows import names as array
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Script
from pitboss.model.declared import Declared
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published
from pitboss.model.schedule import DueSchedules, Firing, Schedule, ScheduleChange, ScheduleSpec
from pitboss.model.states import State


class DeclaredProtocols(ResourcesAndBatches):
    """What apps declare, and what follows from it without a caller."""

    _doorbell: Doorbell

    def _wall(self) -> Moment | None:
        """The injected clock's wall time; None leaves it to the server."""
        return self._clock.injected_wall()

    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        return await self._transact(
            "declare", self._reading, lambda now: declaring.declare(self._sql, declared, session, now, self._wall())
        )

    async def declarations(self) -> list[Declared]:
        return declaring.declarations(await self._read("app_list"))

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        page = {"limit": limit, "after": after or ""}
        if names is None:
            rows = await self._read("schedule_list", **page)
        else:
            rows = await self._read("schedule_get", names=array(names), **page)
        return [scheduling.decoded(body) for (body,) in rows]

    async def put_schedule(self, spec: ScheduleSpec, *, by: str | None = None) -> Schedule:
        return await self._act(lambda now: scheduling.add(self._sql, spec, now, self._wall()))

    async def change_schedule(self, name: str, change: ScheduleChange | None) -> Schedule | None:
        return await self._act(lambda now: scheduling.change(self._sql, name, change, now, self._wall()))

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        wall = self._wall()
        return await self._writing.call(lambda: scheduling.due(self._sql, limit, wall))

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        def script(now: Moment | None, *, quickly: bool) -> Script[list[bool]]:
            return scheduling.fire(self._sql, firings, term, now, ring=True, quickly=quickly)

        try:
            return await self._transact("fire", self._writing, lambda now: script(now, quickly=True))
        except UniqueViolation:
            # Another call has just put one of the tasks: this way meets it.
            return await self._transact("fire", self._writing, lambda now: script(now, quickly=False))

    async def publish(self, events: Sequence[NewEvent]) -> list[Published]:
        self._reach("publish.before")
        if not events:
            return []
        ring = self._doorbell.may_ring_now()
        try:
            published = await self._publish(events, ring=ring, quickly=True)
        except UniqueViolation:
            # Another call has just put one of the tasks: this way meets it.
            published = await self._publish(events, ring=ring, quickly=False)
        if not ring:
            ready = zip(published.queues, published.placed, strict=True)
            self._doorbell.ring_soon({queue for queue, one in ready if one.created and one.state is State.PENDING})
        self._reach("publish.after")
        return published.answers

    async def _publish(self, events: Sequence[NewEvent], *, ring: bool, quickly: bool) -> publishing.Publication:
        now = self._now()
        return await self._writing.call(
            lambda: publishing.publish(self._sql, events, now, ring=ring, quickly=quickly),
            transaction=True,
            before_commit=lambda: self._reach("publish.commit"),
        )

    async def events(
        self,
        ids: Sequence[EventId] | None = None,
        *,
        name: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Event]:
        if ids is not None:
            found = {row[0]: publishing.event_of(row) for row in await self._read("event_get", ids=texts(list(ids)))}
            return [found[one] for one in ids if one in found]
        page = {"limit": limit, "before": before}
        if name is None:
            rows = await self._read("event_list", **page)
        else:
            rows = await self._read("event_list_named", name=name, **page)
        return [publishing.event_of(row) for row in rows]

    async def prune_events(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        now = self._now()
        return await self._writing.call(
            lambda: publishing.prune(self._sql, before, limit, now, term), transaction=term is not None
        )
