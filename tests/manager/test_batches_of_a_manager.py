"""Batches with real processes: one that a handler makes, follows and reads, and its last task."""

from pitboss.model.canonical import from_json
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.manager.house import House


def _of(house: House, handler: str) -> list[Task]:
    return [task for task in house.tasks() if task.handler == handler]


def test_a_handler_makes_a_batch_and_waits_for_it(house: House) -> None:
    (task,) = house.put("batching", size=250)
    house.manager(workers=2)
    house.until(lambda: house.task(task).state.finished, within=30)
    found = house.task(task)
    assert found.state is State.COMPLETED, found.error
    assert from_json(found.result or "") == {"sum": sum(range(250)), "finished": 250}
    house.until(lambda: bool(_of(house, "told")) and _of(house, "told")[0].state.finished)
    (last,) = _of(house, "told")
    assert (last.result, from_json(last.params)["status"]) == ('"done"', "done")
    items = _of(house, "quick")
    assert {item.batch for item in items} == {from_json(last.params)["batch"]}
    assert {item.parent for item in items} == {task}
