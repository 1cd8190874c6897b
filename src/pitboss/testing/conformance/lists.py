"""Lists: every index that serves a filter shows what there is, page by page, and a page that stopped says so."""

import msgspec
import pytest

from pitboss.engines.protocol import Page
from pitboss.model.filter import Filter, by, parsed
from pitboss.model.ids import TaskId
from pitboss.model.matching import matches
from pitboss.model.outcome import Failed, Transition
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Task, TaskError
from pitboss.testing.conformance import partitioned, scarcity
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.filters import assert_found

_DONE = Transition(state=State.COMPLETED, outcome="completed", charged=True)
_FAILED = Transition(state=State.FAILED, outcome="failed", charged=True)


class Lists:
    @pytest.mark.parametrize(("queues", "priorities"), [(1, 60), (60, 1), (12, 12)])
    async def test_pages_are_by_age_whatever_the_number_of_queues_and_priorities(
        self, bench: Bench, queues: int, priorities: int
    ) -> None:
        tasks = [bench.new(queue=f"q{n * 7 % queues}", priority=n * 5 % priorities) for n in range(150)]
        await bench.put(*tasks, bench.new(delay=1), bench.new(handler="stranger"))
        claims = await bench.claim(30)
        await bench.settle(*(Settlement(id=one.id, token=one.token, transition=_DONE) for one in claims[:20]))
        everything = await bench.every_task()
        for text in ("state:pending", "-state:running", "state:completed", "queue:q*", "task:job", "queue:q0"):
            await assert_found(bench, parsed(text), everything, text)
            await _assert_pages(bench, parsed(text), everything)

    @pytest.mark.parametrize("oldest_first", [True, False])
    @pytest.mark.parametrize("text", ["tag:rare", "-tag:common", "args.n:0", "rare", "state:pending tag:rare"])
    async def test_a_page_ends_when_enough_tasks_were_looked_at(
        self, bench: Bench, text: str, oldest_first: bool
    ) -> None:
        for n in range(30):
            # Each in a millisecond of its own: `covered` is as exact as ids are.
            bench.clock.advance("1ms")
            tag = "common" if n % 7 else "rare"
            await bench.add(tags=(tag,), params=f'{{"n":{n % 7},"text":"{tag}"}}')
        expected = [task.id for task in await bench.every_task() if "rare" in task.tags]
        seen: list[TaskId] = []
        pages: list[Page] = []
        while not pages or pages[-1].next is not None:
            after = pages[-1].next if pages else None
            pages.append(await bench.store.find(parsed(text), limit=2, after=after, oldest_first=oldest_first, most=4))
            seen += [task.id for task in pages[-1].tasks]
        assert seen == (expected if oldest_first else expected[::-1])
        covered = [page.covered for page in pages if page.covered is not None]
        assert len(covered) >= 5
        assert covered == sorted(covered, reverse=not oldest_first)
        assert pages[-1].covered is None

    async def test_a_page_says_how_far_it_looked(self, bench: Bench) -> None:
        tasks = []
        for _ in range(5):
            bench.clock.advance("1s")
            tasks.append(await bench.add())
        page = await bench.store.find(parsed("tag:none"), limit=1, most=2)
        assert page == Page([], tasks[3].id, tasks[3].created_at)
        page = await bench.store.find(parsed("tag:none"), limit=1, most=2, oldest_first=True)
        assert page == Page([], tasks[1].id, tasks[1].created_at)
        assert await bench.store.find(parsed("tag:none"), limit=1, most=5) == Page([], None)
        assert await bench.store.find(parsed("tag:none"), limit=5, most=1) == Page([], None)

    async def test_a_count_that_stopped_says_so(self, bench: Bench) -> None:
        await bench.put(*(bench.new(tags=("x",)) for _ in range(6)))
        assert await bench.store.count(parsed("tag:x"), most=4) == (4, True)
        assert await bench.store.count(parsed("-tag:x"), most=4) == (0, True)
        assert await bench.store.count(parsed("tag:x"), most=6) == (6, False)
        assert await bench.store.count(parsed("state:pending age:>=0s"), most=4) == (4, True)

    @pytest.mark.parametrize("text", ["", "state:pending", "queue:de*", "-state:failed queue:default"])
    async def test_states_and_queues_are_counted_exactly(self, bench: Bench, text: str) -> None:
        await bench.put(*(bench.new() for _ in range(6)))
        assert await bench.store.count(parsed(text), most=1) == (6, False)

    async def test_failures_are_grouped_by_fingerprint_and_handler(self, bench: Bench) -> None:
        await bench.register("other")
        other = msgspec.structs.replace(BROKEN, fingerprint="fedcba987654")
        failed = [
            await _failed(bench, handler, error)
            for handler, error in [("job", BROKEN), ("job", other), ("other", BROKEN), ("job", BROKEN)]
        ]
        await bench.complete(await bench.started())
        groups = {(one.handler, one.fingerprint): one for one in await bench.store.failures()}
        counts = {key: one.count for key, one in groups.items()}
        assert counts == {
            ("job", BROKEN.fingerprint): (2, False),
            ("job", other.fingerprint): (1, False),
            ("other", BROKEN.fingerprint): (1, False),
        }
        largest = groups["job", BROKEN.fingerprint]
        ends = (failed[0].finished_at, failed[3].finished_at)
        assert (largest.first, largest.last, largest.newest) == (*ends, failed[3].id)
        (counted,) = [one for one in await bench.store.failures(most=1) if one.newest == failed[3].id]
        assert counted.count == (1, True)
        await bench.retry(by(state="failed"))
        assert await bench.store.failures() == []

    @pytest.mark.parametrize("groups", [1, 30])
    async def test_failures_without_an_error_are_a_group_of_their_own(self, bench: Bench, groups: int) -> None:
        for n in range(groups):
            await _failed(bench, "job", msgspec.structs.replace(BROKEN, fingerprint=f"{n:012}" if n else ""))
        for _ in range(2):
            await bench.write(await bench.started(), _FAILED)
        found = sorted((str(one.fingerprint), one.count.number) for one in await bench.store.failures())
        assert found == sorted([("None", 2), ("", 1), *((f"{n:012}", 1) for n in range(1, groups))])


