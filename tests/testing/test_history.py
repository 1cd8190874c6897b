"""Histories survive their process, merge, and say what is unknown; failpoints bite once, where they were told to."""

from pathlib import Path
from typing import get_args

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.verbs import verbs
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, QueueFull, StoreUnavailable
from pitboss.model.ids import IdMaker
from pitboss.model.limits import Window
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, Report, ResourceOutcome, Shortage, Want
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.task import NewTask
from pitboss.testing import history as told
from pitboss.testing.checker import check, final
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import VERBS, Failpoints, Killed, names
from pitboss.testing.history import FOREVER, Act, History
from pitboss.testing.recorded import recorded


class Bench:
    """A recorded memory store in which faults can be planned."""

    def __init__(self, history: History | None = None) -> None:
        self.clock = FakeClock()
        self.points = Failpoints(pause=self.clock.advance)
        self.history = history or History()
        self.engine = MemoryEngine(clock=self.clock, failpoint=self.points)
        self.store = recorded(self.engine, self.history, clock=self.clock)
        self._ids = IdMaker(self.clock.now, lambda bits: 7)

    def new(self) -> NewTask:
        return NewTask(id=self._ids(), handler="job")

    async def work(self) -> None:
        """A task from its put to its claim, and a refusal."""
        await self.store.register([HandlerInfo(name="job")])
        await self.store.change_queue("default", QueueChange(capacity=1))
        await self.store.put([self.new()])
        with pytest.raises(QueueFull):
            await self.store.put([self.new()])
        session = await self.store.open_session(SessionInfo(host="here"))
        await self.store.claim(ClaimRequest(session=session.number, slots=(Slot(free=1),)))

    async def judged(self) -> list[str]:
        return [violation.invariant for violation in check(self.history, await final(self.store))]


async def test_a_history_on_disk_is_the_history(tmp_path: Path) -> None:
    bench = Bench(History(file=tmp_path / "one"))
    await bench.work()
    bench.history.close()
    read = History.read(tmp_path / "one")
    assert read.entries == bench.history.entries
    assert read.calls() == bench.history.calls()


async def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "one"
    bench = Bench(History(file=file))
    await bench.work()
    file.write_bytes(file.read_bytes()[:-5])
    assert History.read(file).entries == bench.history.entries[:-1]


async def test_histories_of_several_processes_become_one(tmp_path: Path) -> None:
    ticks = iter(range(10, 1000, 10))
    benches = [Bench(History(file=tmp_path / name, order=lambda: next(ticks))) for name in ("one", "two")]
    for bench, name in zip(benches, ("one", "two"), strict=True):
        bench.store.process = name
        await bench.store.put([bench.new()])
    merged = History.read(tmp_path / "two", tmp_path / "one")
    assert [(event.process, event.phase) for event in merged.entries] == [
        ("one", "invoke"),
        ("one", "ok"),
        ("two", "invoke"),
        ("two", "ok"),
    ]


async def test_calls_end_as_known_failed_or_unknown() -> None:
    bench = Bench()
    await bench.work()
    bench.points.plan("put.after", "lost")
    with pytest.raises(StoreUnavailable):
        await bench.store.put([])
    phases = [(type(call.act).__name__, call.phase) for call in bench.history.calls()]
    assert phases == [
        ("ChangeQueue", "ok"),
        ("Put", "ok"),
        ("Put", "fail"),
        ("OpenSession", "ok"),
        ("Claim", "ok"),
        ("Put", "info"),
    ]
    assert bench.history.calls()[-1].ended == FOREVER
    assert await bench.judged() == []


@pytest.mark.parametrize(("place", "stored"), [("before", 0), ("after", 1)])
async def test_a_put_without_an_answer_may_be_there_or_not(place: str, stored: int) -> None:
    bench = Bench()
    bench.points.plan(f"put.{place}", "lost")
    with pytest.raises(StoreUnavailable):
        await bench.store.put([bench.new()])
    assert len(bench.engine.tables.tasks) == stored
    assert await bench.judged() == []


