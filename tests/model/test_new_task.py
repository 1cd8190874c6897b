"""The task that a registered handler, parameters and options make."""

import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.new_task import TaskOptions, new_task, new_tasks
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Want
from pitboss.model.task import NewTask, Unique
from pitboss.model.want_template import WantTemplate, with_template

CHECK = HandlerInfo(
    name="check",
    queue="checks",
    schema=with_template('{"type":"object"}', WantTemplate(("{region}",), "account", {"region": "eu"})),
)


def test_queue_labels_and_sticky_key_are_those_of_the_handler() -> None:
    task = new_task(CHECK, '{"account":"anna"}', "id")
    assert task == NewTask(
        id="id", handler="check", queue="checks", params='{"account":"anna"}', want=Want(("eu",), "anna")
    )


def test_options_and_another_queue_are_applied() -> None:
    options = TaskOptions(priority=3, delay=SECOND, key="k", key_period=SECOND, max_attempts=2, tags=("a",))
    task = new_task(HandlerInfo(name="greet"), "{}", "id", options, queue="mail", parent="parent")
    assert task == NewTask(
        id="id",
        handler="greet",
        queue="mail",
        priority=3,
        delay=SECOND,
        unique=Unique("greet/k", SECOND),
        max_attempts=2,
        tags=("a",),
        parent="parent",
    )


def test_each_of_many_tasks_has_its_own_id_and_want() -> None:
    ids = iter("ab")
    tasks = list(new_tasks(CHECK, ['{"account":"anna"}', '{"account":"bob","region":"us"}'], lambda: next(ids)))
    assert [(task.id, task.want) for task in tasks] == [("a", Want(("eu",), "anna")), ("b", Want(("us",), "bob"))]


def test_a_bad_queue_and_a_label_without_its_parameter_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot name a queue"):
        new_task(CHECK, "{}", "id", queue="a b")
    bare = HandlerInfo(name="check", schema=with_template("{}", WantTemplate(("{region}",))))
    with pytest.raises(InvalidInput, match="needs a parameter that the params do not have: region"):
        new_task(bare, "{}", "id")
