"""The ledger: reading tasks, page by page, and their history."""

import pytest

from pitboss.engines.protocol import Page
from pitboss.model.filter import EVERYTHING, by, parsed
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Failed, Released, Snooze
from pitboss.model.task import Task
from pitboss.testing.conformance.bench import BROKEN, Bench


class LedgerReading:
    async def test_the_place_of_a_pending_task_is_counted_up_to_a_limit(self, bench: Bench) -> None:
        tasks = [await bench.add(priority=priority) for priority in (0, 5, 0, -1)]
        await bench.add(queue="other", priority=-9)
        await bench.add(delay=5, priority=-9)
        assert [await bench.store.tasks_before(task.id) for task in tasks] == [1, 3, 2, 0]
        assert [await bench.store.tasks_before(task.id, limit=2) for task in tasks] == [1, 2, 2, 0]
        (claim,) = await bench.claim()
        assert await bench.store.tasks_before(claim.id) is None
        assert await bench.store.tasks_before(bench.ids()) is None

    async def test_get_answers_in_the_order_asked_with_none_for_the_unknown(self, bench: Bench) -> None:
        tasks = [await bench.add() for _ in range(3)]
        stranger = bench.ids()
        found = await bench.store.get([tasks[2].id, stranger, tasks[0].id, tasks[2].id])
        assert found == [tasks[2], None, tasks[0], tasks[2]]
        assert await bench.store.get([]) == []

    async def test_an_empty_store_has_one_empty_page(self, bench: Bench) -> None:
        assert await bench.store.find(EVERYTHING) == Page([], None)
        assert (await bench.store.count(EVERYTHING)).number == 0

    async def test_newest_first_or_oldest_first(self, bench: Bench) -> None:
        tasks = [await bench.add(priority=rank) for rank in (5, 1, 3)]
        assert await bench.store.find(EVERYTHING) == Page(tasks[::-1], None)
        assert await bench.store.find(EVERYTHING, oldest_first=True) == Page(tasks, None)

    async def test_fifty_tasks_make_a_page_unless_told_otherwise(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(51)))
        page = await bench.store.find(EVERYTHING)
        assert (len(page.tasks), page.next is None) == (50, False)

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
    @pytest.mark.parametrize("oldest_first", [True, False])
    async def test_pages_join_without_gap_or_overlap(self, bench: Bench, limit: int, oldest_first: bool) -> None:
        tasks = [await bench.add() for _ in range(7)]
        seen = await _read_all(bench, limit, oldest_first)
        assert seen == [task.id for task in (tasks if oldest_first else reversed(tasks))]

    async def test_a_last_page_that_is_just_full_has_no_next(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(4)))
        page = await bench.store.find(EVERYTHING, limit=2)
        assert page.next is not None
        assert (await bench.store.find(EVERYTHING, limit=2, after=page.next)).next is None

    async def test_a_cursor_stands_while_tasks_come_go_and_change(self, bench: Bench) -> None:
        tasks = [await bench.add() for _ in range(6)]
        page = await bench.store.find(EVERYTHING, limit=3)
        newer = await bench.add()
        await bench.cancel(by(id=[tasks[3].id, tasks[1].id]))
        await bench.prune()
        rest = await bench.store.find(EVERYTHING, limit=10, after=page.next)
        assert [task.id for task in rest.tasks] == [tasks[2].id, tasks[0].id]
        assert newer.id not in [task.id for task in page.tasks + rest.tasks]

    async def test_a_filter_counts_before_the_page_does(self, bench: Bench) -> None:
        tasks = [await bench.add(queue="ab"[number % 2]) for number in range(8)]
        page = await bench.store.find(parsed("queue:b"), limit=3)
        assert [task.id for task in page.tasks] == [tasks[n].id for n in (7, 5, 3)]
        rest = await bench.store.find(parsed("queue:b"), limit=3, after=page.next)
        assert ([task.id for task in rest.tasks], rest.next) == ([tasks[1].id], None)
        assert (await bench.store.count(parsed("queue:b"))).number == 4

    async def test_reading_changes_nothing(self, bench: Bench) -> None:
        task = await bench.add(delay=1_000, expires_in=2_000)
        bench.clock.advance(1)
        await bench.store.find(EVERYTHING)
        await bench.store.count(parsed("state:pending"))
        await bench.store.attempts(task.id)
        await bench.became(task)

    async def test_a_task_that_never_ran_has_no_history(self, bench: Bench) -> None:
        task = await bench.add()
        assert await bench.store.attempts(task.id) == []
        assert await bench.store.attempts(bench.ids()) == []

    async def test_the_current_run_is_not_told_before_it_ends(self, bench: Bench) -> None:
        claim = await bench.started()
        assert await bench.history(claim) == []

    async def test_history_is_oldest_first_with_worker_and_times(self, bench: Bench) -> None:
        claim = await bench.started()
        bench.clock.advance(1)
        await bench.report(claim, Failed(BROKEN), worker="w1")
        bench.clock.advance(5)
        other = await bench.session("job")
        claim = await bench.take(session=other)
        bench.clock.advance(1)
        await bench.report(claim, Snooze(0), worker="w2", ran=300)
        claim = await bench.take()
        await bench.report(claim, Released())
        await bench.complete(await bench.take(), '"ok"')
        runs = await bench.history(claim)
        shown = [(run.claim, run.attempt, run.outcome, run.session, run.worker) for run in runs]
        assert shown == [
            (1, 1, "failed", bench.me.number, "w1"),
            (2, 2, "snoozed", other.number, "w2"),
            (4, 2, "completed", bench.me.number, None),
        ]
        assert runs[1].ended_at - runs[1].started_at == 300
        assert [run.error for run in runs] == [BROKEN, None, None]

    async def test_every_other_engine_on_the_store_reads_the_same(self, bench: Bench) -> None:
        task: Task = await bench.add(params='{"x":"ü"}')
        other = await bench.open_engine()
        assert await other.get([task.id]) == [task]
        assert (await other.find(EVERYTHING)).tasks == [task]
        assert [queue.counts for queue in await other.queues()] == [
            queue.counts for queue in await bench.store.queues()
        ]


async def _read_all(bench: Bench, limit: int, oldest_first: bool) -> list[TaskId]:
    seen: list[TaskId] = []
    after = None
    while True:
        page = await bench.store.find(EVERYTHING, limit=limit, after=after, oldest_first=oldest_first)
        assert len(page.tasks) <= limit
        seen += [task.id for task in page.tasks]
        after = page.next
        if after is None:
            return seen
