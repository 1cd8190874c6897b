"""Handlers that block: a blocked event loop, an ignored cancellation, a thread without end, a deaf worker."""

import re
from functools import partial

from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.states import State
from tests.manager.cluster import Cluster, ManagerProcess, alive, pool
from tests.manager.drills import ready


def test_blocked_workers_are_named_with_their_place_and_ended(troubled: Cluster) -> None:
    cluster = troubled
    names = ("loop", "held", "late")
    specs = [pool(name, workers=1, queues=(name,), concurrency=2, unresponsive=8 * SECOND) for name in names]
    manager = cluster.manager(*specs, ttl="1500ms")
    ready(cluster, manager, 3)
    before = [worker.pid for worker in manager.workers()]
    (blocker,) = cluster.put("blocks_once", queue="loop", seconds=60)
    (holder,) = cluster.put("holds_the_interpreter", queue="held")
    (late,) = cluster.put("blocks_past_its_time", queue="late", seconds=60)
    cluster.until(lambda: len(cluster.traced("blocks")) == 2 and cluster.traced("holds"))
    cluster.until(lambda: all(_named(manager, name) for name in ("loop", "held")), within=10)
    assert sum(map(alive, before)) >= 2, "they are named before they are ended"
    assert re.search(r'it is at File ".*trouble.py", line \d+ in blocks_once', _named(manager, "loop"))
    assert "holds_the_interpreter" in _named(manager, "held") or "/re/" in _named(manager, "held")
    cluster.until(lambda: "its event loop is blocked" in [one.why for one in cluster.workers()], within=10)
    cluster.until(lambda: cluster.finished() == 3, within=20)
    assert not any(map(alive, before))
    _was_blocked(cluster, blocker, "in blocks_once")
    _was_blocked(cluster, holder, "")
    _timed_out(cluster, late)
    (after,) = cluster.put("quick", queue="late")
    cluster.until(lambda: cluster.task(after).state is State.COMPLETED)
    assert (cluster.task(after).attempts, cluster.task(after).losses) == (1, 0)
    assert manager.end() == 0


def _named(manager: ManagerProcess, name: str) -> str:
    said = (line for line in manager.lines if f"worker {name}-1 has not answered" in line and "it is at" in line)
    return next(said, "")


def _was_blocked(cluster: Cluster, task: str, place: str) -> None:
    found = cluster.task(task)
    assert (found.state, found.attempts, found.crashes, found.losses) == (State.COMPLETED, 1, 1, 1)
    crashed, completed = cluster.attempts(task)
    assert (crashed.outcome, completed.outcome) == ("crashed", "completed")
    assert crashed.error is not None
    assert crashed.error.category == "blocked"
    assert place in crashed.error.message
    assert "Current thread" in crashed.error.traceback


def _timed_out(cluster: Cluster, task: str) -> None:
    found = cluster.task(task)
    assert found.state is State.FAILED
    assert (found.outcome, found.attempts, found.losses, found.crashes) == ("timed_out", 1, 0, 0)
    assert found.error is not None
    assert "and a task is past its time limit; it was at" in found.error.message
    assert "in blocks_past_its_time" in found.error.message


