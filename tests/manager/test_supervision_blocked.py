"""Handlers that do not yield: a blocked event loop, an ignored cancellation, a thread without end, a deaf worker."""

import re
from functools import partial

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.states import State
from tests.manager.drills import ready
from tests.manager.house import House, ManagerProcess, alive, pool


def test_blocked_workers_are_named_with_their_place_and_ended(troubled: House) -> None:
    house = troubled
    names = ("loop", "held", "late")
    specs = [pool(name, workers=1, queues=(name,), concurrency=2, unresponsive=8 * SECOND) for name in names]
    manager = house.manager(*specs, ttl="1500ms")
    ready(house, manager, 3)
    before = [worker.pid for worker in manager.workers()]
    (blocker,) = house.put("blocks_once", queue="loop", seconds=60)
    (holder,) = house.put("holds_the_interpreter", queue="held")
    (late,) = house.put("blocks_past_its_time", queue="late", seconds=60)
    house.until(lambda: len(house.traced("blocks")) == 2 and house.traced("holds"))
    house.until(lambda: all(_named(manager, name) for name in ("loop", "held")), within=10)
    assert sum(map(alive, before)) >= 2, "they are named before they are ended"
    assert re.search(r'it is at File ".*trouble.py", line \d+ in blocks_once', _named(manager, "loop"))
    assert "holds_the_interpreter" in _named(manager, "held") or "/re/" in _named(manager, "held")
    house.until(lambda: "its event loop is blocked" in [one.why for one in house.workers()], within=10)
    house.until(lambda: house.finished() == 3, within=20)
    assert not any(map(alive, before))
    _was_blocked(house, blocker, "in blocks_once")
    _was_blocked(house, holder, "")
    _timed_out(house, late)
    (after,) = house.put("quick", queue="late")
    house.until(lambda: house.task(after).state is State.COMPLETED)
    assert (house.task(after).attempts, house.task(after).losses) == (1, 0)
    assert manager.end() == 0


def _named(manager: ManagerProcess, name: str) -> str:
    said = (line for line in manager.lines if f"worker {name}-1 has not answered" in line and "it is at" in line)
    return next(said, "")


def _was_blocked(house: House, task: str, place: str) -> None:
    found = house.task(task)
    assert (found.state, found.attempts, found.crashes, found.losses) == (State.COMPLETED, 1, 1, 1)
    crashed, completed = house.attempts(task)
    assert (crashed.outcome, completed.outcome) == ("crashed", "completed")
    assert crashed.error is not None
    assert crashed.error.category == "blocked"
    assert place in crashed.error.message
    assert "Current thread" in crashed.error.traceback


def _timed_out(house: House, task: str) -> None:
    found = house.task(task)
    assert found.state is State.FAILED
    assert (found.outcome, found.attempts, found.losses, found.crashes) == ("timed_out", 1, 0, 0)
    assert found.error is not None
    assert "and a task is past its time limit; it was at" in found.error.message
    assert "in blocks_past_its_time" in found.error.message


def test_the_neighbours_of_a_task_that_blocks_past_its_time_limit_are_not_charged(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, concurrency=3))
    house.until(lambda: manager.said("is ready"))
    (neighbour,) = house.put("slow", seconds=1)
    house.until(lambda: house.traced("began"))
    (blocker,) = house.put("blocks_past_its_time", seconds=60)
    later = house.put("quick", 5)
    # With others beside it, it is not sure who blocks. All go back, and each runs by itself: then it is.
    house.until(lambda: house.finished() == 7, within=25)
    task = house.task(blocker)
    assert (task.state, task.outcome, task.attempts, task.crashes) == (State.FAILED, "timed_out", 1, 0)
    for one in (neighbour, *later):
        innocent = house.task(one)
        assert (innocent.state, innocent.attempts, innocent.crashes) == (State.COMPLETED, 1, 0), innocent
    assert manager.end() == 0


