"""Managers, worker pools and workers as their snapshots show them, and the progress of rollouts."""

from typing import Any

import msgspec

from pitboss.model import rollout_progress, snapshot
from pitboss.model.duration import SECOND
from pitboss.model.fleet import (
    ManagerView,
    alive,
    doing,
    live_managers,
    manager_view,
    mean_run,
    odd_workers,
    worker_pools,
    worst_state,
)
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import CurrentTask, PoolFigures, Snapshot, WorkerFigures, WorkerState


def session(number: int = 1, told: Snapshot | None = None, **info: Any) -> Session:
    usual: dict[str, Any] = {"host": "box1", "pid": 1, "ttl": 15 * SECOND}
    about = SessionInfo(**usual | info)
    text = msgspec.json.encode(told).decode() if told else None
    return Session(number=number, info=about, opened_at=0, expires_at=15 * SECOND, snapshot=text)


def worker(number: int, state: WorkerState = WorkerState.IDLE, **changes: Any) -> WorkerFigures:
    return WorkerFigures(name=f"a-{number}", pool="a", state=state, pid=number, **changes)


def pool(*workers: WorkerFigures, **figures: Any) -> Any:
    usual: dict[str, Any] = {"name": "a", "wanted": len(workers)}
    (found,) = worker_pools(
        [manager_view(session(told=Snapshot(pools=(PoolFigures(**usual | figures),), workers=workers)))]
    )
    return found


def test_only_live_managers_count_each_process_once() -> None:
    sessions = [
        session(1),
        session(2),
        session(3, pid=9),
        session(4, kind="remote", pid=10),
        msgspec.structs.replace(session(5, pid=11), ended=True),
    ]
    assert [one.number for one in live_managers(sessions, 0)] == [2, 3]
    assert live_managers(sessions, 15 * SECOND) == []


def test_only_live_sessions_count() -> None:
    ended = msgspec.structs.replace(session(2), ended=True)
    assert alive([session(1), ended], 0) == [session(1)]
    assert alive([session(1)], 15 * SECOND) == []


def test_a_snapshot_of_another_release_is_no_snapshot() -> None:
    assert snapshot.read(None) is None
    assert snapshot.read("{") is None
    assert snapshot.read('{"workers": 3}') is None
    assert snapshot.read('{"target": "app.py", "later": 1}') == Snapshot(target="app.py")


def test_a_snapshot_was_told_when_the_session_was_renewed() -> None:
    assert manager_view(session()).renewed_at == 0


def test_a_manager_that_tells_no_pools_has_those_of_its_workers() -> None:
    told = Snapshot(workers=(worker(1), worker(2), worker(3, WorkerState.STOPPED)), queues=("q",), concurrency=4)
    (found,) = worker_pools([manager_view(session(told=told))])
    assert (found.pool.name, found.pool.wanted, found.pool.queues, len(found.workers)) == ("a", 2, ("q",), 3)


def test_a_pool_is_as_its_worst_host() -> None:
    well, paused, gone = pool(worker(1)), pool(worker(1), paused=True), pool(worker(1, WorkerState.CRASHED), worker(2))
    assert worst_state([well, well]) == "running"
    assert worst_state([well, paused]) == "paused"
    assert worst_state([paused, gone, well]) == "crashed"


def test_slots_are_those_of_live_workers() -> None:
    assert pool(worker(1), worker(2, WorkerState.CRASHED), worker(3), concurrency=4).slots == 8


def test_the_mean_run_counts_each_task_once() -> None:
    assert mean_run([worker(1)]) is None
    assert mean_run([worker(1, processed=3, mean=SECOND), worker(2, processed=1, mean=5 * SECOND)]) == 2 * SECOND


def test_odd_workers_are_those_that_are_not_well() -> None:
    well = (worker(1, rss=99), worker(2, WorkerState.PROCESSING), worker(3, WorkerState.STARTING))
    odd = (
        worker(4, WorkerState.RESTARTING),
        worker(5, WorkerState.CRASHED),
        worker(6, why="its host has no memory"),
        worker(7, crashes=1),
        worker(8, rss=101),
    )
    told = Snapshot(pools=(PoolFigures(name="a", wanted=8, memory=100),), workers=well + odd)
    found = odd_workers([manager_view(session(told=told))])
    assert [one.worker.name for one in found] == [one.name for one in odd]
    assert [one.full for one in found] == [False] * 4 + [True]


