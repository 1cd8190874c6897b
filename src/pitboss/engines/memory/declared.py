"""Declarations of apps, schedules and events."""

from bisect import bisect_right
from collections.abc import Sequence

from msgspec.structs import replace

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.declared import Declared, takes_over
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published, Subscribers, published
from pitboss.model.queue import declared_queue
from pitboss.model.schedule import (
    DueSchedules,
    Firing,
    Schedule,
    ScheduleChange,
    ScheduleSpec,
    added,
    changed,
    fired,
    present,
    redeclared,
    refuse_declared,
    withdrawn,
)
from pitboss.model.usage import check_taking


class DeclaredVerbs(Verbs):
    """The protocols `Declarations`, `Schedules` and `Events`."""

    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        self._reach("declare.before")
        now, app = self.clock.now(), declared.app
        declarers = self.tables.declarers.setdefault(app, {})
        present = self.tables.declared.get(app)
        alive = {mark for number, mark in declarers.items() if self._alive(number, now)}
        seen = self.tables.fingerprints.setdefault(app, set())
        known = None if present is None else present.fingerprint
        if session is not None:
            declarers[session] = declared.fingerprint
        if (session is None and present is not None) or not takes_over(declared.fingerprint, known, seen, alive):
            return declared.fingerprint == known
        seen.add(declared.fingerprint)
        self._declare_queues(present, declared)
        self._declare_schedules(declared, now)
        self.tables.declared[app] = declared
        self._reach("declare.after")
        return True

    async def declarations(self) -> list[Declared]:
        return [replace(self.tables.declared[app], schedules=()) for app in sorted(self.tables.declared)]

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        shown = {name for name, one in self.tables.schedules.items() if present(one)}
        wanted = sorted(shown if names is None else set(names) & shown)
        return [self.tables.schedules[name] for name in wanted if after is None or name > after][:limit]

    async def put_schedule(self, spec: ScheduleSpec, *, by: str | None = None) -> Schedule:
        now, wall = self.clock.now(), self.clock.wall()
        known = present(self.tables.schedules.get(spec.name))
        refuse_declared(known)
        schedule = added(spec, None, wall, now) if known is None else redeclared(known, spec, None, wall, now)
        self.tables.schedules[spec.name] = schedule
        self.audit()
        return schedule

    async def change_schedule(self, name: str, change: ScheduleChange | None) -> Schedule | None:
        schedule = present(self.tables.schedules.get(name))
        if schedule is not None and change is None:
            refuse_declared(schedule)
            del self.tables.schedules[name]
        elif schedule is not None and change is not None:
            schedule = changed(schedule, change, self.clock.wall(), self.clock.now())
            self.tables.schedules[name] = schedule
        self.audit()
        return schedule

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        wall = self.clock.wall()
        timed = sorted(
            (
                (one.next_at, name)
                for name, one in self.tables.schedules.items()
                if one.next_at is not None and not one.paused
            )
        )
        due = min(bisect_right(timed, (wall, "\U0010ffff")), limit)
        following = timed[due][0] if due < len(timed) else None
        return DueSchedules([self.tables.schedules[name] for _, name in timed[:due]], following)

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        self._reach("fire.before")
        now = self.look()
        self.check_term(term, now)
        answers = [self._fire(one, now) for one in firings]
        self._reach("fire.after")
        return answers

    async def publish(self, events: Sequence[NewEvent]) -> list[Published]:
        self._reach("publish.before")
        now = self.look()
        check_taking(self.tables.refusing)
        subscribers = Subscribers(one for app in self.tables.declared.values() for one in app.subscriptions)
        answers = [self._publish(event, subscribers, now) for event in events]
        self._reach("publish.after")
        return answers

    async def events(
        self,
        ids: Sequence[EventId] | None = None,
        *,
        name: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Event]:
        stored = self.tables.events
        if ids is not None:
            return [stored[one] for one in ids if one in stored]
        newest = (stored[one] for one in sorted(stored, reverse=True) if before is None or one < before)
        return [event for event in newest if name is None or event.name == name][:limit]

    async def prune_events(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        if term is not None:
            self.check_term(term, self.clock.now())
        old = [event for event in self.tables.events.values() if event.published_at < before][:limit]
        for event in old:
            del self.tables.events[event.id]
        return len(old)

    def _declare_queues(self, present: Declared | None, declared: Declared) -> None:
        owners = self.tables.queue_apps
        gone = [name for name in (present.queues if present else ()) if owners.get(name) == declared.app]
        for name in dict.fromkeys([*gone, *declared.queues]):
            settings = declared.queues.get(name)
            self.tables.queues[name] = declared_queue(self.tables.queue(name), settings)
            self.ring([name])
            if settings is None:
                owners.pop(name, None)
            else:
                owners[name] = declared.app

    def _declare_schedules(self, declared: Declared, now: Moment) -> None:
        schedules, wall = self.tables.schedules, self.clock.wall()
        kept = {spec.name for spec in declared.schedules}
        for name, one in schedules.items():
            if one.app == declared.app and name not in kept and present(one):
                schedules[name] = withdrawn(one, now)
        for spec in declared.schedules:
            known = schedules.get(spec.name)
            new = (
                added(spec, declared.app, wall, now)
                if known is None
                else redeclared(known, spec, declared.app, wall, now)
            )
            schedules[spec.name] = new

    def _fire(self, firing: Firing, now: Moment) -> bool:
        schedule = self.tables.schedules.get(firing.name)
        if schedule is None or schedule.version != firing.version or schedule.paused:
            return False
        placed = [self.tables.place(task, now) for task in firing.tasks]
        self.tables.schedules[firing.name] = fired(firing, placed, now)
        return True

    def _publish(self, event: NewEvent, subscribers: Subscribers, now: Moment) -> Published:
        known = self.tables.events.get(event.id)
        if known is not None:
            return Published(event.id, False, known.handlers)
        tasks = subscribers.tasks(event)
        for task in tasks:
            self.tables.place(task, now)
        stored = self.tables.events[event.id] = published(event, now, (task.handler for task in tasks))
        return Published(event.id, True, stored.handlers)
