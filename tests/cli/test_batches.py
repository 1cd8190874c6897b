"""`pitboss batches`: create from files, look, order, pause, cancel, repeat, delete."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import typer

from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model.batch import NewBatch
from pitboss.model.queue import HandlerInfo
from tests.cli.command_line import GREET, new, pitboss, put, run_all, with_store

COUNT = HandlerInfo(
    name="count",
    queue="numbers",
    schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "to": {"type": "integer"},
                "loud": {"type": "boolean"},
                "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["to"],
            "additionalProperties": False,
        }
    ),
)
REPORT = HandlerInfo(
    name="report",
    schema='{"type":"object","properties":{"batch":{"type":"string"},"status":{"type":"string"}},"additionalProperties":false}',
)


@pytest.fixture(autouse=True)
def known(folder: Path) -> None:
    with_store(lambda store: store.register([GREET, COUNT, REPORT]))


def made(name: str, size: int = 3, **options: Any) -> str:
    """A batch that is in the store; its id."""
    items = [new() for _ in range(size)]

    async def work(store: Any) -> str:
        batch = await store.create_batch(NewBatch(id=new().id, name=name, **options), items)
        return batch.id

    return with_store(work)


def shown(batch: str) -> dict[str, Any]:
    found = pitboss("batches", "show", batch, "--json").json()["batch"]
    assert isinstance(found, dict)
    return found


def lined_up() -> list[str]:
    listed = pitboss("batches", "list", "running", "queued", "--json").json()["batches"]
    return [batch["name"] for batch in listed]


def test_create_prints_the_id_alone(folder: Path) -> None:
    (folder / "items.jsonl").write_text('{"name": "ann"}\n\n{"name": "bob"}\n')
    answer = pitboss("batches", "create", "greet", "--file", "items.jsonl", "--name", "night run", "--data", '{"a": 1}')
    assert answer.code == 0, answer.err
    assert "with 2 items is running" in answer.err
    batch = shown(answer.out.strip())
    assert (batch["name"], batch["total"], batch["status"], batch["data"]) == ("night run", 2, "running", {"a": 1})
    assert "@" in batch["by"]
    tasks = pitboss("tasks", "list", f"batch:{batch['id']}", "--oldest", "--json").json()["tasks"]
    assert [task["params"]["name"] for task in tasks] == ["ann", "bob"]


def test_create_reads_stdin_and_takes_every_option() -> None:
    options = [
        "--lane",
        "slow",
        "--paused",
        "--on-complete",
        "report",
        "--queue",
        "q",
        "--priority",
        "3",
        "--tag",
        "eu",
    ]
    answer = pitboss("batches", "create", "greet", "--file", "-", *options, "--json", stdin='{"name": "ann"}')
    batch = answer.json()["batch"]
    assert (batch["lane"], batch["status"], batch["on_complete"], batch["queues"]) == (
        "slow",
        "paused",
        "report",
        ["q"],
    )
    (task,) = pitboss("tasks", "list", f"batch:{batch['id']}", "--json").json()["tasks"]
    assert (task["queue"], task["priority"], task["tags"], task["state"]) == ("q", 3, ["eu"], "held")


def test_cells_of_csv_become_what_the_parameters_want(folder: Path) -> None:
    (folder / "items.csv").write_text('to,loud,name\n3,yes,007\n4,,\n"5",false,"a,b"\n')
    answer = pitboss("batches", "create", "count", "--file", "items.csv")
    assert answer.code == 0, answer.err
    tasks = pitboss("tasks", "list", "task:count", "--oldest", "--json").json()["tasks"]
    assert [task["params"] for task in tasks] == [
        {"to": 3, "loud": True, "name": "007"},
        {"to": 4},
        {"to": 5, "loud": False, "name": "a,b"},
    ]
    assert {task["queue"] for task in tasks} == {"numbers"}


def test_a_dry_run_stores_nothing(folder: Path) -> None:
    (folder / "items.jsonl").write_text("\n".join(json.dumps({"name": f"n{number}"}) for number in range(9)))
    answer = pitboss("batches", "create", "greet", "--file", "items.jsonl", "--dry-run")
    assert (answer.code, answer.out) == (0, "")
    assert "would store a batch of 9 items" in answer.err
    assert "… and 4 more" in answer.err
    assert pitboss("batches", "list", "--json").json()["batches"] == []


@pytest.mark.parametrize(
    ("args", "stdin", "code", "said"),
    [
        (["gret"], "{}", Exit.NOT_FOUND, "it knows greet"),
        (["greet"], "", Exit.USAGE, "stdin has no items"),
        (["greet"], '{"name": "x"}\n{nope', Exit.USAGE, "line 2 of stdin is not an item"),
        (["greet"], '{"name": "x"}\n[1]', Exit.USAGE, "line 2 of stdin is not an item"),
        (["greet"], '{"name": "x"}\n{"name": 1}\n{}', Exit.USAGE, "2 of 3 items in stdin do not fit"),
        (["greet"], "nam\nx", Exit.USAGE, "has no parameter nam"),
        (["greet"], "name\nx,y", Exit.USAGE, "it has 2 columns"),
        (["greet", "--format", "xml"], "{}", Exit.USAGE, "is not a format"),
        (["greet", "--lane", "a b"], "{}", Exit.USAGE, "cannot name a lane"),
        (["greet", "--data", "[1]"], "{}", Exit.USAGE, "not an object"),
        (["greet", "--on-complete", "greet"], '{"name": "x"}', Exit.USAGE, "do not fit task"),
        (["greet", "--file", "missing.jsonl"], "", Exit.USAGE, "missing.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_a_batch(args: list[str], stdin: str, code: int, said: str) -> None:
    given = args if "--file" in args else [*args, "--file", "-"]
    answer = pitboss("batches", "create", *given, stdin=stdin)
    assert answer.code == code, answer.err
    assert said in answer.err
    assert "fix:" in answer.err
    assert pitboss("batches", "list", "--json").json()["batches"] == []


def test_list_and_show_say_how_far_it_is_and_what_it_waits_for() -> None:
    first, second = made("a", 4), made("b")
    listed = pitboss("batches", "list").out
    assert first[-12:] in listed
    assert "0 %" in listed
    run_all()
    page = pitboss("batches", "show", first[-12:]).out
    assert "100 %  4 of 4 items" in page
    assert "4 completed" in page
    assert "status       done" in page
    waiting = pitboss("batches", "show", second).out
    assert "no manager is running on this store" in waiting
    assert shown(second)["waiting"] == "no manager is running on this store"
    third = made("c")
    assert 'it waits for its turn in lane "default": place 1 of 1' in pitboss("batches", "show", third).out
    assert pitboss("batches", "list", "done", "--json").json()["batches"][0]["percent"] == 100


def test_errors_are_grouped_and_can_be_repeated() -> None:
    batch = made("a", 5)
    run_all(fail="no route")
    page = pitboss("batches", "show", batch).out
    assert "status       done_with_errors" in page
    assert "abcd1234" in page
    assert "no route" in page
    (group,) = pitboss("batches", "show", batch, "--json").json()["errors"]
    assert (group["count"], group["error"]) == (5, "OSError")
    none = pitboss("batches", "requeue", batch, "--error", "KeyError")
    assert none.code == Exit.NOT_FOUND
    answer = pitboss("batches", "requeue", batch[-12:], "--error", "OSError")
    assert answer.code == 0
    assert "5 items set to run again" in answer.err
    assert shown(batch)["status"] == "running"


def test_the_line_is_ordered() -> None:
    _, b, c, d = (made(name) for name in "abcd")
    assert lined_up() == ["a", "b", "c", "d"]
    assert 'batch "d" is queued, place 1' in pitboss("batches", "move", d, "top").err
    assert lined_up() == ["a", "d", "b", "c"]
    pitboss("batches", "move", d, "down")
    pitboss("batches", "move", c, "before", b[-12:])
    assert lined_up() == ["a", "c", "b", "d"]
    pitboss("batches", "move", c, "bottom")
    pitboss("batches", "move", d, "up")
    assert lined_up() == ["a", "d", "b", "c"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["sideways"], Exit.USAGE, "is not a place in line"),
        (["before"], Exit.USAGE, "before needs another batch"),
        (["top", "abcdef"], Exit.USAGE, "takes no other batch"),
        (["before", "abcdef"], Exit.NOT_FOUND, "there is no batch abcdef"),
    ],
)
def test_moves_that_make_no_sense(args: list[str], code: int, said: str) -> None:
    made("a")
    answer = pitboss("batches", "move", made("b"), *args)
    assert answer.code == code
    assert said in answer.err
    assert lined_up() == ["a", "b"]


def test_pause_resume_start_and_cancel() -> None:
    first, second = made("a"), made("b")
    assert 'batch "a" is paused with 3 items left' in pitboss("batches", "pause", first).err
    assert shown(second)["status"] == "running"
    assert 'batch "a" is queued, place 1' in pitboss("batches", "resume", first, "--at", "top").err
    assert 'batch "a" is running: 3 items left' in pitboss("batches", "start", first).err
    refused = pitboss("batches", "cancel", first)
    assert refused.code == Exit.REFUSED
    assert "repeat with --yes" in refused.err
    answer = pitboss("batches", "cancel", first, second, "--yes", "--reason", "wrong list")
    assert 'batch "a" is cancelled; 3 items cancelled' in answer.err
    assert shown(first)["counts"] == {"cancelled": 3}
    assert pitboss("batches", "resume", second, "--at", "middle").code == Exit.USAGE
    again = pitboss("batches", "requeue", second, "--cancelled")
    assert "3 items set to run again" in again.err


def test_items_that_run_are_asked_to_stop_and_not_counted_as_cancelled() -> None:
    batch = made("a")
    run_all(stay=True)
    answer = pitboss("batches", "cancel", batch, "--yes")
    assert 'batch "a" is cancelling: 3 items still running; 0 items cancelled, 3 asked to stop' in answer.err


def test_what_the_status_does_not_allow_is_refused() -> None:
    batch = made("a", 1)
    run_all()
    answer = pitboss("batches", "pause", batch)
    assert answer.code == Exit.USAGE
    assert "fix:" in answer.err


def test_delete_asks_and_forces(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, other = made("a"), made("b", 1200)
    assert pitboss("batches", "delete", batch, "--yes").code == Exit.USAGE
    assert pitboss("batches", "delete", batch, "--force").code == Exit.REFUSED
    monkeypatch.setattr(Screen, "interactive", True)
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    assert pitboss("batches", "delete", other, "--force").code == Exit.REFUSED
    answer = pitboss("batches", "delete", other, "--force")
    assert 'batch "b" is deleted with 1,200 items' in answer.err
    assert asked[0] == 'Delete batch "b" with 1,200 items?'
    assert pitboss("tasks", "list", f"batch:{other}", "--json").json()["tasks"] == []
    assert pitboss("batches", "show", other).code == Exit.NOT_FOUND


def test_lanes_are_listed_and_widened() -> None:
    made("a")
    second = made("b")
    assert pitboss("batches", "lanes", "--json").json()["lanes"] == [
        {"name": "default", "max_running": 1, "running": 1, "queued": 1}
    ]
    answer = pitboss("batches", "lanes", "default", "--max-running", "2")
    assert 'lane "default": at most 2 at a time' in answer.err
    assert shown(second)["status"] == "running"
    assert "default" in pitboss("batches", "lanes").out
    assert pitboss("batches", "lanes", "--max-running", "2").code == Exit.USAGE
    assert pitboss("batches", "lanes", "default", "--max-running", "0").code == Exit.USAGE


@pytest.mark.parametrize(
    ("piece", "code", "said"),
    [("xyz", Exit.USAGE, "is not the id of a batch"), ("abcdef", Exit.NOT_FOUND, "there is no batch abcdef")],
)
def test_ids_that_mean_nothing(piece: str, code: int, said: str) -> None:
    for command in ("show", "start", "pause", "resume", "cancel", "requeue", "delete"):
        answer = pitboss("batches", command, piece)
        assert answer.code == code
        assert said in answer.err
        assert "fix:" in answer.err


def test_an_id_may_be_cut_but_not_ambiguous() -> None:
    first, second = made("a"), made("b")
    common = (
        next(first[:n] for n in range(35, 5, -1) if second.startswith(first[:n])) if first[:6] == second[:6] else ""
    )
    assert shown(first[-6:])["name"] == "a"
    if common:
        answer = pitboss("batches", "show", common)
        assert answer.code == Exit.USAGE
        assert "matches several batches" in answer.err


def test_other_pages_mention_the_batch() -> None:
    batch = made("night run")
    status = pitboss("status")
    assert "night run" in status.out
    assert pitboss("status", "--json").json()["batches"][0]["id"] == batch
    (task, *_) = pitboss("tasks", "list", f"batch:{batch}", "--json").json()["tasks"]
    page = pitboss("tasks", "show", task["id"]).out
    assert batch in page
    assert "no manager is running on this store" in page


def test_items_that_were_drawn_late_are_not_late() -> None:
    """An item is as old as its batch, which may have queued for hours."""
    made("a")
    run_all(stay=True)
    with sqlite3.connect("pitboss.db") as connection:
        connection.execute("update pitboss_tasks set created_at = created_at - 3600000000, state = 'pending'")
    connection.close()
    assert pitboss("status", "--json").json()["cause"] != "late"
    assert pitboss("tasks", "list", "wait:>10m", "--json").json()["tasks"]


def test_items_that_wait_in_a_batch_are_not_trouble() -> None:
    """Held tasks of unknown handlers are trouble; held items are normal."""
    made("a")
    run_all(stay=True)
    made("b")
    assert pitboss("status", "--json").json()["health"] == "healthy"
    put(new("unknown", "{}"))
    assert pitboss("status", "--json").json()["cause"] == "held"


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    for command in (["list"], ["show", "abcdef"], ["pause", "abcdef"], ["lanes"]):
        answer = pitboss("batches", *command, "--store", "sqlite:///missing.db")
        assert answer.code == Exit.UNREACHABLE
        assert not (tmp_path / "missing.db").exists()


def test_a_terminal_sees_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = made("a", 4)
    run_all()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "━━━━" in pitboss("batches", "list").out
    assert "━━━━" in pitboss("batches", "show", batch).out
