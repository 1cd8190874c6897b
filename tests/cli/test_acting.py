"""Commands that change something: enqueue, retry, cancel, pause, resume, limit, discard, init."""

from pathlib import Path

import pytest
import typer

from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model.filter import EVERYTHING, parsed
from pitboss.model.queue import HandlerInfo
from pitboss.model.want_template import WantTemplate, with_template
from tests.cli.command_line import GREET, new, pitboss, put, run_all, with_store


def counted(text: str = "") -> int:
    return with_store(lambda store: store.count(parsed(text) if text else EVERYTHING)).number


def register() -> None:
    with_store(lambda store: store.register([GREET]))


def test_enqueue_prints_the_id_alone() -> None:
    register()
    answer = pitboss("tasks", "enqueue", "greet", '{"name": "you"}')
    assert answer.code == 0
    assert answer.err == ""
    task = pitboss("tasks", "show", answer.out.strip(), "--json").json()["task"]
    assert (task["handler"], task["params"], task["state"]) == ("greet", {"name": "you"}, "pending")


def test_enqueue_takes_every_option() -> None:
    register()
    options = ["--queue", "mail", "--priority", "-3", "--delay", "10m", "--key", "k", "--tag", "a", "--tag", "b"]
    document = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', *options, "--json").json()
    task = document["task"]
    assert document["created"] is True
    assert (task["queue"], task["priority"], task["state"], task["unique_key"], task["tags"]) == (
        "mail",
        -3,
        "scheduled",
        "greet/k",
        ["a", "b"],
    )


def test_enqueue_and_batches_keep_the_labels_and_the_sticky_key_of_the_handler(folder: Path) -> None:
    """Both stored tasks without them, while `app.send` kept them."""
    template = WantTemplate(("eu",), "account")
    schema = with_template('{"type":"object","properties":{"account":{"type":"string"}}}', template)
    with_store(lambda store: store.register([HandlerInfo(name="check", schema=schema)]))
    pitboss("tasks", "enqueue", "check", '{"account": "anna"}')
    (folder / "items.jsonl").write_text('{"account": "bob"}')
    pitboss("batches", "create", "check", "--file", "items.jsonl")
    tasks = pitboss("tasks", "list", "--oldest", "--json").json()["tasks"]
    assert [task["want"] for task in tasks] == [{"labels": ["eu"], "key": "anna"}, {"labels": ["eu"], "key": "bob"}]


def test_enqueue_reads_stdin() -> None:
    register()
    assert pitboss("tasks", "enqueue", "greet", "-", stdin='{"name": "you"}').code == 0
    assert counted('args.name:"you"') == 1


def test_a_key_that_is_taken_is_told() -> None:
    register()
    first = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--key", "k")
    second = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--key", "k")
    assert second.out == first.out
    assert "nothing was added" in second.err
    assert counted() == 1


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["gret", "{}"], Exit.NOT_FOUND, "it knows greet"),
        (["greet", "{nope"], Exit.USAGE, "are not JSON"),
        (["greet", "[1]"], Exit.USAGE, "are not an object"),
        (["greet", "{}"], Exit.USAGE, '"name" is a required property'),
        (["greet", '{"name": 1}'], Exit.USAGE, "name: 1 is not of type"),
        (["greet", '{"name": "you"}', "--delay", "soon"], Exit.USAGE, "delay 'soon' is not a duration"),
        (["greet", '{"name": "you"}', "--priority", "99999"], Exit.USAGE, "priority=99999 cannot be used"),
        (["greet", '{"name": "you"}', "--queue", "a b"], Exit.USAGE, "cannot name a queue"),
        (["greet", '{"name": "you"}', "--wait", "--timeout", "x"], Exit.USAGE, "--timeout 'x' is not a duration"),
    ],
)
def test_what_cannot_be_enqueued(args: list[str], code: int, said: str) -> None:
    register()
    answer = pitboss("tasks", "enqueue", *args)
    assert answer.code == code
    assert said in answer.err
    assert "fix:" in answer.err
    assert counted() == 0


