"""Declarations, events, schedules and every way to fail: how they are done, repeated, and looked at.

Everything follows from a number, so that a process that got no answer, or died, can be repeated by another one.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from pitboss.engines.protocol import FullStore
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.failure import failed_for_good
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import make_id
from pitboss.model.meta import read_meta
from pitboss.model.outcome import Crashed, Failed, Outcome, TimedOut, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.schedule import Overlap, Schedule, ScheduleSpec, firing
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import FAILURES, State
from pitboss.model.task import Claim, NewTask, Task, TaskError, Token

APP, JOB, INSTEAD, BURY, TICK, LISTEN, TIDY = "shop", "job", "instead", "bury", "tick", "listen", "tidy"
EVENTS = 3
ONCE = Policy(max_attempts=1)
SLOW = Policy(max_attempts=9, backoff=Backoff(base=3600 * SECOND, jitter=0.0))
BROKEN = TaskError(category="net", message="connection reset")
FINAL = replace(BROKEN, retryable=False)
ENDS: dict[str, tuple[Outcome, Policy]] = {
    "last attempt": (Failed(BROKEN), ONCE),
    "not retryable": (Failed(FINAL), SLOW),
    "timed out": (TimedOut(BROKEN), ONCE),
    "expires before its next attempt": (Failed(BROKEN), SLOW),
    "crashed too often": (Crashed(alone=True), SLOW),
    "result cannot be stored": (Failed(replace(FINAL, category="result")), SLOW),
}
Pause = Callable[[float], Awaitable[object]]
_ALL = 100_000
_MILLIS = 1_790_000_000_000
# The time of the schedules, in 2100: whenever these tests run, it is not over.
_COMES = 4_102_444_800 * SECOND
_REMOTE_CLAIM = 1000
_TURNS = 200


async def prepare(store: FullStore) -> None:
    await store.register(
        [
            HandlerInfo(name=JOB, about=f'{{"fallback":"{INSTEAD}"}}'),
            HandlerInfo(name=INSTEAD, queue="other"),
            HandlerInfo(name=BURY, queue="graves", about='{"dead_letters":["*"],"parameter":"dead"}'),
            *(HandlerInfo(name=name, queue="after") for name in (TICK, LISTEN, TIDY)),
        ]
    )


def jobs(number: int, ways: Iterable[str] = FAILURES) -> dict[str, NewTask]:
    """A task for each way to fail, in a queue of its own. Those that fail by settling stand in one line."""
    lives = {"expired": 1, "expires before its next attempt": 60 * SECOND}
    return {
        way: NewTask(
            id=make_id(_MILLIS + number, place, 0),
            handler=JOB,
            queue=f"way-{place}",
            expires_in=lives.get(way),
            order_key=f"line-{place % 2}" if way in ENDS else None,
        )
        for place, way in enumerate(ways)
    }


def events(number: int) -> list[NewEvent]:
    ids = [make_id(_MILLIS + number, 100 + place, 0) for place in range(EVENTS)]
    return [NewEvent(id=one, name=f"e{number}.x", key="k" if place else None) for place, one in enumerate(ids)]


def declared(number: int) -> Declared:
    pattern, queue = f"e{number}.*", QueueSettings(capacity=1000 + number)
    return Declared(
        app=APP,
        queues={"after": queue},
        schedules=(
            ScheduleSpec(name=f"once-{number}", handler=TICK, at=_COMES),
            ScheduleSpec(name=f"queued-{number}", handler=TICK, at=_COMES, overlap=Overlap.QUEUE),
        ),
        subscriptions=(
            Subscription(handler=LISTEN, pattern=pattern, queue="after", ordered=True),
            Subscription(handler=TIDY, pattern=pattern, queue="after"),
        ),
    )


async def open_session(store: FullStore, host: str) -> int:
    handlers = (JOB, INSTEAD, BURY, TICK, LISTEN, TIDY)
    return (await store.open_session(SessionInfo(host=host, handlers=handlers, ttl=600 * SECOND))).number


async def work(
    store: FullStore,
    number: int,
    host: str = "one",
    ways: Iterable[str] = FAILURES,
    pause: Pause = asyncio.sleep,
) -> None:
    """All of it, to the end; what was done before is met. Calls are repeated, as after a lost answer."""
    session = await open_session(store, host)
    for _ in range(2):
        await store.declare(declared(number), session=session)
        await store.publish(events(number))
    await fire(store, session)
    wanted = jobs(number, ways)
    await store.put(list(wanted.values()))
    for way, job in wanted.items():
        await fail(store, session, way, job, pause)
    await store.end_session(session)


async def fire(store: FullStore, session: int) -> None:
    term = (await store.campaign(session)).term
    made = [firing(one, None, one.next_at or 0, {}) for one in await store.schedules()]
    firings = [one for one in made if one is not None]
    await store.fire(firings, term=term)
    assert not any(await store.fire(firings, term=term)), "a schedule fired twice at one version"


async def fail(store: FullStore, session: int, way: str, job: NewTask, pause: Pause) -> None:
    """Until the task has failed for good."""
    verb = FAILURES[way]
    slot = Slot(free=1, queues=(job.queue,), lasts=_REMOTE_CLAIM if verb == "reclaim" else None)
    for _ in range(_TURNS):
        (task,) = await store.get([job.id])
        if task is None or task.state.finished:
            return
        claimed = await store.claim(ClaimRequest(session=session, slots=(slot,)))
        if verb == "settle":
            ended = [settled(claim, *ENDS[way]) for claim in claimed.claims]
            await store.settle(ended)
            await store.settle(ended)
            continue
        # Its time limit passes.
        await pause(2 * _REMOTE_CLAIM / SECOND)
        if verb == "reclaim":
            await store.reclaim()
    raise AssertionError(f"{way}: the task never came to its end")


def settled(claim: Claim, outcome: Outcome, policy: Policy) -> Settlement:
    transition = decide(claim, outcome, policy, claim.claimed_at, 0.5)
    return Settlement(id=claim.id, token=claim.token, transition=transition, worker="w")


async def go_on(
    store: FullStore, number: int, ways: Iterable[str] = FAILURES, pause: Pause = asyncio.sleep, *, repeat: bool
) -> list[str]:
    """What another process does after the first one died, and what is wrong then. `repeat`: it first says again what
    the dead one may have said last, in its name."""
    if repeat:
        await _say_again(store, jobs(number, ways))
        faults = await complaints(store)
    else:
        faults = []
    for session in await store.sessions():
        await store.end_session(session.number)
    await store.reclaim()
    faults += await complaints(store)
    await work(store, number, "two", ways, pause)
    faults += await complaints(store)
    return faults + await unfinished(store, number, len(jobs(number, ways)))


async def _say_again(store: FullStore, wanted: dict[str, NewTask]) -> None:
    for way, job in wanted.items():
        (task,) = await store.get([job.id])
        if way in ENDS and task is not None and task.session is not None and task.claim:
            # With as many crashes as it takes: the claim itself is gone with its process.
            claim = Claim(
                id=task.id,
                token=Token(task.session, task.claim),
                handler=JOB,
                queue=task.queue,
                params=task.params,
                attempt=1,
                crashes=task.crashes,
                expires_at=task.expires_at,
                claimed_at=store.clock.now(),
            )
            await store.settle([settled(claim, *ENDS[way])])


async def complaints(store: FullStore) -> list[str]:
    """What must hold at any moment."""
    tasks = list((await store.find(EVERYTHING, limit=_ALL)).tasks)
    return [
        *_wrong_followers(tasks),
        *await _wrong_events(store, tasks),
        *_wrong_schedules(await store.schedules(), tasks),
        *await _half_declared(store),
        *_wrong_lines(tasks),
    ]


def _wrong_followers(tasks: Sequence[Task]) -> list[str]:
    faults = []
    for task in tasks:
        if task.handler == JOB:
            wanted = {INSTEAD: 1, BURY: 1} if failed_for_good(task) else {}
            found = Counter(one.handler for one in tasks if one.parent == task.id)
            if found != wanted:
                faults.append(f"{task.id} in {task.queue} is {task.state} ({task.reason}), followed by {dict(found)}")
    return faults


async def _wrong_events(store: FullStore, tasks: Sequence[Task]) -> list[str]:
    stored = {event.id: event for event in await store.events(limit=_ALL)}
    wanted = {task for event in stored.values() for task in event.task_ids()}
    found = {task.id for task in tasks if read_meta(task.meta).event is not None}
    faults = [f"event {event.id} went to {event.handlers}" for event in stored.values() if len(event.handlers) != 2]
    faults += [f"an event is stored without its task {one}" for one in wanted - found]
    return faults + [f"task {one} is stored without its event" for one in found - wanted]


def _wrong_schedules(schedules: Sequence[Schedule], tasks: Sequence[Task]) -> list[str]:
    marks = [read_meta(task.meta).tick for task in tasks]
    ticks = Counter(mark.schedule for mark in marks if mark is not None)
    return [
        f"schedule {one.name}: fired {one.fired}, next tick {one.next_at}, {ticks[one.name]} tasks"
        for one in schedules
        if not (one.fired == ticks[one.name] == int(one.next_at is None))
    ]


async def _half_declared(store: FullStore) -> list[str]:
    """Queues, schedules and subscriptions of one number."""
    found = [one for one in await store.declarations() if one.app == APP]
    numbers = {one.name.partition("-")[2] for one in await store.schedules()}
    numbers |= {one.pattern[1:-2] for app in found for one in app.subscriptions}
    settings = {one.name: one.declared for one in await store.queues()}.get("after")
    numbers |= set() if settings is None else {str((settings.capacity or 0) - 1000)}
    return [] if len(numbers) <= 1 else [f"declarations of {sorted(numbers)} at once"]


def _wrong_lines(tasks: Sequence[Task]) -> list[str]:
    """Of each order key, one is not held in order if any is unfinished, and no two run."""
    lines: dict[str, list[Task]] = {}
    for task in tasks:
        if task.order_key is not None and not task.state.finished:
            lines.setdefault(task.order_key, []).append(task)
    faults = []
    for key, line in lines.items():
        first = [task for task in line if not (task.state is State.HELD and task.reason == "order")]
        if len(first) != 1:
            faults.append(f"order key {key}: {len(first)} of {len(line)} are not held in order")
    return faults


async def unfinished(store: FullStore, number: int, ways: int) -> list[str]:
    """After the end: everything was done once."""
    tasks = list((await store.find(EVERYTHING, limit=_ALL)).tasks)
    found = Counter(task.handler for task in tasks)
    wanted = {JOB: ways, INSTEAD: ways, BURY: ways, TICK: 2, LISTEN: EVENTS, TIDY: EVENTS}
    faults = [] if found == wanted else [f"number {number}: {dict(found)} and not {wanted}"]
    faults += [f"{task.queue} is {task.state}" for task in tasks if task.handler == JOB and not failed_for_good(task)]
    return faults


async def clear(store: FullStore) -> None:
    """Nothing but the handlers is left."""
    session = await open_session(store, "last")
    assert await store.declare(Declared(app=APP), session=session)
    await store.end_session(session)
    await store.cancel(EVERYTHING, limit=_ALL)
    await store.prune(EVERYTHING, limit=_ALL)
    await store.prune_events(store.clock.now() + 3600 * SECOND, limit=_ALL)
