"""Every engine settles, and loses, as the pure rules of `model.settlement` and `model.leasing` say.

The expected answers and rows are computed from the rules. So this proves the copies of the rules in SQL, for plain
tasks and for tasks with a batch or a resource: a change in one of them fails here.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import BatchStatus
from pitboss.model.ids import TaskId
from pitboss.model.member_health import given_back
from pitboss.model.outdone import outdone
from pitboss.model.resource import Report, Resource
from pitboss.model.settlement import ClaimEnd, Effect, Progress, Settlement, effect, lives, lost
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Attempt, Task, last_run
from pitboss.testing.clock import FakeClock
from tests.conformance.contestants import Open, open_memory, open_sqlite, postgres_opener
from tests.conformance.settle_table import (
    POOL,
    RULES,
    TRANSITIONS,
    Case,
    Table,
    lost_cases,
    settle_cases,
)
from tests.servers.postgres import PostgresServer


class Seen:
    """What a store shows of the tasks of some cases, with all that the rules depend on."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.runs: dict[TaskId, list[Attempt]] = {}
        self.members: dict[str, Resource] = {}
        self.batches: dict[str, BatchStatus] = {}
        self.counts: dict[str, Counter[State]] = {}

    @classmethod
    async def of(cls, store: FullStore, ids: list[TaskId]) -> "Seen":
        seen = cls()
        seen.tasks = {task.id: task for task in await store.get(ids) if task is not None}
        seen.runs = {task: await store.attempts(task) for task in seen.tasks}
        seen.members = {member.id: member for member in await store.resources(POOL)}
        batches = await store.batches(sorted({task.batch for task in seen.tasks.values() if task.batch is not None}))
        seen.batches = {batch.id: batch.status for batch in batches}
        seen.counts = {batch.id: Counter(batch.counts) for batch in batches}
        return seen

    def batch_of(self, task: Task | None) -> BatchStatus | None:
        return None if task is None or task.batch is None else self.batches[task.batch]

    def apply(self, task: Task, change: Progress | ClaimEnd, report: Report | None, now: int) -> None:
        """Make of this what the store should show after the change."""
        if isinstance(change, Progress):
            self.tasks[task.id] = change.applied_to(task)
            return
        self.tasks[task.id] = after = change.applied_to(task)
        run = change.run if change.run is not None else last_run(after)
        self.runs[task.id] = [*self.runs[task.id], *([run] if run is not None else [])]
        if task.batch is not None:
            self.counts[task.batch].update({task.state: -1, after.state: +1})
        if task.resource is not None:
            completed = after.state is State.COMPLETED
            back = given_back(self.members[task.resource], RULES, report, now, tried=task.tried, completed=completed)
            self.members[task.resource] = back.member
            for other in (f"{POOL}/{name}" for name in back.outdone):
                self.members[other] = outdone(self.members[other], RULES, now).member