async def test_a_put_that_was_acknowledged_must_be_there() -> None:
    bench = Bench()
    await bench.store.put([bench.new()])
    bench.engine.tables.tasks.clear()
    bench.engine.tables.counts.clear()
    assert set(await bench.judged()) == {"no acknowledged put is lost, and nothing appears unasked"}


async def test_a_task_that_was_never_put_is_noticed() -> None:
    bench = Bench()
    await bench.engine.put([bench.new()])
    assert set(await bench.judged()) == {"no acknowledged put is lost, and nothing appears unasked"}


def test_every_act_is_recorded_by_the_verb_of_its_name() -> None:
    """A verb that was renamed would leave its act, and what the checker judges by it, without evidence."""
    named = {"".join(word.capitalize() for word in name.split("_")) for name in verbs()}
    assert {kind.__name__ for kind in get_args(Act)} - {"ReadBatches"} <= named


async def test_arguments_and_answers_are_evidence() -> None:
    bench = Bench()
    store, wanted, report = bench.store, Want(labels=("eu",)), Report(outcome=ResourceOutcome.OK)
    await store.declare_pool("proxies", PoolRules(limits=Limits(windows=(Window(1, SECOND),), use_within=0)))
    await store.add_resources("proxies", [NewResource(name="p1", labels=("eu",))])
    leased = await store.acquire("proxies", wanted, SECOND, lease="mine")
    shortage = await store.acquire("proxies", Want(), SECOND, lease="other")
    await store.use("mine")
    moved = await store.use("mine", instead=bench.clock.now())
    await store.release("mine", report)
    placed = await store.put([task := bench.new()])
    acts = [call.act for call in bench.history.calls()]
    assert isinstance(leased, Leased)
    assert isinstance(shortage, Shortage)
    assert isinstance(moved, int)
    assert acts[2:] == [
        told.Acquire(pool="proxies", want=wanted, hold=SECOND, lease="mine", leased=leased),
        told.Acquire(pool="proxies", want=Want(), hold=SECOND, lease="other", shortage=shortage),
        told.Use(holder="mine", task=None),
        told.Use(holder="mine", task=None, instead=bench.clock.now(), used=moved),
        told.Release(lease="mine", report=report, released=True),
        told.Put(tasks=(task,), placed=tuple(placed)),
    ]


async def test_the_dead_ask_nothing_more() -> None:
    bench = Bench()
    bench.points.plan("put.after", "kill")
    with pytest.raises(Killed):
        await bench.store.put([bench.new()])
    asked = len(bench.history.entries)
    with pytest.raises(Killed):
        await bench.store.reclaim()
    with pytest.raises(Killed):
        await bench.store.get([])
    assert len(bench.history.entries) == asked


def test_a_fault_bites_once_at_the_hit_it_was_planned_for() -> None:
    clock = FakeClock()
    points = Failpoints(pause=clock.advance)
    points("put.before")
    points.plan("put.before", "delay", nth=2, seconds=3)
    began = clock.now()
    for _ in range(5):
        points("put.before")
    assert clock.since(began) == 3_000_000
    assert points.bitten == [("put.before", "delay")]
    assert points.hits["put.before"] == 6


def test_a_healed_fault_does_not_bite() -> None:
    points = Failpoints()
    points.plan("put.before", "kill")
    points.heal()
    points("put.before")
    assert points.bitten == []


def test_a_fault_at_a_place_that_no_engine_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no failpoint"):
        Failpoints().plan("put.durring", "kill")


def test_names_cover_every_verb() -> None:
    assert len(names(sql=False, verbs=VERBS)) == 12
    assert len(names(sql=True, verbs=VERBS)) == 18
    assert len(names(sql=True)) == 18 + 24 + 9 + 6 + 6
