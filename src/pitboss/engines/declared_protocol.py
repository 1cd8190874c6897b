"""What apps declare, and what follows from it without a caller: schedules and events."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.declared import Declared
from pitboss.model.duration import Moment
from pitboss.model.event import Event, EventId, NewEvent, Published
from pitboss.model.schedule import DueSchedules, Firing, Schedule, ScheduleChange, ScheduleSpec


@runtime_checkable
class Declarations(Protocol):
    """What the code of each app declares. Declarations of different apps do not touch each other."""

    @open_to_workers
    async def declare(self, declared: Declared, *, session: int | None = None) -> bool:
        """Store what an app declares; False if a newer version of the app is running and nothing was changed.

        `declared.takes_over` has the rule: `seen` are the fingerprints that were declared for this app before, `alive`
        those that a live session declared. The session is noted with the fingerprint in any case. Without a session, it
        is stored only if nothing was declared for this app yet.

        Declarations of the app that are not among these are withdrawn: its subscriptions and event types are replaced;
        its schedules are added, redeclared (`schedule.redeclared`) or withdrawn: no call sees those any more, and they
        come back as they were when an app declares them again; its queues are declared (`queue.declared_queue`), and
        those that it no longer declares are declared None. A new queue is created. If two apps declare one schedule or
        one queue, the one that declared last has it, and only that one withdraws it.
        """

    @open_to_workers
    async def declarations(self) -> list[Declared]:
        """What each app declares now, by its name. Schedules are left out: `schedules` has them."""


@runtime_checkable
class Schedules(Protocol):
    """Schedules, as people and programs use them."""

    @open_to_workers
    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        """Those with these names (unknown ones left out), or all, by name; `after`: only names greater than this."""

    @open_to_workers
    async def put_schedule(self, spec: ScheduleSpec, *, by: str | None = None) -> Schedule:
        """Add a schedule at run time, or define one anew that was added so. `InvalidInput` if code declares it. The
        spec has passed `checked_spec`."""

    @open_to_workers
    async def change_schedule(self, name: str, change: ScheduleChange | None) -> Schedule | None:
        """Do what an operator wants (`schedule.changed`); None removes a schedule that was added at run time, and
        raises `InvalidInput` if code declares it. Returns the schedule after that (before it was removed), None if
        there is no such schedule."""


@runtime_checkable
class Events(Protocol):
    """Publishing, and the log of events."""

    @open_to_workers
    async def publish(self, events: Sequence[NewEvent]) -> list[Published]:
        """Store events, and put one task for each subscription that fits (`event.Subscribers.tasks`), all in one act.
        The tasks are put as follow-ups are: they may overfill a queue, and the queues are rung. An event whose id is
        stored changes nothing; two events of one call may have the same id."""

    @open_to_workers
    async def events(
        self,
        ids: Sequence[EventId] | None = None,
        *,
        name: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Event]:
        """Those with these ids (unknown ones left out), or the newest, newest first, with this name if one is given;
        `before`: only events with a smaller id."""


@runtime_checkable
class LeaderActs(Protocol):
    """What only the leader does with schedules and events."""

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        """Schedules that are not paused and whose tick has come by the wall clock, at most `limit`. The cost does not
        depend on how many are not due."""

    async def fire(self, firings: Sequence[Firing], *, term: int) -> list[bool]:
        """For each schedule that is still at the firing's version and not paused: put the tasks, as follow-ups are put,
        and write `schedule.fired`, all in one act. False for the others, for which nothing is written. Only the leader
        of that term may do it: any other call raises `NotLeader` and writes nothing."""

    async def prune_events(self, before: Moment, *, limit: int = 1000, term: int | None = None) -> int:
        """Forget events that were published before this moment, at most `limit`; returns how many. With a term, only
        the leader of that term may do it."""


async def every_schedule(store: Schedules) -> list[Schedule]:
    """All of them, read page by page."""
    found = list[Schedule]()
    while page := await store.schedules(after=found[-1].name if found else None):
        found += page
    return found
