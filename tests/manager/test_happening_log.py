"""The log of a manager: what it makes of facts, what it keeps while the store is away, and what a storm costs."""

import asyncio
from collections.abc import Sequence
from random import Random

from pitboss.engines.memory import MemoryEngine
from pitboss.manager.happening_log import MOST_WAITING, ONE_BY_ONE, HappeningLog
from pitboss.model.canonical import from_json
from pitboss.model.errors import StoreUnavailable
from pitboss.model.facts import PoolScaled, RestartRequired, WorkerCrashed, WorkerGivenUp, WorkerStarted
from pitboss.model.happening import Happening, Kind, Severity
from pitboss.model.task import TaskError
from pitboss.testing.clock import FakeClock
from pitboss.testing.virtual import run_virtual

BROKEN = TaskError(category="crash", message="worker default-1 was killed by SIGKILL", fingerprint="f")


class Store(MemoryEngine):
    """Raises StoreUnavailable while it is away; `writes` are the sizes of the groups that it was asked to write."""

    away = False
    writes: list[int]

    async def record_happenings(self, happenings: Sequence[Happening]) -> None:
        self.writes.append(len(happenings))
        if self.away:
            raise StoreUnavailable("no answer")
        await super().record_happenings(happenings)


class Stage:
    """A log that runs, in virtual time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.store = clock, Store(clock=clock)
        self.store.writes = []
        self.session: int | None = 7
        self.log = HappeningLog(self.store, clock=clock, luck=Random(1).random, session=lambda: self.session)

    async def stored(self) -> list[Happening]:
        """Oldest first."""
        return (await self.store.happenings(limit=10_000))[::-1]

    def crash(self, worker: str = "default-1") -> None:
        self.log.heard(WorkerCrashed(worker=worker, pid=3, error=BROKEN, code=-9, lost=("t1", "t2")))


def set_aside(stage: Stage) -> None:
    stage.log.heard(WorkerCrashed(worker="default-1", error=BROKEN, lost=("t1",), poisoned=("t1",)))


def on_stage(*acts: object) -> Stage:
    """Each act is a function of the stage, or seconds to wait."""
    clock = FakeClock()
    stage = Stage(clock)

    async def main() -> None:
        running = asyncio.create_task(stage.log.run())
        for act in acts:
            if callable(act):
                act(stage)
            else:
                await asyncio.sleep(float(str(act)))
        running.cancel()

    run_virtual(main(), clock=clock)
    return stage


def rows(stage: Stage) -> list[Happening]:
    return run_virtual(stage.stored(), clock=stage.clock)


def away(stage: Stage) -> None:
    stage.store.away = True
    stage.log.note(Kind.STORE_AWAY, "store", "the store does not answer")


def back(stage: Stage) -> None:
    stage.store.away = False
    stage.log.note(Kind.STORE_BACK, "store", "the store is back")


def test_some_facts_are_happenings() -> None:
    def facts(stage: Stage) -> None:
        stage.log.heard(WorkerStarted(worker="default-1"))
        stage.crash()
        stage.log.heard(WorkerGivenUp(worker="default-2", why="it cannot be loaded", crashes=5))
        stage.log.heard(PoolScaled(pool="mail", before=0, after=2, why="configured"))
        stage.log.heard(PoolScaled(pool="mail", before=2, after=4, why="many tasks wait"))
        stage.log.heard(RestartRequired(process="sources"))

    crashed, given_up, scaled = rows(on_stage(facts, 2))
    assert (crashed.kind, crashed.severity, crashed.subject) == (
        Kind.WORKER_CRASHED,
        Severity.WARNING,
        "worker default-1",
    )
    assert crashed.text == "worker default-1 was killed by SIGKILL; 2 tasks of it will run again"
    about = {"worker": "default-1", "pool": "default", "pid": 3, "code": -9, "tasks": ["t1", "t2"]}
    assert from_json(crashed.details) == about
    assert (given_up.severity, given_up.text) == (Severity.ERROR, "worker default-2 stays down: it cannot be loaded")
    assert (scaled.subject, scaled.text) == ("pool mail", "pool mail goes from 2 to 4 workers: many tasks wait")
    assert {one.manager for one in (crashed, given_up, scaled)} == {7}


def test_what_happens_together_is_written_together() -> None:
    stage = on_stage(lambda stage: [stage.log.note(Kind.ALERT, f"queue {n}", "late") for n in range(450)], 2)
    assert stage.store.writes == [200, 200, 50]
    assert len(rows(stage)) == 450


def test_an_outage_is_in_the_log_with_both_ends() -> None:
    stage = on_stage(away, 600, lambda stage: stage.crash(), 600, back, 3)
    kinds = [one.kind for one in rows(stage)]
    assert kinds == [Kind.STORE_AWAY, Kind.WORKER_CRASHED, Kind.STORE_BACK]
    began, _, ended = rows(stage)
    assert ended.at - began.at == 1200 * 1_000_000
    assert len(stage.store.writes) < 2500, "it does not press a store that is away"


def test_a_storm_writes_few_rows_that_count_all() -> None:
    def crashes(stage: Stage) -> None:
        for number in range(100):
            stage.crash(f"default-{number % 32}")

    minute = [act for _ in range(10) for act in (crashes, 6)]
    found = rows(on_stage(*minute, 70))
    assert len(found) <= 2 * (ONE_BY_ONE + 1)
    assert sum(one.count for one in found) == 1000
    assert found[-1].subject == "pool default"
    assert "more times, the last: worker default-1 was killed" in found[-1].text


def test_pools_and_kinds_are_counted_apart() -> None:
    def both(stage: Stage) -> None:
        for _ in range(8):
            stage.crash()
            stage.log.heard(WorkerCrashed(worker="mail-1", pool="mail", error=BROKEN))

    found = rows(on_stage(both, 70))
    assert [one.subject for one in found if one.count > 1] == ["pool default", "pool mail"]
    assert [one.count for one in found if one.count > 1] == [3, 3]


def test_a_minute_later_crashes_are_rows_of_their_own_again() -> None:
    found = rows(on_stage(*[act for _ in range(10) for act in (lambda stage: stage.crash(), 61)]))
    assert [one.count for one in found] == [1] * 10


def test_a_long_outage_keeps_a_bounded_number_and_counts_the_rest() -> None:
    def many(stage: Stage) -> None:
        for number in range(MOST_WAITING + 500):
            stage.log.note(Kind.LIMITS_CHANGED, f"queue {number % 300}", "other limits")

    def bounded(stage: Stage) -> None:
        assert len(stage.log._waiting) <= MOST_WAITING

    stage = on_stage(away, many, bounded, 3600, many, bounded, 3600, back, bounded, 120)
    found = rows(stage)
    assert sum(one.count for one in found) == 2 * (MOST_WAITING + 500) + 2
    assert (found[0].kind, [one.kind for one in found].count(Kind.STORE_BACK)) == (Kind.STORE_AWAY, 1)


def test_the_end_of_a_manager_writes_what_is_left() -> None:
    async def main() -> list[Happening]:
        stage = Stage(FakeClock())
        for _ in range(ONE_BY_ONE + 3):
            stage.crash()
        stage.log.stopped()
        await stage.log.close(2.0)
        return await stage.stored()

    *_, last = found = run_virtual(main())
    assert [one.count for one in found] == [1] * ONE_BY_ONE + [3, 1]
    assert (last.kind, last.subject) == (Kind.MANAGER_STOPPED, "manager 7")


def test_the_end_does_not_wait_for_a_store_that_is_away() -> None:
    async def main() -> float:
        stage = Stage(FakeClock())
        stage.store.away = True
        stage.log.stopped()
        await stage.log.close(2.0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 0


def test_a_store_without_a_log_is_no_fault() -> None:
    log = HappeningLog(None, clock=FakeClock(), luck=Random(1).random, session=lambda: None)
    log.stopped()
    run_virtual(log.close(1.0))
    assert len(log._waiting) == 0


def test_texts_that_no_store_takes_are_made_storable() -> None:
    def odd(stage: Stage) -> None:
        stage.log.note(Kind.ALERT, "queue \0", "a\0b\ud800" + "x" * 5000, {"why": "\0", "none": None})

    (one,) = rows(on_stage(odd, 2))
    assert one.text.startswith("a\\x00b\\ud800")
    assert (len(one.text), one.subject, one.details) == (1000, "queue \\x00", '{"why":"\\\\x00"}')


def test_a_task_that_was_set_aside_does_not_run_again() -> None:
    """Regression: "1 task of it will run again" was said of tasks that had killed three workers."""
    (row,) = rows(on_stage(set_aside, 2))
    assert row.text.endswith("; 1 task was set aside (poison: see pitboss dead list)")
    assert "run again" not in row.text
