"""The indexes of the memory engine equal a recount, and a claim reads only the tasks that it needs."""

from collections.abc import Container, Iterable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pitboss.engines.memory import MemoryEngine
from pitboss.engines.memory.indexes import TaskIndexes
from pitboss.engines.memory.members import PoolMembers
from pitboss.model.leasing import placed
from pitboss.model.limits import Window
from pitboss.model.picking import ANY, added
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, NewResource, PoolRules, Resource, Stage, Want
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.states import FINISHED, State
from pitboss.model.task import NewTask, Task
from pitboss.testing.clock import FakeClock

queues = st.sampled_from("pq")
tasks = st.builds(
    Task,
    id=st.sampled_from("abcdefgh"),
    handler=st.sampled_from(["h", "i"]),
    queue=queues,
    state=st.sampled_from(State),
    params=st.just("{}"),
    priority=st.integers(0, 2),
    run_at=st.integers(1, 5),
    finished_at=st.integers(1, 5),
    reason=st.sampled_from(["handler", "batch"]),
    batch=st.just("b"),
)


def indexed(writes: list[Task]) -> tuple[TaskIndexes, list[Task]]:
    indexes = TaskIndexes()
    known: dict[str, Task] = {}
    for task in writes:
        if task.id in known:
            indexes.remove(known[task.id])
        known[task.id] = task
        indexes.add(task)
    return indexes, list(known.values())


@given(st.lists(tasks, max_size=30))
def test_indexes_hold_what_a_recount_finds(writes: list[Task]) -> None:
    indexes, known = indexed(writes)
    held = [task for task in known if task.state is State.HELD]
    for state in State:
        assert indexes.in_state(state) == sorted(task.id for task in known if task.state is state)
    assert list(indexes.pending("pq")) == [
        task.id for task in sorted(known, key=lambda task: (task.priority, task.id)) if task.state is State.PENDING
    ]
    assert indexes.held_for(["h"], None) == sorted(
        task.id for task in held if task.reason == "handler" and task.handler == "h"
    )
    assert set(indexes.undrawn("b", "p", 99)) == {
        task.id for task in held if task.reason == "batch" and task.queue == "p"
    }
    assert sorted(indexes.due("p", 3)) == sorted(
        task.id for task in known if task.state is State.SCHEDULED and task.queue == "p" and (task.run_at or 0) <= 3
    )
    assert indexes.ended_since("b", 3) == sum(task.state in FINISHED and (task.finished_at or 0) >= 3 for task in known)


@given(st.lists(tasks, max_size=20), queues)
def test_a_queue_that_is_closed_on_the_way_gives_no_more(writes: list[Task], closing: str) -> None:
    indexes, known = indexed(writes)
    closed: set[str] = set()
    given_out = []
    by_id = {task.id: task for task in known}
    for task in indexes.pending("pq", closed):
        given_out.append(by_id[task].queue)
        if by_id[task].queue == closing:
            closed.add(closing)
    assert given_out.count(closing) <= 1
    assert len(given_out) - given_out.count(closing) == sum(
        task.state is State.PENDING and task.queue != closing for task in known
    )


def members(*names: str, **limits: Any) -> PoolMembers:
    pool = PoolMembers("p")
    pool.rules = PoolRules(limits=Limits(**limits))
    for name in names:
        pool.write(added("p", NewResource(name=name), pool.rules, 0, 100))
    return pool


acts = st.lists(st.tuples(st.sampled_from(["use", "end", "wait", "back"]), st.sampled_from("abc")), max_size=40)


@given(acts)
def test_the_stages_of_members_are_what_a_recount_finds_whatever_the_clock_does(steps: list[tuple[str, str]]) -> None:
    pool, now = members("a", "b", "c", windows=(Window(2, 10),), min_delay=3), 100
    for act, name in steps:
        now += {"wait": 4, "back": -6}.get(act, 0)
        pool.wake(now)
        member = pool.all[name]
        if act == "use" and member.stage is Stage.READY:
            pool.grant(member, ANY, now)
        elif act == "end" and member.in_use:
            pool.hand_back(member, None, (), now)
        expected = [placed(one, pool.rules, now) for one in pool.all.values()]
        assert list(pool.all.values()) == expected
        shown = pool.view()
        assert shown.stages == {stage: count for stage in Stage if (count := _count(expected, stage))}
        assert shown.next_at == min((one.available_at for one in expected if one.stage is Stage.AWAY), default=None)
        assert len(pool.ready) == _count(expected, Stage.READY)


def _count(members: list[Resource], stage: Stage) -> int:
    return sum(one.stage is stage for one in members)


class CountingIndexes(TaskIndexes):
    """Counts how many tasks are read."""

    read = 0

    def pending(self, queues: Iterable[str], closed: Container[str] = ()) -> Iterator[str]:
        for task in super().pending(queues, closed):
            self.read += 1
            yield task


async def _waiting(count: int, want: Want | None) -> tuple[MemoryEngine, CountingIndexes, ClaimRequest]:
    engine = MemoryEngine(clock=FakeClock())
    engine.tables.indexes = indexes = CountingIndexes()
    await engine.register([HandlerInfo(name="h", queue="q", resources="p")])
    session = await engine.open_session(SessionInfo(host="here", handlers=("h",)))
    await engine.put([NewTask(id=f"{number:05}", handler="h", queue="q", want=want) for number in range(count)])
    return engine, indexes, ClaimRequest(session=session.number, slots=(Slot(free=5, ahead=5),))


async def test_a_claim_without_a_ready_member_reads_next_to_no_tasks() -> None:
    engine, indexes, request = await _waiting(2_000, None)
    claimed = await engine.claim(request)
    assert (len(claimed.claims), len(claimed.shortages)) == (0, 1)
    assert indexes.read <= 2


async def test_a_claim_that_is_filled_reads_no_further() -> None:
    engine, indexes, request = await _waiting(2_000, None)
    await engine.add_resources("p", [NewResource(name=f"m{number}") for number in range(9)])
    claimed = await engine.claim(request)
    assert (len(claimed.claims), claimed.shortages) == (5, ())
    assert indexes.read <= 6, "a queue with a resource gives nothing ahead"


async def test_tasks_that_no_member_fits_are_passed_by_however_many_they_are() -> None:
    engine, _, request = await _waiting(2_000, Want(labels=("eu",)))
    await engine.add_resources("p", [NewResource(name="m")])
    await engine.put([NewTask(id="99999", handler="h", queue="q")])
    claimed = await engine.claim(request)
    assert [claim.id for claim in claimed.claims] == ["99999"]
