"""What schedules and events cost, beside a plain put of the same tasks: `python -m benchmarks.schedules_and_events`."""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec.structs import replace

from benchmarks.stores import ENGINES, PARAMS, Ground, ground
from pitboss.engines.protocol import FullStore
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscribers, Subscription
from pitboss.model.queue import HandlerInfo
from pitboss.model.schedule import Overlap, Schedule, ScheduleSpec, firing
from pitboss.model.session import SessionInfo

ROUNDS = 5
DUE = 1000
EVENTS, HANDLERS = 2000, 5
FEW, MANY = 100, 100_000
LOOKS = 200


async def fire(there: Ground, store: FullStore, term: int, number: int) -> tuple[float, float, float]:
    """Tasks per second of firing schedules that are due, of putting the same tasks, and of putting plain ones."""
    wall = store.clock.wall()
    specs = [
        ScheduleSpec(name=f"r{number}-{one}", handler="noop", at=wall, overlap=Overlap.ALLOW, params=PARAMS)
        for one in range(DUE)
    ]
    await store.declare(Declared(app=f"round{number}", schedules=tuple(specs)))
    due: list[Schedule] = (await store.due_schedules(DUE)).schedules
    made = [firing(one, None, wall, {}) for one in due]
    firings = [one for one in made if one is not None]
    assert len(firings) == DUE
    same = [replace(task, id=there.new_id()) for one in firings for task in one.tasks]
    fired = await _seconds(lambda: store.fire(firings, term=term))
    put = await _seconds(lambda: store.put(same))
    plain = await _seconds(lambda: store.put(there.tasks(DUE)))
    return DUE / fired, DUE / put, DUE / plain


async def publish(there: Ground, store: FullStore, wanted: Subscribers) -> tuple[float, float, float]:
    """Tasks per second of publishing to five handlers, of putting the same tasks, and of putting plain ones."""
    events = [NewEvent(id=there.new_id(), name="user.signup", data=PARAMS) for _ in range(EVENTS)]
    same = [replace(task, id=there.new_id()) for event in events for task in wanted.tasks(event)]
    number = EVENTS * HANDLERS
    published = await _seconds(lambda: store.publish(events))
    put = await _seconds(lambda: store.put(same))
    plain = await _seconds(lambda: store.put(there.tasks(number)))
    return number / published, number / put, number / plain


async def look(store: FullStore) -> float:
    """Microseconds of one look for schedules that are due."""
    spent = [await _seconds(store.due_schedules) for _ in range(LOOKS)]
    return statistics.median(spent) * SECOND


async def measure(kind: str) -> None:
    async with ground(kind) as there:
        store = cast("FullStore", there.engine)
        session = (await store.open_session(SessionInfo(host="bench", ttl=3600 * SECOND))).number
        term = (await store.campaign(session)).term
        await store.register([HandlerInfo(name=f"h{one}") for one in range(HANDLERS)])
        wants = tuple(Subscription(handler=f"h{one}", pattern="user.*") for one in range(HANDLERS))
        await store.declare(Declared(app="events", subscriptions=wants), session=session)
        fired = [await fire(there, store, term, number) for number in range(ROUNDS)]
        told = [await publish(there, store, Subscribers(wants)) for _ in range(ROUNDS)]
        _say(kind, f"{DUE} schedules fire", fired)
        _say(kind, f"{EVENTS} events to {HANDLERS} handlers", told)
    looks = {}
    for size in (FEW, MANY):
        async with ground(kind) as there:
            store = cast("FullStore", there.engine)
            later = store.clock.wall() + 86_400 * SECOND
            specs = tuple(ScheduleSpec(name=f"s{one}", handler="noop", at=later + one) for one in range(size))
            await store.declare(Declared(app="many", schedules=specs))
            looks[size] = await look(store)
    ratio = looks[MANY] / looks[FEW]
    print(f"{kind}: a look at {MANY} schedules {looks[MANY]:.0f} us, at {FEW} {looks[FEW]:.0f} us: {ratio:.2f} times")


def _say(kind: str, what: str, rounds: list[tuple[float, float, float]]) -> None:
    same = statistics.median(one / other for one, other, _ in rounds)
    plain = statistics.median(one / other for one, _, other in rounds)
    speed, put, plainly = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"{kind}: {what}: {speed:,.0f} tasks per second; of a put {put:,.0f} ({same:.0%}), of plain tasks "
        f"{plainly:,.0f} ({plain:.0%}); medians of {len(rounds)}"
    )


async def _seconds(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


if __name__ == "__main__":
    for engine in sys.argv[1:] or ENGINES:
        asyncio.run(measure(engine))
