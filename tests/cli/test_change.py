"""`pitboss tasks change`: another priority and other tags for tasks that wait."""

from typing import Any

import pytest

from pitboss.cli.errors import Exit
from tests.cli.command_line import new, pitboss, put, run_all


def shown(task: str) -> tuple[int, list[str]]:
    found: dict[str, Any] = pitboss("tasks", "show", task, "--json").json()["task"]
    return found["priority"], found["tags"]


def test_one_task_is_changed_without_a_question() -> None:
    task, other = put(new(tags=("eu",)), new())
    answer = pitboss("tasks", "change", task, "--priority", "-5", "--tag", "late", "--untag", "eu")
    assert (answer.code, answer.err) == (0, "1 task changed\n")
    assert (shown(task), shown(other)) == ((-5, ["late"]), (0, []))


def test_those_of_a_filter_are_changed_after_a_look() -> None:
    tasks = put(*(new(queue="mail") for _ in range(3)), new())
    assert "would change 3 tasks" in pitboss("tasks", "change", "queue:mail", "--tag", "x", "--dry-run").err
    assert pitboss("tasks", "change", "queue:mail", "--tag", "x").code == Exit.REFUSED
    assert pitboss("tasks", "change", "queue:mail", "--tag", "x", "--yes").err == "3 tasks changed\n"
    assert [shown(one)[1] for one in tasks] == [["x"], ["x"], ["x"], []]


def test_a_task_that_does_not_wait_is_refused_with_its_state() -> None:
    (task,) = put(new())
    run_all(stay=True)
    answer = pitboss("tasks", "change", task, "--priority", "1")
    assert answer.code == Exit.REFUSED
    assert f"task {task} (greet) is running and cannot be changed" in answer.err
    (ended,) = put(new())
    run_all(fail="no")
    answer = pitboss("tasks", "change", ended, "--priority", "1")
    assert "is failed and cannot be changed" in answer.err
    assert "retry it first" in answer.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "no change was given"),
        (["--tag", "x", "--untag", "x"], "a tag is named twice"),
        (["--tag", "no tag"], "cannot name a tag"),
        (["--priority", "40000"], "whole number from -32768 to 32767"),
    ],
)
def test_what_is_no_change_is_refused(args: list[str], said: str) -> None:
    (task,) = put(new())
    answer = pitboss("tasks", "change", task, *args)
    assert (answer.code, said in answer.err) == (Exit.USAGE, True), answer.err