def test_an_unknown_task_can_be_stored_to_be_held() -> None:
    register()
    answer = pitboss("tasks", "enqueue", "later", "{}", "--held")
    assert answer.code == 0
    assert "held until a worker knows its handler" in answer.err
    assert counted("state:held") == 1


def test_a_full_queue_refuses() -> None:
    register()
    pitboss("queues", "limit", "default", "--capacity", "1")
    assert pitboss("tasks", "enqueue", "greet", '{"name": "you"}').code == 0
    answer = pitboss("tasks", "enqueue", "greet", '{"name": "you"}')
    assert answer.code == Exit.REFUSED
    assert "is full" in answer.err


def test_waiting_in_vain_ends_with_124() -> None:
    register()
    answer = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--wait", "--timeout", "50ms")
    assert answer.code == Exit.TIMEOUT
    assert "no manager is running" in answer.err


def test_cancel_by_id_does_not_ask() -> None:
    (task,) = put(new())
    answer = pitboss("tasks", "cancel", task, "--reason", "wrong list")
    assert answer.code == 0
    assert "1 task cancelled" in answer.err
    assert pitboss("tasks", "show", task, "--json").json()["task"]["reason"] == "wrong list"


def test_many_are_only_changed_with_a_yes() -> None:
    put(*(new() for _ in range(7)))
    refused = pitboss("tasks", "cancel", "task:greet")
    assert refused.code == Exit.REFUSED
    assert "Cancel 7 tasks:" in refused.err
    assert "… and 2 more" in refused.err
    assert "repeat with --yes" in refused.err
    dry = pitboss("tasks", "cancel", "task:greet", "--dry-run")
    assert dry.code == 0
    assert "would cancel 7 tasks" in dry.err
    assert counted("state:pending") == 7
    assert pitboss("tasks", "cancel", "task:greet", "--yes").code == 0
    assert counted("state:cancelled") == 7


def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    put(new(), new())
    monkeypatch.setattr(Screen, "interactive", True)
    said = iter([False, True])
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: next(said))
    refused = pitboss("tasks", "cancel", "--all")
    assert (refused.code, counted("state:cancelled")) == (Exit.REFUSED, 0)
    assert "the answer was no" in refused.err
    assert (pitboss("tasks", "cancel", "--all").code, counted("state:cancelled")) == (0, 2)


def test_more_than_one_step_is_done() -> None:
    put(*(new() for _ in range(2500)))
    answer = pitboss("tasks", "cancel", "--all", "--yes")
    assert "2,500 tasks cancelled" in answer.err
    assert counted("state:cancelled") == 2500


def test_running_tasks_are_asked_to_stop() -> None:
    put(new(), new())
    run_all(stay=True)
    answer = pitboss("tasks", "cancel", "state:running", "--yes")
    assert answer.code == 0
    assert "2 running tasks asked to stop" in answer.err
    assert pitboss("tasks", "cancel", "state:running", "--yes").code == 0


@pytest.mark.parametrize("command", [["tasks", "cancel"], ["tasks", "retry"], ["dead", "retry"], ["dead", "discard"]])
def test_a_bulk_act_needs_to_be_told_what(command: list[str]) -> None:
    (task,) = put(new())
    assert pitboss(*command, "--yes").code == Exit.USAGE
    assert pitboss(*command, "bogus:1", "--yes").code == Exit.USAGE
    assert pitboss(*command, task, "queue:mail", "--yes").code == Exit.USAGE
    nothing = pitboss(*command, "queue:nothing", "--yes")
    assert nothing.code == Exit.NOT_FOUND
    assert "nothing was changed" in nothing.err
    assert counted("state:pending") == 1


def test_retry_means_failures_and_cancelled_ones_only_if_asked_for() -> None:
    put(new(), new())
    run_all(fail="no")
    (cancelled,) = put(new())
    pitboss("tasks", "cancel", cancelled)
    assert "2 tasks set to run again" in pitboss("tasks", "retry", "--all", "--yes").err
    assert counted("state:cancelled") == 1
    assert "1 task set to run again" in pitboss("tasks", "retry", cancelled).err
    assert counted("state:pending") == 3


