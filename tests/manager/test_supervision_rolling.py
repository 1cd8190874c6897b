"""Deploys: rolling restarts, a reload on SIGHUP, two versions side by side. None of them costs a task anything."""

from pathlib import Path

import msgspec

from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.manager.cluster import Cluster, pool
from tests.manager.drills import ready, rolling

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


def completed(cluster: Cluster, ids: list[str]) -> bool:
    return all(cluster.task(one).state is State.COMPLETED for one in ids)


def test_rolling_restarts_under_load_cost_no_task_anything(cluster: Cluster) -> None:
    rolled = rolling(cluster, 3)
    assert rolled.faults == []
    assert rolled.workers == 8, "two at the start, and two more with each restart"
    assert rolled.tasks > 300


def test_a_task_that_outlasts_the_drain_goes_back_at_no_cost(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    manager = cluster.manager(pool(workers=1), drain_seconds=1)
    (task,) = cluster.put("slow", seconds=4)
    cluster.until(lambda: cluster.traced("began"))
    cluster.wish("default", generation=1)
    cluster.until(lambda: manager.said("1 task(s) of worker default-1 did not end in time and go back"), within=15)
    cluster.until(lambda: cluster.task(task).state is State.COMPLETED)
    assert (cluster.task(task).attempts, cluster.task(task).losses, cluster.task(task).crashes) == (1, 0, 0)
    assert [one.outcome for one in cluster.attempts(task)] == ["released", "completed"]
    assert not manager.said("was killed by"), "the end of the old worker is not a crash"


def test_a_reload_adds_removes_and_changes_pools_and_handlers(sqlite_cluster: Cluster, tmp_path: Path) -> None:
    cluster, code = sqlite_cluster, tmp_path / "app_of_today.py"
    code.write_text(version("one", "old", "lasting"))
    first, second = pool("first", workers=1, queues=("first",)), pool("second", workers=1, queues=("second",))
    manager = cluster.manager(first, second, target=str(code), ttl="1500ms")
    ready(cluster, manager, 2)
    held = cluster.put("fresh", 3, queue="third")
    (long,) = cluster.put("lasting", queue="second", seconds=4)
    cluster.until(lambda: cluster.traced("lasting"))
    assert {cluster.task(one).state for one in held} == {State.HELD}

    code.write_text(version("two", "fresh", "lasting"))
    wider = msgspec.structs.replace(first, min_workers=2, max_workers=2, concurrency=3)
    third = pool("third", workers=1, queues=("third",))
    manager.reload(msgspec.structs.replace(manager.plan, pools=(wider, third)))
    cluster.until(lambda: completed(cluster, held), what="the new pool runs the new handler's tasks")
    assert {cluster.task(one).value() for one in held} == {"two"}
    cluster.until(lambda: _shown(cluster) == {"first": 2, "third": 1}, what="one wider, one gone, one new")
    assert [one.concurrency for told in cluster.snapshots() for one in told.pools if one.name == "first"] == [3]
    cluster.until(lambda: completed(cluster, [long]))
    assert cluster.task(long).value() == "one", "what ran, ran on"
    assert {(task.attempts, task.losses) for task in cluster.tasks()} == {(1, 0)}
    (gone,) = cluster.put("old", queue="first")
    cluster.until(lambda: cluster.task(gone).state is State.HELD, what="no manager knows the old handler any more")
    assert manager.end() == 0


def _shown(cluster: Cluster) -> dict[str, int]:
    at_work = (WorkerState.IDLE, WorkerState.PROCESSING)
    shown = {one.name: 0 for told in cluster.snapshots() for one in told.pools}
    for worker in cluster.workers():
        if worker.state in at_work:
            shown[worker.pool] += 1
    return shown


def test_a_pool_that_is_removed_and_added_again_at_once_keeps_its_two_lives_apart(sqlite_cluster: Cluster) -> None:
    cluster = sqlite_cluster
    both = (pool("stays", workers=1, queues=("other",)), pool("comes", workers=1, concurrency=1))
    manager = cluster.manager(*both)
    ready(cluster, manager, 2)
    (old,) = cluster.put("slow", seconds=3)
    cluster.until(lambda: cluster.traced("began"))
    manager.reload(msgspec.structs.replace(manager.plan, pools=both[:1]))
    cluster.until(lambda: manager.said("reloaded"))
    manager.reload(manager.plan)
    cluster.until(lambda: sum("comes-1 is ready" in line for line in manager.lines) == 2)
    (new,) = cluster.put("slow", seconds=3)
    cluster.until(lambda: len(cluster.traced("began")) == 2)
    # The old pool ends first, and must not end the new one of the same name.
    cluster.until(lambda: completed(cluster, [old, new]))
    assert {(task.attempts, task.losses) for task in cluster.tasks()} == {(1, 0)}
    assert not manager.said("left process")
    assert manager.end() == 0


def test_a_reload_that_failed_does_not_hide_the_handlers_of_the_next(sqlite_cluster: Cluster, tmp_path: Path) -> None:
    cluster, code, gate = sqlite_cluster, tmp_path / "app_of_today.py", tmp_path / "broken"
    code.write_text(version("one", "old"))
    manager = cluster.manager(pool(workers=1, env={"BROKEN": str(gate)}), target=str(code))
    ready(cluster, manager, 1)
    (held,) = cluster.put("fresh")
    # The app can be described, but workers cannot start it.
    gate.touch()
    check = "import os, pathlib\nassert not pathlib.Path(os.environ.get('BROKEN') or '/nowhere').exists()\n"
    code.write_text(check + version("two", "old", "fresh"))
    manager.reload(manager.plan)
    cluster.until(lambda: manager.said("the old ones continue"))
    gate.unlink()
    manager.reload(manager.plan)
    cluster.until(lambda: cluster.task(held).state is State.COMPLETED, within=15)


def test_managers_of_two_versions_share_a_store(cluster: Cluster, tmp_path: Path) -> None:
    (old, new) = (tmp_path / name for name in ("app_of_yesterday.py", "app_of_today.py"))
    old.write_text(version("yesterday", "common", "retired"))
    new.write_text(version("today", "common", "fresh"))
    first = cluster.manager(pool(workers=1), target=str(old), ttl="1500ms")
    ready(cluster, first, 1)
    fresh = cluster.put("fresh", 20)
    second = cluster.manager(pool(workers=1), target=str(new), ttl="1500ms")
    ready(cluster, second, 1)
    ids = cluster.put("common", 60, seconds=0.05) + cluster.put("retired", 20)
    cluster.until(lambda: completed(cluster, ids + fresh))
    said = {
        name: {cluster.task(one).value() for one in ids + fresh if cluster.task(one).handler == name} for name in NAMES
    }
    assert said == {"fresh": {"today"}, "retired": {"yesterday"}, "common": {"today", "yesterday"}}
    assert first.end() == 0
    (orphan,) = cluster.put("retired")
    later = cluster.put("common", 10)
    cluster.until(lambda: completed(cluster, later))
    assert cluster.task(orphan).state in (State.HELD, State.PENDING)
    assert {task.attempts for task in cluster.tasks() if task.id != orphan} == {1}
    assert second.end() == 0


NAMES = ("common", "retired", "fresh")