def test_what_ignores_its_end_is_settled_and_its_worker_replaced_in_peace(troubled: House) -> None:
    house = troubled
    names = ("timeout", "cancel", "thread")
    manager = house.manager(*(pool(name, workers=1, queues=(name,), concurrency=4) for name in names), ttl="1500ms")
    house.until(lambda: all(manager.said(f"{name}-1 is ready") for name in names))
    before = {worker.pid for worker in manager.workers()}
    (timeout,) = house.put("stubborn", queue="timeout")
    (cancel,) = house.put("stubborn_without_limit", queue="cancel")
    (thread,) = house.put("thread_forever", queue="thread")
    neighbours = [house.put("slow", queue=name, seconds=5)[0] for name in names]
    house.until(lambda: house.traced("stubborn"))
    house.do(house.engine.cancel(by(id=cancel), reason="bored"))
    house.until(lambda: all(house.task(one).state.finished for one in (timeout, cancel, thread)), within=10)
    assert (house.task(timeout).state, house.task(timeout).outcome) == (State.FAILED, "timed_out")
    assert (house.task(thread).state, house.task(thread).outcome) == (State.FAILED, "timed_out")
    assert house.task(cancel).state is State.CANCELLED
    house.until(lambda: not before & {worker.pid for worker in manager.workers()}, within=15, what="all are replaced")
    for name in names:
        assert manager.said(f"worker {name}-1 has 1 task(s) that do not return; it is replaced")
    # Their results have been heard; that they are written takes a moment more.
    house.until(lambda: all(house.task(one).state.finished for one in neighbours), within=5)
    for one in neighbours:
        innocent = house.task(one)
        assert (innocent.state, innocent.attempts, innocent.losses) == (State.COMPLETED, 1, 0)
    after = (
        house.put("quick", queue="timeout") + house.put("quick", queue="cancel") + house.put("quick", queue="thread")
    )
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in after))
    # A replaced worker is no crash, and is not to be told as one.
    assert not manager.said("was killed by")
    assert {worker.crashes for worker in house.workers()} == {0}
    assert manager.end() == 0


def test_a_cancelled_handler_may_clean_up(troubled: House) -> None:
    house = troubled
    house.manager(pool(workers=1), ttl="600ms")
    (task,) = house.put("cleans_up", seconds=1.5)
    house.until(lambda: house.traced("began"))
    house.do(house.engine.cancel(by(id=task), reason="bored"))
    house.until(lambda: house.task(task).state is State.CANCELLED, within=10)
    assert house.traced("cleaned"), "the cancellation was said again, and broke into its clean-up"


def test_a_worker_that_beats_but_begins_nothing_is_ended_and_its_tasks_run_elsewhere(troubled: House) -> None:
    house = troubled
    manager = house.manager(
        pool("deaf", workers=2, queues=("deaf",), concurrency=4),
        pool("half", workers=1, queues=("half",), concurrency=4),
    )
    ready(house, manager, 3)
    # One has nothing else to do, the other still runs a task that it heard of before.
    (long,) = house.put("slow", queue="half", seconds=60)
    house.until(lambda: house.traced("began"))
    house.put("deafens", queue="deaf")
    house.put("deafens", queue="half")
    house.until(lambda: len(house.traced("deaf")) == 2)
    deaf = [int(line[3]) for line in house.traced("deaf")]
    ids = house.put("slow", 8, queue="deaf", seconds=0.1) + house.put("quick", queue="half")
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in ids), within=15)
    for name in ("deaf-1", "half-1"):
        told = f"worker {name} answers, but does not begin the tasks that it is given; it is killed"
        house.until(partial(_said_of_either, manager, told), within=5)
    house.until(lambda: not any(map(alive, deaf)), within=5)
    for one in (*ids, long):
        task = house.task(one)
        assert (task.losses, task.crashes) == (0, 0)
    assert len(house.traced("ended")) == 8


def _said_of_either(manager: ManagerProcess, text: str) -> bool:
    return manager.said(text) or manager.said(text.replace("deaf-1", "deaf-2"))
