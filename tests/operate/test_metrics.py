"""Metrics: the same on every engine as an independent count, they never go back, and are a bounded number."""

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from pitboss.engines.postgres import PostgresEngine
from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.duration import SECOND, span
from pitboss.model.figures import HOUR, OTHERS, RAW, HandlerFigures, PoolSample, ResourceSample, Sample, bucket
from pitboss.model.filter import by
from pitboss.model.metrics import METRICS, MOST_RULES, MOST_SERIES, MetricKind, Series
from pitboss.model.outcome import Failed
from pitboss.model.policy import Policy
from pitboss.model.resource import PoolRules
from pitboss.model.retention import Retention
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.task import NewTask
from pitboss.model.totals import LIMITS, Spread
from pitboss.operate.metrics import MetricsReader, Values, read_metrics
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.upkeep.roll_up import roll_up
from tests.operate.bench import Bench as MemoryBench
from tests.servers.schema import EmptiedSchema

ONCE = Policy(max_attempts=1)
# Short, so that the walk sees everything rolled up and forgotten.
SHORT = Retention(figures_10s=span("1m"), figures_1m=span("1h"), figures_1h=span("3h"))
STEPS = 150


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, emptied_schema: EmptiedSchema) -> Bench:
    emptied_schema.empty()

    async def make(clock: FakeClock) -> SqliteEngine | PostgresEngine:
        engine = (
            SqliteEngine(tmp_path / "store.db", clock=clock)
            if request.param == "sqlite"
            else PostgresEngine(emptied_schema.dsn, schema=emptied_schema.name, clock=clock)
        )
        await engine.open()
        return engine

    return Bench(make)


def numbers(values: Values, name: str) -> dict[tuple[str, ...], float]:
    return {one.labels: one.value for one in values.get(name, []) if not isinstance(one.value, Spread)}


def counters(values: Values) -> dict[tuple[str, ...], float]:
    """Every number that must not go back, by metric and labels."""
    found: dict[tuple[str, ...], float] = {}
    for name, series in values.items():
        for one in series if METRICS[name].kind is not MetricKind.GAUGE else ():
            if isinstance(one.value, Spread):
                found |= {(name, *one.labels, str(place)): n for place, n in enumerate(one.value.counts)}
                found[name, *one.labels, "sum"] = one.value.sum
            else:
                found[name, *one.labels] = one.value
    return found


def number_of_series(values: Values) -> int:
    """As a monitoring system counts them: a histogram has its limits, one for all, its sum and its count."""
    weights = {MetricKind.HISTOGRAM: len(LIMITS) + 3}
    return sum(len(series) * weights.get(METRICS[name].kind, 1) for name, series in values.items())