class ListsOfItems:
    async def test_items_are_found_by_their_batch(self, bench: Bench) -> None:
        batches = [await bench.create(*(bench.new(queue="ab"[n % 2]) for n in range(6))) for _ in range(2)]
        await bench.put(bench.new(), bench.new())
        claims = await bench.claim(3)
        await bench.complete(claims[0])
        await bench.write(claims[1], _FAILED)
        tasks = await bench.every_task()
        for states in ("", " state:held", " state:completed,failed", " -state:held", " queue:a", " finished:<1h"):
            for batch in batches:
                await assert_found(bench, parsed(f"batch:{batch.id}{states}"), tasks, states)
        await assert_found(bench, by(batch=[one.id for one in batches]), tasks, "both")
        await _assert_pages(bench, by(batch=[one.id for one in batches]), tasks)


class ListsOfMembers:
    async def test_tasks_are_found_by_the_member_that_they_held(self, bench: Bench) -> None:
        await scarcity.pool(bench, "a", "b", limits=scarcity.UNLIMITED)
        claims = (await scarcity.contested(bench, 12)).claims
        for claim in claims[:4]:
            await scarcity.done(bench, claim)
        for claim in claims[4:8]:
            await scarcity.failed(bench, claim, scarcity.OK)
        await scarcity.handed_on(bench, claims[8])
        tasks = await bench.every_task()
        for states in ("", " state:failed", " state:running,pending", " -state:running", " finished:>=0s"):
            for name in ("a", "b", "a,proxies/b", "*", "c"):
                text = f"resource:proxies/{name}{states}"
                await assert_found(bench, parsed(text), tasks, text)
                await _assert_pages(bench, parsed(text), tasks)


class ListsOfKeys:
    async def test_tasks_are_found_by_their_partition_key(self, bench: Bench) -> None:
        await partitioned.divide(bench)
        for key in "abcab":
            await partitioned.add(bench, key)
        await partitioned.add(bench, "a", delay=1_000_000)
        await partitioned.add(bench, "b", handler="stranger")
        claims = await partitioned.given(bench, None, 4)
        await bench.complete(claims[0])
        await bench.write(claims[1], _FAILED)
        tasks = await bench.every_task()
        for states in ("", " state:completed,failed", " state:pending", " -state:pending", " queue:work state:running"):
            for key in ("a", "b", "a,b", "*", "d"):
                text = f"partition:{key}{states}"
                await assert_found(bench, parsed(text), tasks, text)
                await _assert_pages(bench, parsed(text), tasks)


async def _assert_pages(bench: Bench, wanted: Filter, tasks: list[Task]) -> None:
    """Page by page, in both directions."""
    for oldest_first in (True, False):
        expected = [task.id for task in tasks if matches(wanted, task, bench.now)]
        seen: list[str] = []
        after = None
        while True:
            page = await bench.store.find(wanted, limit=11, after=after, oldest_first=oldest_first)
            seen += [task.id for task in page.tasks]
            after = page.next
            if after is None:
                break
        assert seen == (expected if oldest_first else expected[::-1])


async def _failed(bench: Bench, handler: str, error: TaskError) -> Task:
    bench.clock.advance("1s")
    claim = await bench.started(handler=handler, max_attempts=1)
    await bench.report(claim, Failed(error))
    return await bench.task(claim.id)
