"""Batches with real processes: a handler creates one, waits for it and reads its results."""

from pitboss.model.canonical import from_json
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.manager.cluster import Cluster


def _of(cluster: Cluster, handler: str) -> list[Task]:
    return [task for task in cluster.tasks() if task.handler == handler]


def test_a_handler_makes_a_batch_and_waits_for_it(cluster: Cluster) -> None:
    (task,) = cluster.put("batching", size=250)
    cluster.manager(workers=2)
    cluster.until(lambda: cluster.task(task).state.finished, within=30)
    found = cluster.task(task)
    assert found.state is State.COMPLETED, found.error
    assert from_json(found.result or "") == {"sum": sum(range(250)), "finished": 250}
    cluster.until(lambda: bool(_of(cluster, "told")) and _of(cluster, "told")[0].state.finished)
    (last,) = _of(cluster, "told")
    assert (last.result, from_json(last.params)["status"]) == ('"done"', "done")
    items = _of(cluster, "quick")
    assert {item.batch for item in items} == {from_json(last.params)["batch"]}
    assert {item.parent for item in items} == {task}