def test_the_neighbours_of_a_task_that_blocks_past_its_time_limit_are_not_charged(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(pool(workers=1, concurrency=3))
    cluster.until(lambda: manager.said("is ready"))
    (neighbour,) = cluster.put("slow", seconds=1)
    cluster.until(lambda: cluster.traced("began"))
    (blocker,) = cluster.put("blocks_past_its_time", seconds=60)
    later = cluster.put("quick", 5)
    # With others beside it, it is unclear which task blocks. All go back and run alone, which makes it clear.
    cluster.until(lambda: cluster.finished() == 7, within=25)
    task = cluster.task(blocker)
    assert (task.state, task.outcome, task.attempts, task.crashes) == (State.FAILED, "timed_out", 1, 0)
    for one in (neighbour, *later):
        innocent = cluster.task(one)
        assert (innocent.state, innocent.attempts, innocent.crashes) == (State.COMPLETED, 1, 0), innocent
    assert manager.end() == 0


def test_what_ignores_its_end_is_settled_and_its_worker_replaced_in_peace(troubled: Cluster) -> None:
    cluster = troubled
    names = ("timeout", "cancel", "thread")
    manager = cluster.manager(*(pool(name, workers=1, queues=(name,), concurrency=4) for name in names), ttl="1500ms")
    cluster.until(lambda: all(manager.said(f"{name}-1 is ready") for name in names))
    before = {worker.pid for worker in manager.workers()}
    (timeout,) = cluster.put("stubborn", queue="timeout")
    (cancel,) = cluster.put("stubborn_without_limit", queue="cancel")
    (thread,) = cluster.put("thread_forever", queue="thread")
    neighbours = [cluster.put("slow", queue=name, seconds=5)[0] for name in names]
    cluster.until(lambda: cluster.traced("stubborn"))
    cluster.do(cluster.engine.cancel(by(id=cancel), reason="bored"))
    cluster.until(lambda: all(cluster.task(one).state.finished for one in (timeout, cancel, thread)), within=10)
    assert (cluster.task(timeout).state, cluster.task(timeout).outcome) == (State.FAILED, "timed_out")
    assert (cluster.task(thread).state, cluster.task(thread).outcome) == (State.FAILED, "timed_out")
    assert cluster.task(cancel).state is State.CANCELLED
    cluster.until(lambda: not before & {worker.pid for worker in manager.workers()}, within=15, what="all are replaced")
    for name in names:
        assert manager.said(f"worker {name}-1 has 1 task(s) that do not return; it is replaced")
    # The manager has their results; writing them takes another moment.
    cluster.until(lambda: all(cluster.task(one).state.finished for one in neighbours), within=5)
    for one in neighbours:
        innocent = cluster.task(one)
        assert (innocent.state, innocent.attempts, innocent.losses) == (State.COMPLETED, 1, 0)
    after = (
        cluster.put("quick", queue="timeout")
        + cluster.put("quick", queue="cancel")
        + cluster.put("quick", queue="thread")
    )
    cluster.until(lambda: all(cluster.task(one).state is State.COMPLETED for one in after))
    # A replacement is not a crash, and must not be announced as one.
    assert not manager.said("was killed by")
    assert {worker.crashes for worker in cluster.workers()} == {0}
    assert manager.end() == 0


def test_a_cancelled_handler_may_clean_up(troubled: Cluster) -> None:
    cluster = troubled
    cluster.manager(pool(workers=1), ttl="600ms")
    (task,) = cluster.put("cleans_up", seconds=1.5)
    cluster.until(lambda: cluster.traced("began"))
    cluster.do(cluster.engine.cancel(by(id=task), reason="bored"))
    cluster.until(lambda: cluster.task(task).state is State.CANCELLED, within=10)
    assert cluster.traced("cleaned"), "the cancellation was said again, and broke into its clean-up"


def test_a_worker_that_beats_but_begins_nothing_is_ended_and_its_tasks_run_elsewhere(troubled: Cluster) -> None:
    cluster = troubled
    manager = cluster.manager(
        pool("deaf", workers=2, queues=("deaf",), concurrency=4),
        pool("half", workers=1, queues=("half",), concurrency=4),
    )
    ready(cluster, manager, 3)
    # One has nothing else to do, the other still runs an earlier task.
    (long,) = cluster.put("slow", queue="half", seconds=60)
    cluster.until(lambda: cluster.traced("began"))
    cluster.put("deafens", queue="deaf")
    cluster.put("deafens", queue="half")
    cluster.until(lambda: len(cluster.traced("deaf")) == 2)
    deaf = [int(line[3]) for line in cluster.traced("deaf")]
    ids = cluster.put("slow", 8, queue="deaf", seconds=0.1) + cluster.put("quick", queue="half")
    cluster.until(lambda: all(cluster.task(one).state is State.COMPLETED for one in ids), within=15)
    for name in ("deaf-1", "half-1"):
        told = f"worker {name} answers, but does not begin the tasks that it is given; it is killed"
        cluster.until(partial(_said_of_either, manager, told), within=5)
    cluster.until(lambda: not any(map(alive, deaf)), within=5)
    for one in (*ids, long):
        task = cluster.task(one)
        assert (task.losses, task.crashes) == (0, 0)
    assert len(cluster.traced("ended")) == 8


def _said_of_either(manager: ManagerProcess, text: str) -> bool:
    return manager.said(text) or manager.said(text.replace("deaf-1", "deaf-2"))
