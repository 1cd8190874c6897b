"""Deploys: rolling restarts, a reload on SIGHUP, two versions side by side. None of them costs a task anything."""

from pathlib import Path

import msgspec

from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.drills import ready, rolling
from tests.manager.house import House, pool

HEAD = """
import asyncio
from pitboss import App
from tests.manager.shop import trace

app = App()
"""
HANDLER = """
@app.task
async def {name}(seconds: float = 0) -> str:
    trace("{name}")
    await asyncio.sleep(seconds)
    return "{version}"
"""


def version(number: str, *names: str) -> str:
    return HEAD + "".join(HANDLER.format(name=name, version=number) for name in names)


def completed(house: House, ids: list[str]) -> bool:
    return all(house.task(one).state is State.COMPLETED for one in ids)


def test_rolling_restarts_under_load_cost_no_task_anything(house: House) -> None:
    rolled = rolling(house, 3)
    assert rolled.faults == []
    assert rolled.workers == 8, "two at the start, and two more with each restart"
    assert rolled.tasks > 300


def test_a_task_that_outlasts_the_drain_goes_back_at_no_cost(lite_house: House) -> None:
    house = lite_house
    manager = house.manager(pool(workers=1), drain_seconds=1)
    (task,) = house.put("slow", seconds=4)
    house.until(lambda: house.traced("began"))
    house.wish("default", generation=1)
    house.until(lambda: manager.said("1 task(s) of worker default-1 did not end in time and go back"), within=15)
    house.until(lambda: house.task(task).state is State.COMPLETED)
    assert (house.task(task).attempts, house.task(task).losses, house.task(task).crashes) == (1, 0, 0)
    assert [one.outcome for one in house.attempts(task)] == ["released", "completed"]
    assert not manager.said("was killed by"), "the end of the old worker is no crash"


def test_a_reload_adds_removes_and_changes_pools_and_handlers(lite_house: House, tmp_path: Path) -> None:
    house, code = lite_house, tmp_path / "app_of_today.py"
    code.write_text(version("one", "old", "lasting"))
    first, second = pool("first", workers=1, queues=("first",)), pool("second", workers=1, queues=("second",))
    manager = house.manager(first, second, target=str(code), ttl="1500ms")
    ready(house, manager, 2)
    held = house.put("fresh", 3, queue="third")
    (long,) = house.put("lasting", queue="second", seconds=4)
    house.until(lambda: house.traced("lasting"))
    assert {house.task(one).state for one in held} == {State.HELD}

    code.write_text(version("two", "fresh", "lasting"))
    wider = msgspec.structs.replace(first, min_workers=2, max_workers=2, concurrency=3)
    third = pool("third", workers=1, queues=("third",))
    manager.reload(msgspec.structs.replace(manager.plan, pools=(wider, third)))
    house.until(lambda: completed(house, held), what="the new pool runs the new handler's tasks")
    assert {house.task(one).value() for one in held} == {"two"}
    house.until(lambda: _shown(house) == {"first": 2, "third": 1}, what="one wider, one gone, one new")
    assert [one.concurrency for told in house.snapshots() for one in told.pools if one.name == "first"] == [3]
    house.until(lambda: completed(house, [long]))
    assert house.task(long).value() == "one", "what ran, ran on"
    assert {(task.attempts, task.losses) for task in house.tasks()} == {(1, 0)}
    (gone,) = house.put("old", queue="first")
    house.until(lambda: house.task(gone).state is State.HELD, what="nobody knows the old handler any more")
    assert manager.end() == 0


def _shown(house: House) -> dict[str, int]:
    at_work = (WorkerState.IDLE, WorkerState.PROCESSING)
    shown = {one.name: 0 for told in house.snapshots() for one in told.pools}
    for worker in house.workers():
        if worker.state in at_work:
            shown[worker.pool] += 1
    return shown


def test_a_pool_that_is_removed_and_added_again_at_once_keeps_its_two_lives_apart(lite_house: House) -> None:
    house = lite_house
    both = (pool("stays", workers=1, queues=("other",)), pool("comes", workers=1, concurrency=1))
    manager = house.manager(*both)
    ready(house, manager, 2)
    (old,) = house.put("slow", seconds=3)
    house.until(lambda: house.traced("began"))
    manager.reload(msgspec.structs.replace(manager.plan, pools=both[:1]))
    house.until(lambda: manager.said("reloaded"))
    manager.reload(manager.plan)
    house.until(lambda: sum("comes-1 is ready" in line for line in manager.lines) == 2)
    (new,) = house.put("slow", seconds=3)
    house.until(lambda: len(house.traced("began")) == 2)
    # The old one ends first, and must not take the new one of the same name along.
    house.until(lambda: completed(house, [old, new]))
    assert {(task.attempts, task.losses) for task in house.tasks()} == {(1, 0)}
    assert not manager.said("left process")
    assert manager.end() == 0


def test_a_reload_that_failed_does_not_hide_the_handlers_of_the_next(lite_house: House, tmp_path: Path) -> None:
    house, code, gate = lite_house, tmp_path / "app_of_today.py", tmp_path / "broken"
    code.write_text(version("one", "old"))
    manager = house.manager(pool(workers=1, env={"BROKEN": str(gate)}), target=str(code))
    ready(house, manager, 1)
    (held,) = house.put("fresh")
    # It can be described, but not be started where the workers run.
    gate.touch()
    check = "import os, pathlib\nassert not pathlib.Path(os.environ.get('BROKEN') or '/nowhere').exists()\n"
    code.write_text(check + version("two", "old", "fresh"))
    manager.reload(manager.plan)
    house.until(lambda: manager.said("the old ones continue"))
    gate.unlink()
    manager.reload(manager.plan)
    house.until(lambda: house.task(held).state is State.COMPLETED, within=15)


def test_managers_of_two_versions_share_a_store(house: House, tmp_path: Path) -> None:
    (old, new) = (tmp_path / name for name in ("app_of_yesterday.py", "app_of_today.py"))
    old.write_text(version("yesterday", "common", "retired"))
    new.write_text(version("today", "common", "fresh"))
    first = house.manager(pool(workers=1), target=str(old), ttl="1500ms")
    ready(house, first, 1)
    fresh = house.put("fresh", 20)
    second = house.manager(pool(workers=1), target=str(new), ttl="1500ms")
    ready(house, second, 1)
    ids = house.put("common", 60, seconds=0.05) + house.put("retired", 20)
    house.until(lambda: completed(house, ids + fresh))
    said = {name: {house.task(one).value() for one in ids + fresh if house.task(one).handler == name} for name in NAMES}
    assert said == {"fresh": {"today"}, "retired": {"yesterday"}, "common": {"today", "yesterday"}}
    assert first.end() == 0
    (orphan,) = house.put("retired")
    later = house.put("common", 10)
    house.until(lambda: completed(house, later))
    assert house.task(orphan).state in (State.HELD, State.PENDING)
    assert {task.attempts for task in house.tasks() if task.id != orphan} == {1}
    assert second.end() == 0


NAMES = ("common", "retired", "fresh")