class Judge:
    """Runs the cases of a table on its engine, and compares with the rules."""

    def __init__(self, runner: asyncio.Runner, table: Table) -> None:
        self._runner, self.table = runner, table

    def check_settling(self, cases: list[Case], *, together: bool) -> None:
        self._runner.run(self._check_settling(cases, together))

    async def _check_settling(self, cases: list[Case], together: bool) -> None:
        store, now = self.table.store, self.table.clock.now()
        settlements = [self.table.settlements[case] for case in cases]
        ids = [settlement.id for settlement in settlements]
        expected = await Seen.of(store, ids)
        effects = [self._effect(expected, settlement, now) for settlement in settlements]
        if together:
            answers = await store.settle(settlements)
        else:
            answers = [answer for one in settlements for answer in await store.settle([one])]
        for case, answer, said in zip(cases, answers, effects, strict=True):
            assert answer == said.answer, case
        await self._compare(cases, ids, expected)

    def check_losing(self, cases: list[Case]) -> None:
        self._runner.run(self._check_losing(cases))

    async def _check_losing(self, cases: list[Case]) -> None:
        store, now = self.table.store, self.table.clock.now()
        ids = [self.table.settlements[case].id for case in cases]
        expected = await Seen.of(store, ids)
        ends: Counter[State] = Counter()
        for task in list(expected.tasks.values()):
            if not lives(task, self.table.alive(task.session or 0), now):
                end = lost(task, batch=expected.batch_of(task), now=now)
                expected.apply(task, end, None, now)
                ends[end.state] += 1
        assert {State.PENDING, State.HELD, State.CANCELLED, State.FAILED} == set(ends)
        cancelled, failed = ends[State.CANCELLED], ends[State.FAILED]
        reclaimed = await store.reclaim()
        assert (reclaimed.cancelled, reclaimed.failed) == (cancelled, failed)
        assert reclaimed.lost == ends.total() - cancelled - failed
        await self._compare(cases, ids, expected)

    def all_effects(self) -> list[Effect]:
        settlements = list(self.table.settlements.values())
        seen = self._runner.run(Seen.of(self.table.store, [one.id for one in settlements]))
        return [self._effect(seen, one, self.table.clock.now()) for one in settlements]

    def _effect(self, seen: Seen, settlement: Settlement, now: int) -> Effect:
        task = seen.tasks.get(settlement.id)
        alive = self.table.alive(settlement.token.session)
        answer, change = effect(task, settlement, alive=alive, batch=seen.batch_of(task), now=now)
        if task is not None and change is not None:
            seen.apply(task, change, settlement.report, now)
        return Effect(answer, change)

    async def _compare(self, cases: list[Case], ids: list[TaskId], expected: Seen) -> None:
        found = await Seen.of(self.table.store, ids)
        for case, task in zip(cases, ids, strict=True):
            assert found.tasks.get(task) == expected.tasks.get(task), case
            assert found.runs.get(task) == expected.runs.get(task), case
            if case.keyed:
                assert await self.table.key_is_free(task) == (found.tasks[task].state in FINISHED), case
        assert found.members == expected.members
        assert found.batches == expected.batches
        assert found.counts == expected.counts


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> Open:
    return postgres_opener(postgres_server.create_database())


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def opening(request: pytest.FixtureRequest) -> Open:
    openings: dict[str, Open] = {"memory": open_memory, "sqlite": open_sqlite}
    return openings.get(request.param) or request.getfixturevalue("postgres")


@contextmanager
def judging(opening: Open, folder: Path, cases: Iterable[Case]) -> Iterator[Judge]:
    clock = FakeClock()
    with asyncio.Runner() as runner:
        table = Table(runner.run(_opened(opening, clock, folder)), clock, cases)
        try:
            runner.run(table.prepare())
            yield Judge(runner, table)
        finally:
            runner.run(table.store.close())


async def _opened(opening: Open, clock: FakeClock, folder: Path) -> FullStore:
    return await opening(clock, folder)


@pytest.fixture(scope="module")
def judge(opening: Open, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judging(opening, tmp_path_factory.mktemp("settle"), settle_cases()) as judge:
        yield judge


def _plain(case: Case) -> bool:
    return not case.bound and case.batch is None and not case.silent


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_plain_tasks_are_settled_by_the_rule(judge: Judge, transition: str) -> None:
    cases = [case for case in judge.table.settlements if case.transition == transition and _plain(case)]
    # SQLite has a statement of its own for groups of plain completions: one refusal in the group would avoid it.
    judge.check_settling(cases, together=transition != "completed")


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_tasks_with_a_batch_or_a_resource_are_settled_by_the_rule(judge: Judge, transition: str) -> None:
    cases = [case for case in judge.table.settlements if case.transition == transition and not _plain(case)]
    judge.check_settling([case for case in cases if not case.silent], together=True)
    judge.check_settling([case for case in cases if case.silent], together=False)


def test_tasks_of_dead_claims_are_lost_by_the_rule(opening: Open, tmp_path: Path) -> None:
    with judging(opening, tmp_path, lost_cases()) as judge:
        judge.check_losing(list(judge.table.settlements))


def test_the_table_has_every_answer_and_every_state(tmp_path: Path) -> None:
    """A table that brings nothing about proves nothing."""
    with judging(open_memory, tmp_path, settle_cases()) as judge:
        effects = judge.all_effects()
    assert {answer.why for answer, _ in effects} == {
        None,
        "the task does not exist",
        "the session is over",
        "the task is not running under this claim",
        "the time limit of the claim is over",
    }
    ends = [change for _, change in effects if isinstance(change, ClaimEnd)]
    assert {end.state for end in ends} == set(State) - {State.RUNNING}
    assert any(end.run is not None for end in ends)
    assert any(answer.applied and change is None for answer, change in effects), "nothing was repeated"
