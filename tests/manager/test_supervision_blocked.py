"""Handlers that do not yield: a blocked event loop, an ignored cancellation, a thread without end, a deaf worker."""

import re

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.states import State
from tests.manager.house import House, alive, pool


def test_a_blocked_event_loop_is_named_with_its_place_and_ended_at_the_limit(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, unresponsive=8 * SECOND), ttl="1500ms")
    house.until(lambda: manager.said("is ready"))
    (worker,) = manager.workers()
    (blocker,) = house.put("blocks_once", seconds=60)
    house.until(lambda: house.traced("blocks"))
    house.until(lambda: manager.said("its event loop or its interpreter is blocked; it is at"), within=9)
    assert alive(worker.pid), "named before it is ended"
    (named,) = (line for line in manager.lines if "it is at" in line)
    assert re.search(r'it is at File ".*trouble.py", line \d+ in blocks_once', named)
    house.until(lambda: "its event loop is blocked" in [one.why for one in house.workers()], within=5)
    house.until(lambda: house.task(blocker).state is State.COMPLETED, within=15)
    assert not alive(worker.pid)
    task = house.task(blocker)
    assert (task.attempts, task.crashes, task.losses) == (1, 1, 1)
    crashed, completed = house.attempts(blocker)
    assert (crashed.outcome, completed.outcome) == ("crashed", "completed")
    assert crashed.error is not None
    assert crashed.error.category == "blocked"
    assert "in blocks_once" in crashed.error.message
    assert "Current thread" in crashed.error.traceback


def test_an_interpreter_that_is_held_is_named_and_ended(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, unresponsive=7 * SECOND))
    (holder,) = house.put("holds_the_interpreter")
    house.until(lambda: manager.said("it is at"), within=15)
    house.until(lambda: house.task(holder).state is State.COMPLETED, within=15)
    assert [one.outcome for one in house.attempts(holder)] == ["crashed", "completed"]
    assert any("/re/" in line or "holds_the_interpreter" in line for line in manager.lines if "it is at" in line)


def test_a_task_that_blocks_past_its_time_limit_times_out(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, concurrency=2))
    house.until(lambda: manager.said("is ready"))
    (blocker,) = house.put("blocks_past_its_time", seconds=60)
    house.until(lambda: house.traced("blocks"))
    house.until(lambda: house.task(blocker).state is State.FAILED, within=9)
    task = house.task(blocker)
    assert (task.outcome, task.attempts, task.losses, task.crashes) == ("timed_out", 1, 0, 0)
    assert task.error is not None
    assert "and a task is past its time limit; it was at" in task.error.message
    assert "in blocks_past_its_time" in task.error.message
    assert manager.said("in blocks_past_its_time")
    (after,) = house.put("quick")
    house.until(lambda: house.task(after).state is State.COMPLETED)
    assert (house.task(after).attempts, house.task(after).losses) == (1, 0)


def test_the_neighbours_of_a_task_that_blocks_past_its_time_limit_are_not_charged(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, concurrency=3))
    house.until(lambda: manager.said("is ready"))
    (neighbour,) = house.put("slow", seconds=3)
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
    manager = house.manager(pool(workers=2, concurrency=4), ttl="1500ms")
    house.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    house.put("deafens")
    house.until(lambda: house.traced("deaf"))
    deaf = int(house.traced("deaf")[0][3])
    ids = house.put("slow", 8, seconds=0.1)
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in ids), within=15)
    house.until(lambda: manager.said("answers, but does not begin the tasks that it is given; it is ended"), within=5)
    house.until(lambda: not alive(deaf), within=5)
    for one in ids:
        task = house.task(one)
        assert (task.attempts, task.losses, task.crashes) == (1, 0, 0)
    assert len(house.traced("ended")) == 8
    assert manager.end() == 0


def test_a_worker_is_deaf_also_while_an_old_task_runs_on_in_it(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, concurrency=4))
    (long,) = house.put("slow", seconds=12)
    house.until(lambda: house.traced("began"))
    house.put("deafens")
    house.until(lambda: house.traced("deaf"))
    (task,) = house.put("quick")
    house.until(lambda: house.task(task).state is State.COMPLETED, within=9, what="it need not wait for the long one")
    assert manager.said("does not begin the tasks that it is given")
    for one in (task, long):
        assert (house.task(one).losses, house.task(one).crashes) == (0, 0)
