"""What handlers can do and what managers do for them, with real processes."""

import signal
from functools import partial

from pitboss.model.canonical import from_json
from pitboss.model.filter import by
from pitboss.model.states import State
from tests.manager.house import House, alive


def _finished_at_least(house: House, count: int) -> bool:
    return house.finished() >= count


def test_async_and_sync_handlers_run_and_their_results_are_kept(house: House) -> None:
    manager = house.manager()
    house.until(lambda: manager.said("default-1 is ready") and manager.said("default-2 is ready"))
    ids = house.put("quick", 50, number=1) + house.put("quick_in_thread", 50, number=2)
    house.until(lambda: house.finished() == 100)
    assert sorted(house.task(one).result or "" for one in ids) == ["1"] * 50 + ["2"] * 50
    assert len({line[3] for line in house.traced("quick")}) == 2, "both workers had work"
    assert manager.end() == 0


def test_a_task_put_on_an_idle_system_starts_at_once(house: House) -> None:
    house.manager(workers=1)
    house.until(lambda: house.managers[0].said("is ready"))
    ids: list[str] = []
    for count in range(20):
        ids += house.put("quick", number=1)
        house.until(partial(_finished_at_least, house, count + 1))
    waits = sorted((house.task(one).started_at or 0) - house.task(one).created_at for one in ids)
    assert waits[10] < 100_000, f"half of them waited longer than 0.1 s: {waits}"


def test_a_coroutine_that_takes_too_long_is_ended(lite_house: House) -> None:
    house = lite_house
    (task,) = house.put("overlong")
    house.manager(workers=1)
    house.until(lambda: house.task(task).state.finished)
    found = house.task(task)
    assert (found.state, found.outcome) == (State.FAILED, "timed_out")
    assert found.error is not None
    assert "time limit of 0.3 s" in found.error.message


def test_a_thread_that_does_not_return_is_settled_and_its_worker_replaced_after_the_others_end(
    lite_house: House,
) -> None:
    house = lite_house
    manager = house.manager(workers=1)
    house.until(lambda: manager.said("is ready"))
    (worker,) = manager.workers()
    (deaf,) = house.put("deaf_thread", seconds=30)
    (slow,) = house.put("slow", seconds=2.5)
    house.until(lambda: house.task(deaf).state.finished)
    assert house.task(deaf).outcome == "timed_out"
    house.until(lambda: house.task(slow).state is State.COMPLETED, within=10)
    assert house.task(slow).losses == 0
    house.until(lambda: not alive(worker.pid), within=10, what="the worker with the deaf thread ends")
    (after,) = house.put("quick", number=1)
    house.until(lambda: house.task(after).state is State.COMPLETED, within=10)


def test_handlers_enqueue_report_and_follow_up(house: House) -> None:
    (parent,) = house.put("spawning", total=3)
    (threaded,) = house.put("blocking_spawning")
    house.manager(workers=1)
    house.until(lambda: house.task(parent).note == "half way", what="progress is seen while it runs")
    house.until(lambda: house.finished() == 7)
    spawned = [task for task in house.tasks() if task.handler == "quick"]
    assert sorted(from_json(task.params)["number"] for task in spawned) == [0, 1, 2, 7, 1000]
    assert {task.parent for task in spawned} == {parent, threaded}


def test_a_running_task_can_be_cancelled(lite_house: House) -> None:
    house = lite_house
    (task,) = house.put("slow", seconds=60)
    house.manager(workers=1, ttl="3s")
    house.until(lambda: house.traced("began"))
    assert house.do(house.engine.cancel(by(id=task), reason="bored")).asked == 1
    house.until(lambda: house.task(task).state is State.CANCELLED, within=10)
    assert not house.traced("ended")


def test_a_snoozed_task_comes_back_without_an_attempt(lite_house: House) -> None:
    house = lite_house
    (task,) = house.put("later")
    house.manager(workers=1)
    house.until(lambda: house.task(task).state is State.COMPLETED)
    assert house.task(task).attempts == 1


def test_state_that_lives_with_a_worker_is_shared_and_renewed(lite_house: House) -> None:
    house = lite_house
    ids = house.put("with_state", 7)
    house.manager(workers=1, concurrency=1)
    house.until(lambda: house.finished() == 7)
    assert [house.task(one).result for one in ids] == ["1", "2", "3", "1", "2", "3", "1"]
    assert len(house.traced("opened")) == 3


def test_sigterm_lets_running_tasks_end_and_says_what_it_waits_for(house: House) -> None:
    house.put("slow", 4, seconds=1.5)
    later = house.put("slow", 20, seconds=1.5)
    manager = house.manager(workers=2, concurrency=2)
    house.until(lambda: len(house.traced("began")) == 4)
    manager.signal(signal.SIGTERM)
    assert manager.process.wait(timeout=20) == 0
    assert manager.said("4 × slow")
    assert len(house.traced("ended")) == 4
    assert house.counts() == {State.COMPLETED: 4, State.PENDING: 20}
    assert {house.task(one).attempts for one in later} == {0}


def test_a_second_signal_stops_at_once_and_gives_the_tasks_back(lite_house: House) -> None:
    house = lite_house
    (task,) = house.put("slow", seconds=60)
    manager = house.manager(workers=1)
    house.until(lambda: house.traced("began"))
    workers = manager.workers()
    manager.signal(signal.SIGINT)
    house.until(lambda: manager.said("Stop again to end now"))
    manager.signal(signal.SIGINT)
    assert manager.process.wait(timeout=10) == 0
    found = house.task(task)
    assert (found.state, found.attempts, found.losses) == (State.PENDING, 0, 0)
    house.until(lambda: not any(alive(worker.pid) for worker in workers), within=5)
