"""The life of a task, step by step, and the tasks around it."""

import msgspec

from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.snapshot import CurrentTask, Snapshot, WorkerFigures, WorkerState
from pitboss.operate.task_life import Step, life, read_relatives, worker_of
from pitboss.operate.tasks import read_task
from tests.operate.bench import Bench


async def steps(store: Bench, task: str) -> list[Step]:
    page = await read_task(store, task, store.now)
    hosts = {one.number: one.info.host for one in await store.sessions()}
    return life(page.task, page.attempts, page.why, hosts, store.now)


async def test_a_task_that_waits_has_been_put(store: Bench) -> None:
    (task,) = await store.add(store.new())
    store.time.advance("5s")
    put, waits = await steps(store, task)
    assert (put.kind, put.text) == ("put", "put by a caller")
    assert (waits.kind, waits.waited) == ("pending", 5 * SECOND)
    assert waits.text


async def test_runs_are_steps_and_the_last_one_says_why_it_failed(store: Bench) -> None:
    (task,) = await store.add(store.new())
    store.time.advance("3s")
    await store.run_all(fail="no route", retryable=True)
    assert [one.kind for one in await steps(store, task)] == ["put", "running", "failed", "scheduled"]
    store.time.advance("1h")
    await store.run_all(fail="no route")
    found = await steps(store, task)
    assert [one.kind for one in found] == ["put", "running", "failed", "running", "failed"]
    assert (found[1].text, found[1].waited) == ("attempt 1", 3 * SECOND)
    assert found[2].text == "OSError: no route"
    await store.retry(by(id=task))
    assert [one.kind for one in await steps(store, task)][-2:] == ["failed", "pending"]
    await store.cancel(EVERYTHING, reason="not needed")
    assert (await steps(store, task))[-1].text == "not needed"


async def test_a_running_task_has_a_worker_and_a_host(store: Bench) -> None:
    (task,) = await store.add(store.new())
    worker = WorkerFigures(
        name="default-1", state=WorkerState.PROCESSING, tasks=(CurrentTask(id=task, handler="greet"),)
    )
    session = await store.manager(Snapshot(workers=(worker,)))
    await store.claim(ClaimRequest(session=session, slots=(Slot(free=1),)))
    store.time.advance("4s")
    (found,) = await store.get([task])
    assert found is not None
    name = worker_of(found, await store.sessions())
    assert name == "default-1"
    page = await read_task(store, task, store.now)
    last = life(msgspec.structs.replace(found, worker=name), (), page.why, {session: "box1"}, store.now)[-1]
    assert (last.kind, last.text, last.ran) == ("running", "attempt 1 in default-1 on box1", 4 * SECOND)


async def test_parents_and_children_are_found(store: Bench) -> None:
    (parent,) = await store.add(store.new())
    store.time.advance("1h")
    children = await store.add(*(store.new(parent=parent) for _ in range(21)))
    (task, child) = await store.get([parent, children[0]])
    assert task is not None
    assert child is not None
    found = await read_relatives(store, task, store.now)
    assert ([one.id for one in found.children], found.more, found.parent) == (children[:20], True, None)
    assert (await read_relatives(store, child, store.now)).parent == task
