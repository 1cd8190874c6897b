"""Commands that look: status, tasks list and show, queues list, dead list and show, db, config, help."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from pitboss.cli.errors import Exit
from pitboss.model.duration import SECOND
from pitboss.model.queue import HandlerInfo, QueueChange
from tests.cli.command_line import GREET, new, pitboss, put, run_all, with_store
from tests.engines.full_store import fill

READERS = (
    ("status",),
    ("tasks", "list"),
    ("queues", "list"),
    ("batches", "list"),
    ("batches", "lanes"),
    ("resources", "list"),
    ("pools", "list"),
    ("ps",),
    ("dead", "list"),
    ("figures",),
    ("health",),
    ("db", "status"),
    ("config", "show"),
)


def test_pitboss_alone_says_how_to_begin() -> None:
    answer = pitboss()
    assert answer.code == 0
    assert "Nothing runs here yet" in answer.out
    assert "pitboss init" in answer.out


def test_pitboss_alone_is_the_status_once_there_is_a_store() -> None:
    put(new())
    answer = pitboss()
    assert "No manager is running; 1 task waits." in answer.out
    assert "Next: pitboss up" in answer.out


@pytest.mark.parametrize("command", READERS)
def test_every_reading_command_has_one_versioned_document(command: tuple[str, ...]) -> None:
    put(new())
    run_all(fail="no")
    document = pitboss(*command, "--json").json()
    assert document["version"] == 1


@pytest.mark.parametrize("command", [reader for reader in READERS if reader != ("config", "show")])
def test_a_store_that_is_not_there_is_not_created(command: tuple[str, ...], folder: Path) -> None:
    answer = pitboss(*command)
    assert answer.code == Exit.UNREACHABLE
    assert "there is no store at" in answer.err
    assert "fix: start one with pitboss up" in answer.err
    assert answer.out == ""
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("foo://x", Exit.USAGE, "does not name a store"),
        ("sqlite://x", Exit.USAGE, "three slashes"),
        ("memory://", Exit.USAGE, "within one process"),
        ("postgresql://127.0.0.1:1/x", Exit.UNREACHABLE, "cannot be reached"),
        ("sqlite:///folder/missing.db", Exit.UNREACHABLE, "there is no store"),
    ],
)
def test_a_bad_store_is_one_clear_message(url: str, code: int, said: str) -> None:
    answer = pitboss("status", "--store", url)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_file_that_is_no_store_is_refused(folder: Path) -> None:
    (folder / "notes.db").write_text("these are notes, not a database, " * 20)
    answer = pitboss("status", "--store", "sqlite:///notes.db")
    assert answer.code == Exit.UNREACHABLE
    assert "is not an SQLite database" in answer.err


def test_a_password_is_never_shown() -> None:
    url = "postgresql://me:geheim@127.0.0.1:1/x"
    for args in (["config", "show"], ["config", "show", "--json"], ["status"], ["db", "status"]):
        answer = pitboss(*args, "--store", url)
        assert "geheim" not in answer.out + answer.err


def test_status_tells_the_worst_first() -> None:
    put(new(), new("unknown", "{}"))
    assert "No manager is running; 2 tasks wait." in pitboss("status").out
    run_all(stay=True)
    held = pitboss("status", "--json").json()
    assert (held["health"], held["cause"]) == ("unhealthy", "held")
    assert "unknown" in held["sentence"]
    pitboss("tasks", "cancel", "task:unknown", "--yes")
    assert pitboss("status", "--json").json()["health"] == "healthy"
    put(new())
    pitboss("queues", "pause", "default")
    paused = pitboss("status", "--json").json()
    assert (paused["health"], paused["next"]) == ("attention", "pitboss queues resume default")


def test_status_check_exits_with_6_only_if_unhealthy() -> None:
    put(new())
    assert pitboss("status", "--check").code == Exit.UNHEALTHY
    run_all(stay=True)
    assert pitboss("status", "--check").code == 0


def test_status_lists_queues_and_managers() -> None:
    put(new(), new(queue="mail"))
    run_all(stay=True)
    document = pitboss("status", "--json").json()
    assert [queue["name"] for queue in document["queues"]] == ["default", "mail"]
    assert document["managers"][0]["host"] == "elsewhere"
    assert document["managers"][0]["alive"] is True
    assert "elsewhere" in pitboss("status").out


def test_tasks_list_filters_pages_and_says_how_to_go_on() -> None:
    put(*(new() for _ in range(5)), new(tags=("eu",)))
    assert len(pitboss("tasks", "list", "--json").json()["tasks"]) == 6
    assert len(pitboss("tasks", "list", "tag:eu", "--json").json()["tasks"]) == 1
    assert len(pitboss("tasks", "list", "-tag:eu", "--json").json()["tasks"]) == 5
    page = pitboss("tasks", "list", "-n", "4")
    assert len(page.out.splitlines()) == 5
    cursor = page.err.split("--after ")[1].strip()
    assert len(pitboss("tasks", "list", "--after", cursor, "--json").json()["tasks"]) == 2


def test_a_list_that_stops_says_how_far_it_looked_and_how_to_go_on() -> None:
    with_store(lambda store: fill(store, 18_000))
    page = pitboss("tasks", "list", "args.n:5", "-n", "3")
    assert page.out == ""
    assert re.search(r"looked at 20,000 tasks: none of them matches, the last is of \d{4}-\d\d-\d\d", page.err)
    cursor = page.err.split("--after ")[1].strip()
    document = pitboss("tasks", "list", "args.n:5", "--after", cursor, "--json").json()
    assert (len(document["tasks"]), document["next"], document["covered"]) == (1, None, None)
    document = pitboss("tasks", "list", "args.n:19000", "--json").json()
    assert (len(document["tasks"]), document["next"]) == (1, cursor)
    assert document["covered"].endswith("Z")
    answer = pitboss("tasks", "show", document["tasks"][0]["id"][-8:])
    assert answer.code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bogus:1"], 'there is no field "bogus"'),
        (["state:lost"], "the states are"),
        (["age:soon"], "age is compared"),
        (['"open'], "quotes must be closed"),
    ],
)
def test_a_filter_that_cannot_be_read_is_a_usage_error(words: list[str], said: str) -> None:
    put(new())
    answer = pitboss("tasks", "list", *words)
    assert answer.code == Exit.USAGE
    assert said in answer.err


def test_tasks_show_has_everything() -> None:
    (task,) = put(new(tags=("eu",), priority=3))
    run_all(fail="the disk is full")
    page = pitboss("tasks", "show", task).out
    for said in ("greet", task, "failed", '{"name":"you"}', "priority 3", "eu", "OSError: the disk is full", "File x"):
        assert said in page
    document = pitboss("tasks", "show", task, "--json").json()
    assert document["task"]["params"] == {"name": "you"}
    assert document["attempts"][0]["error"]["type"] == "OSError"
    assert document["task"]["created_at"].endswith("Z")


def test_a_piece_of_an_id_is_enough() -> None:
    (task,) = put(new())
    assert task in pitboss("tasks", "show", task[-8:]).out
    assert task in pitboss("tasks", "show", task[-8:].upper()).out


@pytest.mark.parametrize(
    ("piece", "code"),
    [("123", Exit.USAGE), ("no-id!", Exit.USAGE), ("01900000-0000-7000-8000-000000000000", Exit.NOT_FOUND)],
)
def test_an_id_that_is_none(piece: str, code: int) -> None:
    put(new())
    assert pitboss("tasks", "show", piece).code == code


def test_a_piece_that_matches_several_tasks_is_refused() -> None:
    first, _ = put(new(), new())
    answer = pitboss("tasks", "show", first[:8])
    assert answer.code == Exit.USAGE
    assert "matches several tasks" in answer.err


def test_tasks_show_says_why_it_waits() -> None:
    (task,) = put(new())

    def why() -> str:
        return str(pitboss("tasks", "show", task, "--json").json()["why"])

    assert why() == "no manager is running on this store"
    with_store(lambda store: store.change_queue("default", QueueChange(paused=True, by="me")))
    assert " paused by me" in why()
    (later,) = put(new(delay=3600 * SECOND))
    assert "due in 59m" in pitboss("tasks", "show", later).out
    (held,) = put(new("unknown", "{}"))
    assert 'no live worker knows the handler "unknown"' in pitboss("tasks", "show", held).out


def test_why_lists_every_gate_with_what_helps() -> None:
    (task,) = put(new())
    answer = pitboss("why", task[-8:])
    assert answer.code == 0
    assert "No manager is running on this store." in answer.out
    rows = [line.split()[0] for line in answer.out.splitlines() if line.startswith(("ok ", "shut ", "- "))]
    assert rows.count("shut") == 1
    assert "starts       not before that is changed\nhelps        pitboss up" in answer.out
    document = pitboss("why", task, "--json").json()
    assert (document["cause"], document["stuck"], document["helps"]) == ("no-manager", True, ["pitboss up"])
    assert [gate["name"] for gate in document["gates"] if gate["passed"] is False] == ["manager"]


def test_why_of_tasks_that_run_or_have_ended_and_of_nothing() -> None:
    (first,) = put(new())
    run_all()
    assert "It has ended: completed." in pitboss("why", first).out
    (second,) = put(new())
    run_all(stay=True)
    assert "on elsewhere." in pitboss("why", second).out
    assert pitboss("why", "0123456789ab").code == Exit.NOT_FOUND


def test_status_lists_all_that_waits_if_it_is_more_than_one_thing() -> None:
    handlers = [HandlerInfo(name=name, queue=name, resources=name) for name in ("greet", "flaky")]
    put(*(new(name, "{}", queue=name) for name in ("greet", "flaky")), handlers=handlers)
    run_all(stay=True)
    page = pitboss("status").out
    assert 'Waiting\n1 task of queue "flaky" cannot start: resource pool "flaky" has no members\n1 task of' in page


def test_what_a_store_says_cannot_command_the_terminal() -> None:
    (task,) = put(new(params='{"name":"\x1b[31mred\x1b]0;title\x07"}'))
    answer = pitboss("tasks", "show", task)
    assert "\x1b" not in answer.out
    assert "\x07" not in answer.out


def test_dead_groups_by_cause() -> None:
    put(new(), new(), new("flaky", "{}"), handlers=(GREET, HandlerInfo(name="flaky")))
    run_all(fail="no route")
    groups = pitboss("dead", "list", "--json").json()["groups"]
    assert [(group["handler"], group["count"]) for group in groups] == [("greet", 2), ("flaky", 1)]
    assert groups[0]["error"] == "OSError"
    listed = pitboss("dead", "list").out
    assert "abcd1234" in listed
    assert "no route" in listed
    shown = pitboss("dead", "show", "abcd").out
    assert "no route" in shown
    assert "pitboss dead retry abcd1234" in shown
    assert pitboss("dead", "show", "ffff").code == Exit.NOT_FOUND
    assert pitboss("dead", "list", "queue:none").err.strip() == "no failed tasks"


def test_db_status_upgrade_and_sql(folder: Path) -> None:
    assert pitboss("db", "upgrade").code == 0
    assert (folder / "pitboss.db").exists()
    document = pitboss("db", "status", "--json").json()
    assert document["current"] is True
    assert "CREATE TABLE" in pitboss("db", "sql").out
    script = pitboss("db", "sql", "postgres", "--schema", "jobs").out
    assert script.startswith("BEGIN;")
    assert '"jobs".tasks' in script
    assert pitboss("db", "sql", "sqlite", "--from", "99").out.startswith("-- nothing to do")
    assert pitboss("db", "sql", "mongo").code == Exit.USAGE
    assert pitboss("db", "status", "--store", "memory://").code == Exit.USAGE


def test_config_show_names_every_origin(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('workers = 3\n[retention]\nfailed = "forever"\n')
    answer = pitboss("config", "show", "--origin", "--store", "memory://", env={"PITBOSS_CONCURRENCY": "5"})
    rows = {line.split()[0]: line for line in answer.out.splitlines() if line}
    assert "file (pitboss.toml)" in rows["workers"]
    assert "environment (PITBOSS_CONCURRENCY)" in rows["concurrency"]
    assert "command line (--store)" in rows["store"]
    assert "default" in rows["drain"]
    assert "forever" in rows["retention.failed"]


@pytest.mark.parametrize("command", [["status"], ["tasks", "list"], ["up"], ["config", "show"]])
def test_a_bad_setting_names_the_file_and_the_key(command: list[str], folder: Path) -> None:
    (folder / "pitboss.toml").write_text('workers = "many"\n')
    answer = pitboss(*command)
    assert answer.code == Exit.USAGE
    assert "workers = 'many' cannot be used" in answer.err
    assert "pitboss.toml" in answer.err


@pytest.mark.parametrize("topic", [["exit-codes"], ["filters"], ["json"], ["completion"], ["tasks", "list"], []])
def test_help_has_pages(topic: list[str]) -> None:
    answer = pitboss("help", *topic)
    assert answer.code == 0
    assert answer.out.strip()


def test_help_of_nothing() -> None:
    assert pitboss("help", "nothing").code == Exit.NOT_FOUND


def test_every_exit_code_is_explained() -> None:
    page = pitboss("help", "exit-codes").out
    for code in Exit:
        assert f"{code.value}  {code.meaning}" in page


def test_every_command_has_an_example_before_its_options() -> None:
    for command in _commands():
        text = pitboss(*command, "--help").out
        assert "Examples:" in text, command
        assert text.index("Examples:") < text.index("Options:"), command
        assert text == pitboss(*command, "-h").out


def test_nouns_may_be_singular() -> None:
    put(new())
    assert pitboss("task", "list").out == pitboss("tasks", "list").out
    assert pitboss("queue", "list").out == pitboss("queues", "list").out


def test_version() -> None:
    assert pitboss("--version").out.startswith("pitboss ")


@pytest.mark.parametrize("words", [["nonsense"], ["tasks", "lst"], ["status", "--bogus"], ["tasks", "list", "-n", "x"]])
def test_usage_errors_are_short_and_point_to_help(words: list[str]) -> None:
    answer = pitboss(*words)
    assert answer.code == Exit.USAGE
    assert answer.err.startswith("error: ")
    assert "--help" in answer.err
    assert len(answer.err.splitlines()) <= 3


def test_watch_needs_a_time() -> None:
    put(new())
    assert pitboss("status", "--watch", "soon").code == Exit.USAGE
    assert pitboss("status", "--watch", "0s").code == Exit.USAGE


def _commands() -> list[list[str]]:
    nouns = {
        "tasks": ["list", "show", "retry", "cancel", "enqueue"],
        "queues": ["list", "show", "pause", "resume", "limit"],
        "pools": ["list", "scale", "restart", "pause", "resume"],
        "dead": ["list", "show", "retry", "discard"],
        "db": ["status", "upgrade", "sql"],
        "config": ["show"],
    }
    both = [[noun, verb] for noun, verbs in nouns.items() for verb in verbs]
    alone = ["up", "init", "status", "why", "ps", "top", "stop", "drain", "doctor", "help"]
    return [*([name] for name in alone), *both]


def test_documents_are_one_line_each_for_a_watch_and_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    put(new())
    left = iter([None, None])

    async def sleep(_: float) -> None:
        if next(left, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "sleep", sleep)
    answer = pitboss("tasks", "list", "--json", "--watch", "1s")
    assert answer.code == 0
    assert [json.loads(line)["version"] for line in answer.out.splitlines()] == [1, 1, 1]