def test_a_retry_whose_key_is_taken_is_refused() -> None:
    register()
    first = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--key", "k").out.strip()
    run_all(fail="no")
    pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--key", "k")
    answer = pitboss("tasks", "retry", first)
    assert answer.code == Exit.REFUSED
    assert f"refused: {first}" in answer.err


def test_dead_retry_and_discard_by_group() -> None:
    put(new(), new())
    run_all(fail="no")
    assert "2 tasks set to run again" in pitboss("dead", "retry", "abcd1234", "--yes").err
    run_all(fail="no")
    assert "would delete 2 tasks" in pitboss("dead", "discard", "abcd", "--dry-run").err
    assert counted("state:failed") == 2
    assert "2 tasks deleted" in pitboss("dead", "discard", "--all", "--yes").err
    assert counted() == 0


def test_queues_are_paused_and_resumed() -> None:
    put(new(), new())
    assert "paused with 2 waiting tasks" in pitboss("queues", "pause", "default").err
    (queue,) = pitboss("queues", "list", "--json").json()["queues"]
    assert queue["paused"] is True
    assert "@" in queue["paused_by"]
    assert "(paused)" in pitboss("queues", "list").out
    assert "is resumed with 2 waiting tasks" in pitboss("queues", "resume", "default").err
    assert pitboss("queues", "list", "--json").json()["queues"][0]["paused"] is False


def test_a_misspelt_queue_changes_nothing() -> None:
    put(new())
    answer = pitboss("queues", "pause", "default", "defualt")
    assert answer.code == Exit.NOT_FOUND
    assert "the queues are default" in answer.err
    assert pitboss("queues", "list", "--json").json()["queues"][0]["paused"] is False


def test_limits_are_set_and_lifted() -> None:
    assert pitboss("queues", "limit", "mail", "--rate", "2/s, 100/h", "--capacity", "1000").code == 0
    (queue,) = pitboss("queues", "list", "--json").json()["queues"]
    assert queue["rate"] == [{"count": 2, "seconds": 1.0}, {"count": 100, "seconds": 3600.0}]
    assert queue["capacity"] == 1000
    assert "2/1s, 100/1h, 1,000 may wait" in pitboss("queues", "list").out
    pitboss("queues", "limit", "mail", "--rate", "none")
    (queue,) = pitboss("queues", "list", "--json").json()["queues"]
    assert (queue["rate"], queue["capacity"]) == ([], 1000)
    assert "no limits" in pitboss("queues", "limit", "mail", "--capacity", "none").err


@pytest.mark.parametrize(
    "limits", [[], ["--rate", "fast"], ["--capacity", "0"], ["--capacity", "-1"], ["--rate", "0/s"]]
)
def test_limits_that_are_none(limits: list[str]) -> None:
    put(new())
    assert pitboss("queues", "limit", "default", *limits).code == Exit.USAGE


def test_init_writes_a_project_and_never_overwrites(folder: Path) -> None:
    answer = pitboss("init", "demo")
    assert answer.code == 0
    assert "cd demo" in answer.err
    assert sorted(path.name for path in (folder / "demo").iterdir()) == ["app.py", "pitboss.toml"]
    (folder / "demo" / "app.py").write_text("mine")
    (folder / "demo" / "pitboss.toml").unlink()
    again = pitboss("init", "demo")
    assert again.code == Exit.REFUSED
    assert (folder / "demo" / "app.py").read_text() == "mine"
    assert not (folder / "demo" / "pitboss.toml").exists()


def test_init_where_one_may_not_write(folder: Path) -> None:
    (folder / "taken").write_text("a file")
    answer = pitboss("init", "taken/demo")
    assert answer.code == Exit.USAGE
    assert "cannot be written" in answer.err