def test_what_workers_are_doing_is_told_by_handler() -> None:
    tasks = tuple(CurrentTask(id="x", handler=name) for name in ("fetch", "send", "fetch"))
    assert doing([worker(1, tasks=tasks, running=3)]) == "2 × fetch, 1 × send"
    assert doing([worker(1, tasks=tasks, running=20)]) == "2 × fetch, 1 × send, 17 more"
    assert doing([worker(1)]) == ""


def test_a_new_generation_is_above_all_there_were() -> None:
    assert rollout_progress.next_generation([], []) == 1
    assert rollout_progress.next_generation([pool(worker(1, generation=4), generation=2)], [3]) == 5
    assert rollout_progress.next_generation([pool(generation=2)], [7, 3]) == 8


def test_a_restart_is_over_when_every_worker_is_new_and_ready() -> None:
    def restarted(*workers: WorkerFigures, heard: bool = True) -> rollout_progress.RolloutProgress:
        return rollout_progress.restarted([pool(*workers, generation=3 if heard else 2)], 3)

    assert restarted(worker(1, generation=3), worker(2, generation=4)).over
    assert restarted().over
    assert not restarted(heard=False).over
    assert not restarted(worker(1, generation=3), heard=False).over
    for state in (WorkerState.STARTING, WorkerState.DRAINING, WorkerState.RESTARTING):
        waiting = restarted(worker(1, generation=3), worker(2, state, generation=3))
        assert (waiting.done, waiting.of, waiting.trouble) == (1, 2, "")
        assert waiting.left == "box1: 1 of 2 workers are new"
    assert not restarted(worker(1, generation=2)).over
    assert restarted(worker(1, generation=3), worker(2, WorkerState.STOPPED)).over


def test_a_worker_that_stays_crashed_is_trouble_once_the_others_are_new() -> None:
    gone = worker(2, WorkerState.CRASHED, why="exit code 1")
    assert not rollout_progress.restarted([pool(worker(1, generation=2), gone, generation=3)], 3).trouble
    assert not rollout_progress.restarted([pool(gone, generation=2)], 3).trouble
    found = rollout_progress.restarted([pool(worker(1, generation=3), gone, generation=3)], 3)
    assert not found.over
    assert found.trouble == "worker a-2 on box1 was given up (exit code 1)"


def test_scaling_is_over_when_there_are_so_many_and_none_beyond() -> None:
    def scaled(*workers: WorkerFigures, wanted: int) -> rollout_progress.RolloutProgress:
        return rollout_progress.scaled([pool(*workers, wanted=wanted)], 2)

    assert scaled(worker(1), worker(2, WorkerState.PROCESSING), wanted=2).over
    assert not scaled(worker(1), worker(2), wanted=1).over
    assert not scaled(worker(1), wanted=2).over
    assert not scaled(worker(1), worker(2), worker(3, WorkerState.DRAINING), wanted=2).over
    assert scaled(worker(1), worker(2), worker(3, WorkerState.STOPPED), wanted=2).over
    assert scaled(worker(1), worker(2, WorkerState.CRASHED), wanted=2).trouble
    assert not scaled(worker(1), worker(2, WorkerState.STARTING), wanted=2).trouble
    assert rollout_progress.scaled([], 2).over


def test_pausing_waits_for_what_runs() -> None:
    assert rollout_progress.paused([pool(worker(1), paused=True)]).over
    assert not rollout_progress.paused([pool(worker(1))]).over
    assert not rollout_progress.paused([pool(worker(1, running=1), paused=True)]).over
    assert rollout_progress.resumed([pool(worker(1))]).over
    assert not rollout_progress.resumed([pool(worker(1), paused=True)]).over


def test_stopping_and_draining_follow_the_process_not_the_session() -> None:
    def one(number: int = 1, **told: Any) -> ManagerView:
        return manager_view(session(number, Snapshot(**told)))

    asked = [one()]
    assert rollout_progress.stopped(asked, []).over
    assert not rollout_progress.stopped(asked, [one(2)]).over
    assert rollout_progress.drained(asked, []).over
    assert rollout_progress.drained(asked, [one(2, draining=True)]).over
    assert not rollout_progress.drained(asked, [one(draining=True, workers=(worker(1, running=1),))]).over
    assert not rollout_progress.undrained(asked, [one(draining=True)]).over
    assert rollout_progress.undrained(asked, [one()]).over


def test_what_is_left_is_not_told_at_length() -> None:
    many = [manager_view(session(number, pid=number)) for number in range(1, 7)]
    assert rollout_progress.stopped(many, many).left.endswith("; and 3 more")
