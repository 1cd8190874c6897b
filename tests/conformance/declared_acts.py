"""What apps declare, schedules, events and routes of failures, on several engines at once."""

from typing import Any

from pitboss.model.declared import Declared
from pitboss.model.event import EventType, NewEvent, Subscription
from pitboss.model.filter import parsed
from pitboss.model.limits import Window, rate
from pitboss.model.operation import NewOperation, OperationChange, Verb
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.schedule import (
    Catchup,
    DueSchedules,
    Firing,
    Overlap,
    ScheduleChange,
    ScheduleSpec,
    firing,
)
from pitboss.model.states import State
from pitboss.model.task import NewTask
from tests.conformance.acts import SECOND
from tests.conformance.scarce_acts import ScarceActs

APPS = ("one", "two")
EVENTS = ("x", "x.y", "z.y")
EVENT_KEYS = (None, "e1", "e2")
_SPECS = (
    ScheduleSpec(name="s1", handler="a", every=5 * SECOND),
    ScheduleSpec(name="s1", handler="a", every=2 * SECOND, queue="q2", overlap=Overlap.QUEUE),
    ScheduleSpec(name="s2", handler="b", every=SECOND, overlap=Overlap.ALLOW, catchup=Catchup.ALL),
    ScheduleSpec(name="s3", handler="c", cron="*/2 * * * *", catchup=Catchup.NONE, jitter=3 * SECOND),
)
_WANTS = (
    Subscription(handler="a", pattern="x", queue="q1"),
    Subscription(handler="b", pattern="x.*", queue="q2", priority=-1, ordered=True),
    Subscription(handler="c", pattern="**", queue="q3", parameter="data"),
)
_QUEUES: tuple[dict[str, QueueSettings], ...] = (
    {"q1": QueueSettings(capacity=4)},
    {"q1": QueueSettings(rate=rate("3/5s")), "q2": QueueSettings(capacity=2, retention={State.FAILED: SECOND})},
    {},
)
DECLARED = [
    Declared(
        app=app,
        queues=_QUEUES[number % 3],
        schedules=_SPECS[number % 2 : number % 3 + 1 : 2],
        subscriptions=_WANTS[: number % 4],
        events=(EventType("x", "{}"),) * (number % 2),
    )
    for app in APPS
    for number in range(6)
]
SCHEDULE_CHANGES = [
    None,
    ScheduleChange(paused=True, by="ann"),
    ScheduleChange(paused=False),
    ScheduleChange(changes={"every": 7 * SECOND}, by="ann"),
    ScheduleChange(changes={"cron": "99 * * * *"}),
    ScheduleChange(changes={}),
]
ROUTES = [
    [HandlerInfo(name="a", about='{"fallback":"b"}')],
    [HandlerInfo(name="a")],
    [HandlerInfo(name="b", about='{"fallback":"c"}'), HandlerInfo(name="c", about='{"dead_letters":["q1"]}')],
    [HandlerInfo(name="c")],
]

# Of operations: the rate, after how many failures they stop, and whether attempts are kept.
Pace = tuple[tuple[Window, ...], int | None, bool]
PACES: list[Pace] = [((), None, False), ((), None, True), (rate("3/s"), 2, False), (rate("1/s"), None, True)]


class DeclaredActs(ScarceActs):
    def declare_app(self, which: int, who: int | None) -> None:
        declared = DECLARED[which % len(DECLARED)]
        session = None if who is None else self._session(who)
        self.arena.act(lambda store: store.declare(declared, session=session))

    def route(self, which: int) -> None:
        handlers = ROUTES[which % len(ROUTES)]
        self.arena.act(lambda store: store.register(handlers))

    def publish(self, chosen: list[tuple[str, str | None]], again: int | None) -> None:
        events = [NewEvent(id=self.ids(), name=name, key=key, data='{"n":1}') for name, key in chosen]
        if again is not None and self.events:
            events.append(self.events[again % len(self.events)])
        self.arena.act(lambda store: store.publish(events))
        self.events += events

    def schedule(self, act: str, which: int) -> None:
        match act:
            case "put":
                spec = _SPECS[which % len(_SPECS)]
                self.arena.act(lambda store: store.put_schedule(spec, by="ann"))
            case "change":
                name, change = f"s{which % 3 + 1}", SCHEDULE_CHANGES[which % len(SCHEDULE_CHANGES)]
                self.arena.act(lambda store: store.change_schedule(name, change))
            case "fire":
                self._fire(which)
            case _:
                before = self.arena.clock.now() - 30 * SECOND
                self.arena.act(lambda store: store.prune_events(before))

    def alert(self, act: str, which: int) -> None:
        match act:
            case "note":
                version, term, notes = max(0, self.noted - which % 4 // 3), self.term, f'{{"n":{which}}}'
                tasks = [self._new_alert() for _ in range(which % 3)]
                if self.arena.act(lambda store: store.note_alerts(notes, tasks, version=version, term=term)) is True:
                    self.noted += 1
            case "silence":
                lasts = (which % 20 + 1) * SECOND
                self.arena.act(lambda store: store.silence_alert(f"r{which % 3}", lasts, by="ann", reason="why"))
            case _:
                self.arena.act(lambda store: store.silence_alert(f"r{which % 3}", None))

    def _new_alert(self) -> NewTask:
        return NewTask(id=self.ids(), handler="a", queue="q1", params="{}")

    def _fire(self, which: int) -> None:
        """As the leader does; sometimes with a firing that was made before."""
        due = self.arena.act(lambda store: store.due_schedules())
        assert isinstance(due, DueSchedules)
        ids = [task for schedule in due.schedules for _, task in schedule.open]
        tasks: Any = self.arena.act(lambda store: store.get(ids))
        states = {one: None if task is None else task.state for one, task in zip(ids, tasks, strict=True)}
        wall = self.arena.clock.wall()
        made = [firing(one, None, wall, states) for one in due.schedules]
        firings = [one for one in made if one is not None]
        if which % 4 == 0:
            firings += self.firings[-2:]
        self.firings += firings
        term = self.term
        self.arena.act(lambda store: store.fire(firings, term=term))

    def act_in_portions(self, act: str, which: int, options: tuple[Verb, str, Pace], limit: int) -> None:
        """Operations, sometimes advanced from a cursor that is stale."""
        verb, wanted, (windows, most, keep) = options
        if act == "begin" or not self.operations:
            new = NewOperation(
                id=self.ids(),
                verb=verb,
                wanted=parsed(wanted),
                rate=windows,
                stop_on_failures=most,
                keep_attempts=keep,
                reason="why",
            )
            self.arena.act(lambda store: store.begin_operation(new))
            self.operations.append((new.id, ""))
            return
        place = which % min(3, len(self.operations))
        name, cursor = self.operations[-1 - place]
        if act == "advance":
            after = self.arena.act(lambda store: store.advance_operation(name, cursor, limit=limit), revived=True)
            if after is not None and which % 5:
                self.operations[-1 - place] = (name, after.cursor)
        elif act == "change":
            change = OperationChange(cancel=which % 3 == 0, by="ann", rate=windows)
            self.arena.act(lambda store: store.change_operation(name, change))
        else:
            before, term = self.arena.clock.now() - 10 * SECOND, self.term if which % 2 else None
            self.arena.act(lambda store: store.forget_operations(before, term=term))

    def begin(self) -> None:
        self.operations: list[tuple[str, str]] = []
        self.events: list[NewEvent] = []
        self.firings: list[Firing] = []
        self.noted = 0
        super().begin()
