"""Schedules as people look at them: when in words, their next ticks, how their last run ended; and one run at once."""

import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from pitboss.client.schedules import ScheduleClient, next_ticks, schedule_spec
from pitboss.engines.declared_protocol import Schedules
from pitboss.engines.protocol import Store
from pitboss.model.cron import spoken as spoken_cron
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.ids import TaskId
from pitboss.model.schedule import Schedule, ScheduleSpec, added, past_ticks, tick_id
from pitboss.model.schedule_findings import ScheduleFigures
from pitboss.model.states import State
from pitboss.model.task import Placed, Task
from pitboss.operate.audit import record

# The leading manager fires within a second; another one leads within this time.
OVERDUE: Span = 30 * SECOND
_PAGE = 1000
_FIRST = 3


class ScheduleReading(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its times in words. `last_state` is that of the task of its last tick; None: there was none yet,
    or the task was deleted."""

    schedule: Schedule
    when: str
    last_state: State | None = None
    overdue: bool = False

    @property
    def status(self) -> str:
        """paused, done (it has no more ticks), overdue or active."""
        if self.schedule.paused:
            return "paused"
        if self.schedule.next_at is None:
            return "done"
        return "overdue" if self.overdue else "active"


class Tick(NamedTuple):
    """One tick, by the wall clock."""

    at: Moment
    schedule: str


async def list_schedules(store: Store) -> list[ScheduleReading]:
    """All of them, by name."""
    return await _readings(store, [one async for page in _pages(store) for one in page])


async def read_schedules(store: Store, *, limit: int, after: str | None = None) -> list[ScheduleReading]:
    """A page of them, by name; `after`: only names greater than this."""
    return await _readings(store, await _client(store).find(limit=limit, after=after))


async def read_named_schedules(store: Store, names: Sequence[str]) -> list[ScheduleReading]:
    """Those with these names that there are, in this order."""
    if not names or not isinstance(store, Schedules):
        return []
    found = {one.name: one for one in await store.schedules(names)}
    return await _readings(store, [found[name] for name in names if name in found])


async def read_schedule(store: Store, name: str) -> ScheduleReading:
    """The schedule of this name."""
    (found,) = await _readings(store, [await _client(store).get(name)])
    return found


async def run_schedule(store: Store, name: str, make_id: Callable[[], TaskId]) -> Placed:
    """Put its task now. The entry of an audited store is written first, and only if there is such a schedule."""
    client = ScheduleClient(store, make_id)
    await client.get(name)
    await record(store)
    return await client.run(name)


async def schedule_figures(store: object, wall: Moment) -> ScheduleFigures | None:
    """How many there are, and which are overdue; None if the store has no schedules."""
    if not isinstance(store, Schedules):
        return None
    found, after = list[Schedule](), None
    while page := await store.schedules(limit=_PAGE, after=after):
        found += page
        after = page[-1].name
        if len(page) < _PAGE:
            break
    waiting = [(one.next_at, one.name) for one in found if one.next_at is not None and not one.paused]
    late = sorted((at, name) for at, name in waiting if is_late(at, wall))
    following = min((one for one in waiting if not is_late(one[0], wall)), default=None)
    return ScheduleFigures(
        total=len(found),
        paused=sum(one.paused for one in found),
        next_at=None if following is None else following[0],
        next_name=None if following is None else following[1],
        overdue=tuple(name for _, name in late),
        late_by=wall - late[0][0] if late else 0,
        first=tuple(name for _, name in heapq.nsmallest(_FIRST, waiting)),
    )


def is_late(tick: Moment, wall: Moment) -> bool:
    return tick < wall - OVERDUE


def trial(cron: str | None, every: object, at: object, tz: str | None, wall: Moment) -> Schedule:
    """A schedule that is not stored, to look at its ticks."""
    spec = schedule_spec("trial", "trial", cron=cron, every=every, at=at, tz=tz)
    return added(spec, None, wall, wall)


def coming_ticks(schedules: Sequence[Schedule], number: int) -> list[Tick]:
    """The next ticks of all of them that are not paused, the earliest first. Of one alone also if it is paused."""
    shown = [one for one in schedules if not one.paused or len(schedules) == 1]
    return list(islice(heapq.merge(*(_ticks(one, number) for one in shown)), number))


async def last_runs(store: Store, schedule: Schedule, number: int) -> list[tuple[Moment, Task]]:
    """The tasks of its last ticks, the newest first: those that were put and are kept still. Runs at once are not among
    them, since their ids do not follow from a tick."""
    ticks = past_ticks(schedule, number)
    tasks = await store.get([tick_id(schedule.name, tick) for tick in ticks]) if ticks else []
    return [(tick, task) for tick, task in zip(ticks, tasks, strict=True) if task is not None]


def spoken_when(spec: ScheduleSpec) -> str:
    """When it ticks, in words."""
    if spec.cron is not None:
        return spoken_cron(spec.cron, spec.tz)
    if spec.every is not None:
        return f"every {spoken(spec.every)}"
    moment = datetime.fromtimestamp((spec.at or 0) / SECOND, UTC).astimezone(ZoneInfo(spec.tz))
    return f"once, on {moment:%Y-%m-%d} at {moment:%H:%M:%S} ({spec.tz})"


def _ticks(schedule: Schedule, number: int) -> Iterator[Tick]:
    return (Tick(at, schedule.name) for at in next_ticks(schedule, number))


async def _readings(store: Store, schedules: Sequence[Schedule]) -> list[ScheduleReading]:
    wall = store.clock.wall()
    states = await _states(store, (one.last_task for one in schedules))
    return [
        ScheduleReading(
            schedule=one,
            when=spoken_when(one.spec),
            last_state=states.get(one.last_task or ""),
            overdue=not one.paused and one.next_at is not None and is_late(one.next_at, wall),
        )
        for one in schedules
    ]


async def _states(store: Store, tasks: Iterable[TaskId | None]) -> dict[TaskId, State]:
    ids = [task for task in tasks if task is not None]
    found = await store.get(ids) if ids else []
    return {task.id: task.state for task in found if task is not None}


async def _pages(store: Store) -> AsyncIterator[list[Schedule]]:
    client, after = _client(store), None
    while page := await client.find(limit=_PAGE, after=after):
        yield page
        if len(page) < _PAGE:
            return
        after = page[-1].name


def _client(store: Store) -> ScheduleClient:
    """Only for reading: it makes no tasks."""
    return ScheduleClient(store, str)