class Walk:
    """Random acts, each counted by itself as well."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.random = bench, Random(3)
        self.counted: Counter[tuple[str, str]] = Counter()
        self.ran = 0

    async def step(self, number: int) -> None:
        act = self.random.choice([self.put, self.put, self.complete, self.fail, self.lose, self.revive, self.sample])
        await act(number)
        self.bench.clock.advance(self.random.choice([1, 10, 60, 1800]))

    async def put(self, number: int) -> None:
        queue, several = self.random.choice("ab"), self.random.randint(1, 4)
        await self.bench.put(*(self.bench.new(queue=queue) for _ in range(several)))
        self.counted[queue, "enqueued"] += several

    async def complete(self, number: int) -> None:
        for claim in await self.bench.claim(2):
            await self.bench.complete(claim)
            self.counted[claim.queue, "completed"] += 1

    async def fail(self, number: int) -> None:
        for claim in await self.bench.claim(1):
            policy = ONCE if number % 2 else Policy(max_attempts=50)
            await self.bench.report(claim, Failed(BROKEN), policy)
            self.counted[claim.queue, "failed" if number % 2 else "retried"] += 1

    async def lose(self, number: int) -> None:
        other = await self.bench.session("job")
        for claim in await self.bench.claim(1, session=other):
            self.counted[claim.queue, "lost"] += 1
        await self.bench.end(other)
        await self.bench.reclaim()

    async def revive(self, number: int) -> None:
        found = (await self.bench.store.find(by(state="failed"), limit=1)).tasks
        for task in found:
            await self.bench.retry(task.id)
            self.counted[task.queue, "enqueued"] += 1

    async def sample(self, number: int) -> None:
        figures = HandlerFigures("a", "job", 1)
        figures.run.add(2 * SECOND)
        pools, at = {"default": PoolSample({"idle": 10}, 5, 1, 0)}, bucket(self.bench.now, RAW)
        await self.bench.store.add_samples([Sample(at=at, session=number, covered=10, handlers=[figures], pools=pools)])
        self.ran += 1

    async def forget(self, term: int) -> None:
        """What the leader does: roll up, and delete old figures and ended tasks."""
        await roll_up(self.bench.store, SHORT, self.bench.clock, term=term)
        await self.bench.prune(by(state="completed"), before=self.bench.now - HOUR)


@pytest.mark.fresh_loop(limit=110)
async def test_no_counter_goes_back_whatever_is_forgotten_and_whoever_answers(bench: Bench) -> None:
    await bench.renew(bench.me, snapshot_of("default"))
    term = (await bench.store.campaign(bench.me.number)).term
    walk, seen = Walk(bench), dict[tuple[str, ...], float]()
    other = await bench.open_engine()
    for number in range(STEPS):
        await bench.renew(bench.me)
        await walk.step(number)
        if number % 5 == 0:
            await walk.forget(term)
        # A server that was there all the time, and another one that was started just now.
        for store in (bench.store, other):
            now = counters(await read_metrics(store, "1"))
            assert {key: (before, now.get(key)) for key, before in seen.items() if now.get(key, -1) < before} == {}
            seen = now
    assert await bench.store.flows(0, bench.now - 5 * HOUR, span=HOUR) == []
    values = await read_metrics(other, "1")
    assert_equal_to(walk, values)


def assert_equal_to(walk: Walk, values: Values) -> None:
    found = Counter(
        {(queue, "enqueued"): n for (queue, _), n in numbers(values, "pitboss_tasks_enqueued_total").items()}
    )
    found |= Counter({(queue, what): n for (queue, _, what), n in numbers(values, "pitboss_tasks_total").items()})
    assert {key: n for key, n in found.items() if n} == {key: n for key, n in walk.counted.items() if n}
    assert {what for _, what in walk.counted} == {"enqueued", "completed", "failed", "retried", "lost"}
    (runs,) = values["pitboss_task_run_seconds"]
    assert isinstance(runs.value, Spread)
    assert (sum(runs.value.counts), runs.value.sum) == (walk.ran, 2 * SECOND * walk.ran)
    assert numbers(values, "pitboss_worker_restarts_total") == {("default",): walk.ran}


async def test_gauges_equal_a_count_of_the_tasks(bench: Bench) -> None:
    await bench.put(*(bench.new(queue=queue) for queue in "aab"))
    await bench.put(bench.new(queue="b", delay=HOUR), bench.new(queue="c", handler="unknown"))
    bench.clock.advance(7)
    await bench.take("a")
    await bench.report(await bench.take("b"), Failed(BROKEN), ONCE)
    await bench.change("c", paused=True)
    values = await read_metrics(bench.store, "1")
    counted = Counter((one.queue, one.state.value) for one in await bench.every_task())
    told = numbers(values, "pitboss_queue_tasks")
    assert {key: n for key, n in told.items() if n} == {key: n for key, n in counted.items() if key[1] != "failed"}
    assert numbers(values, "pitboss_dead_letters") == {("a",): 0, ("b",): 1, ("c",): 0}
    assert numbers(values, "pitboss_queue_paused") == {("a",): 0, ("b",): 0, ("c",): 1}
    assert numbers(values, "pitboss_queue_oldest_wait_seconds") == {("a",): 7, ("b",): 0, ("c",): 0}


@pytest.mark.fresh_loop(limit=110)
async def test_ten_thousand_handlers_and_a_thousand_gone_workers_stay_below_the_limit(bench: Bench) -> None:
    store = bench.store
    await crowd(bench, store)
    values = await read_metrics(store, "1")
    assert number_of_series(values) <= MOST_SERIES - MOST_RULES
    assert number_of_series(values) > MOST_SERIES // 2
    handlers = {labels[1] for labels in numbers(values, "pitboss_tasks_enqueued_total")}
    assert OTHERS in handlers
    assert sum(numbers(values, "pitboss_tasks_enqueued_total").values()) == 10_000
    assert sum(numbers(values, "pitboss_queue_tasks").values()) == 10_000
    workers = numbers(values, "pitboss_workers")
    assert sum(workers.values()) == 40
    assert not any(label.startswith("gone") for labels in workers for label in labels)
    for name, series in values.items():
        assert {len(one.labels) for one in series} == {len(METRICS[name].labels)}
        assert len({one.labels for one in series}) == len(series), name


async def crowd(bench: Bench, store: FullStore) -> None:
    """More of everything than is told apart."""
    for first in range(0, 10_000, 1000):
        await store.put(
            [NewTask(id=bench.ids(), handler=f"h{n}", queue=f"q{n % 100}") for n in range(first, first + 1000)]
        )
    await store.reclaim()
    for number in range(1000):
        gone = await store.open_session(SessionInfo(host=f"gone{number}", pid=number))
        if number % 20 == 0:
            await store.renew(gone.number, snapshot_of(f"gone{number}"))
        await store.end_session(gone.number)
    for number in range(40):
        live = await store.open_session(SessionInfo(host=f"box{number}", pid=number, ttl=HOUR))
        await store.renew(live.number, snapshot_of(f"pool{number}"))
        await store.declare_pool(f"proxies{number}", PoolRules())
    pools = {f"pool{number}": PoolSample({}, 0, 1, 1) for number in range(40)}
    resources = {f"proxies{number}": ResourceSample({"ready": 10}, 10, 1) for number in range(40)}
    handlers = [HandlerFigures(f"q{number}", "h", 1) for number in range(100)]
    for one in handlers:
        one.wait.add(5)
        one.run.add(5)
    at = bucket(bench.now, RAW)
    await store.add_samples(
        [Sample(at=at, session=1, covered=10, led=10, handlers=handlers, pools=pools, resources=resources)]
    )


def snapshot_of(pool: str) -> str:
    worker = WorkerFigures(name="1", pool=pool, state=WorkerState.PROCESSING, running=1, rss=5_000_000)
    pools = (PoolFigures(name=pool, concurrency=4, wanted=1),)
    return msgspec.json.encode(Snapshot(pools=pools, workers=(worker,))).decode()


async def test_the_fleet_is_told_by_pool(bench: Bench) -> None:
    for host in ("here", "there"):
        session = await bench.store.open_session(SessionInfo(host=host, pid=2, ttl=HOUR))
        await bench.store.renew(session.number, snapshot_of("web"))
    await bench.store.open_session(SessionInfo(host="far", kind="remote", ttl=HOUR))
    await bench.store.campaign(bench.me.number)
    values = await read_metrics(bench.store, "1.2")
    assert numbers(values, "pitboss_workers")["web", "processing"] == 2
    assert numbers(values, "pitboss_worker_slots") == {("web",): 8}
    assert numbers(values, "pitboss_worker_tasks") == {("web",): 2}
    assert numbers(values, "pitboss_worker_memory_bytes") == {("web",): 10_000_000}
    assert (values["pitboss_remote_workers"], values["pitboss_leader"]) == ([Series((), 1)], [Series((), 1)])
    assert values["pitboss_build_info"] == [Series(("1.2",), 1)]


async def test_members_are_told_as_the_leader_saw_them_and_vanish_without_one(bench: Bench) -> None:
    await bench.store.declare_pool("proxies", PoolRules())
    members = ResourceSample({"ready": 70, "cooling": 20, "disabled": 10}, 90, 6, 2, {"a.test": 1})
    sample = Sample(at=bucket(bench.now, RAW), session=1, covered=10, led=10, resources={"proxies": members})
    await bench.store.add_samples([sample])
    bench.clock.advance(20)
    values = await read_metrics(bench.store, "1")
    told = numbers(values, "pitboss_resource_members")
    assert {key: n for key, n in told.items() if n} == {
        ("proxies", "ready"): 7,
        ("proxies", "cooling"): 2,
        ("proxies", "disabled"): 1,
    }
    for name, number in (("uses", 6), ("shortages", 2), ("refusals", 1)):
        assert numbers(values, f"pitboss_resource_{name}_total") == {("proxies",): number}
    bench.clock.advance(60)
    assert "pitboss_resource_members" not in await read_metrics(bench.store, "1")


async def test_two_that_ask_at_once_read_the_store_once(store: MemoryBench) -> None:
    await store.add(store.new())
    reader = MetricsReader(store, "1")
    first = await reader.read()
    await store.add(store.new())
    assert await reader.read() is first
    store.time.advance(5)
    assert sum(numbers(await reader.read(), "pitboss_tasks_enqueued_total").values()) == 2
