"""Memory limits: a leak is recycled, a bomb is killed, children count, and pools without a limit are left alone."""

from pitboss.model.states import State
from tests.manager.house import House, ManagerProcess, pool

MB = 1024 * 1024


def swells(house: House, task: str) -> list[str]:
    return [attempt.error.category for attempt in house.attempts(task) if attempt.error is not None]


def test_memory_limits_recycle_kill_and_count_children(troubled: House) -> None:
    house = troubled
    manager = house.manager(
        pool("leak", workers=1, queues=("leak",), concurrency=1, memory=700 * MB, memory_soft=150 * MB),
        pool("bomb", workers=1, queues=("bomb",), concurrency=4, memory=200 * MB, memory_soft=199 * MB),
        pool("child", workers=1, queues=("child",), concurrency=1, memory=200 * MB),
        pool("free", workers=1, queues=("free",), concurrency=1),
        ttl="1500ms",
    )
    house.until(lambda: sum(manager.said(f"{name}-1 is ready") for name in ("leak", "bomb", "child", "free")) == 4)
    leaks = house.put("leaks", 50, queue="leak", megabytes=10)
    (neighbour,) = house.put("slow", queue="bomb", seconds=1.5)
    house.until(lambda: house.traced("began"))
    (bomb,) = house.put("memory_bomb", queue="bomb")
    (feeder,) = house.put("hungry_child", queue="child", megabytes=250)
    free = house.put("leaks", 3, queue="free", megabytes=100)
    house.until(lambda: house.finished() == 56, within=40)
    _leaks_were_recycled(house, manager, leaks)
    _the_bomb_was_killed(house, manager, bomb, neighbour)
    _the_childs_memory_counted(house, feeder)
    assert {house.task(one).state for one in free} == {State.COMPLETED}
    house.until(lambda: [one.crashes for one in house.workers("free")] == [0])
    assert house.workers("free")[0].rss > 300 * MB
    assert not manager.said("worker free-1 used")
    assert manager.end() == 0


def _leaks_were_recycled(house: House, manager: ManagerProcess, ids: list[str]) -> None:
    for one in ids:
        task = house.task(one)
        assert (task.state, task.attempts, task.losses) == (State.COMPLETED, 1, 0)
    workers = {line[3] for line in house.traced("leaks")}
    assert len(workers) >= 3, "it was recycled, with one more for the pool without a limit"
    assert manager.said("of memory; it is replaced after its tasks")
    assert not manager.said("worker leak-1 used")
    assert {one.crashes for one in house.workers("leak")} == {0}
    house.until(lambda: [one.rss < 150 * MB for one in house.workers("leak")] == [True], within=10)


def _the_bomb_was_killed(house: House, manager: ManagerProcess, bomb: str, neighbour: str) -> None:
    task = house.task(bomb)
    assert task.state is State.FAILED
    assert task.crashes == 3
    assert task.error is not None
    assert task.error.category == "poison"
    assert "of memory, more than its limit of 200 MB" in task.error.message
    first, *others = swells(house, bomb)
    assert {first, *others[:-1]} == {"memory"}
    assert task.reason == "poison: it killed its worker 3 times while alone in it"
    innocent = house.task(neighbour)
    assert (innocent.state, innocent.attempts, innocent.crashes) == (State.COMPLETED, 1, 0)


def _the_childs_memory_counted(house: House, feeder: str) -> None:
    assert set(swells(house, feeder)[:-1]) == {"memory"}
    assert house.task(feeder).state is State.FAILED
    assert house.task(feeder).crashes == 3


def test_a_soft_limit_that_no_worker_can_keep_is_told_and_makes_no_loop(troubled: House) -> None:
    house = troubled
    manager = house.manager(pool(workers=1, memory_soft=10 * MB))
    house.until(lambda: manager.said("before its first task, more than its soft limit of 10 MB"))
    ids = house.put("slow", 20, seconds=0.05) + house.put("slow", seconds=2)
    house.until(lambda: all(house.task(one).state is State.COMPLETED for one in ids))
    assert len({line[3] for line in house.traced("began")}) == 1
    assert not manager.said("it is replaced")
