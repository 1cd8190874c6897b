"""`pitboss events`: list, show, publish, replay and handlers."""

from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.declared import Declared
from pitboss.model.event import EventType, Subscription
from pitboss.model.queue import HandlerInfo
from tests.cli.command_line import GREET, Answer, pitboss, run_all, with_store

TYPE = EventType("user.signup", '{"type":"object","required":["id"]}')
WANTED = (
    Subscription(handler="greet", pattern="user.*"),
    Subscription(handler="mail", pattern="user.signup", queue="mail", ordered=True),
)


@pytest.fixture(autouse=True)
def declared() -> None:
    async def work(store: Any) -> None:
        await store.register([GREET, HandlerInfo(name="mail", queue="mail")])
        await store.declare(Declared(app="shop", subscriptions=WANTED, events=(TYPE,)))

    with_store(work)


def events(*args: str, stdin: str | None = None) -> Answer:
    return pitboss("events", *args, stdin=stdin)


def published(*args: str) -> str:
    answer = events("publish", *args)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_an_event_is_published_and_shown_with_its_tasks() -> None:
    answer = events("publish", "user.signup", '{"id": 7}', "--key", "u:7")
    assert (answer.code, answer.err) == (0, "2 tasks put for greet, mail\n")
    run_all()
    page = events("show", answer.out.strip()[-8:]).out
    assert 'data         {"id":7}' in page
    assert f"by           {operator()}" in page
    rows = page.split("Tasks\n")[1].splitlines()
    assert [(row.split()[0], row.split()[2]) for row in rows[1:]] == [("greet", "completed"), ("mail", "completed")]
    tasks = events("show", answer.out.strip(), "--json").json()["tasks"]
    assert [task["state"] for task in tasks] == ["completed", "completed"]
    assert (
        f"from         it handles event user.signup ({answer.out.strip()}) with key u:7"
        in pitboss("tasks", "show", tasks[0]["id"]).out
    )


def test_data_is_read_from_stdin_and_json_has_the_tasks() -> None:
    found = events("publish", "user.signup", "-", "--json", stdin='{"id": 1}').json()
    assert (found["created"], [one["handler"] for one in found["tasks"]]) == (True, ["greet", "mail"])


def test_a_repetition_under_its_key_publishes_nothing_more() -> None:
    first = published("user.signup", '{"id": 7}', "--idempotency-key", "k")
    again = events("publish", "user.signup", '{"id": 7}', "--idempotency-key", "k")
    assert (again.out.strip(), "was published before under this key, to greet, mail" in again.err) == (first, True)
    other = events("publish", "user.signup", '{"id": 8}', "--idempotency-key", "k")
    assert (other.code, "with other data" in other.err) == (Exit.USAGE, True)
    assert len(events("list", "--json").json()["events"]) == 1


def test_the_list_is_the_newest_first_and_by_name() -> None:
    ids = [published("user.signup", f'{{"id": {number}}}') for number in range(3)]
    left = published("user.left")
    document = events("list", "--json").json()
    assert [one["id"] for one in document["events"]] == [left, *ids[::-1]]
    assert [one["id"] for one in events("list", "--name", "user.left", "--json").json()["events"]] == [left]
    page = events("list", "-n", "2")
    assert len(page.out.splitlines()) == 3
    assert f"--before {ids[2]}" in page.err
    assert len(events("list", "--before", ids[1], "--json").json()["events"]) == 1


def test_events_are_sent_again_and_that_is_recorded() -> None:
    event = published("user.signup", '{"id": 7}')
    answer = events("replay", event[-8:])
    assert (len(answer.out.splitlines()), answer.err) == (2, "2 tasks put for greet, mail\n")
    one = events("replay", event, "--handler", "mail", "--json").json()
    assert [task["handler"] for task in one["tasks"]] == ["mail"]
    refused = events("replay", event, "--handler", "mial")
    assert (refused.code, "does not subscribe" in refused.err) == (Exit.NOT_FOUND, True)
    entries = pitboss("audit", "--json").json()["entries"]
    assert [(entry["act"], entry["details"]) for entry in entries] == [
        ("events replay", {"handler": ["mail"]}),
        ("events replay", {}),
    ]


def test_who_wants_what_is_listed() -> None:
    rows = [line.split() for line in events("handlers").out.splitlines()[1:]]
    assert rows == [
        ["user.*", "greet", "default", "shop"],
        ["user.signup", "mail", "mail", "one", "at", "a", "time", "shop"],
    ]


def test_an_event_that_no_handler_wants_is_in_the_log_only() -> None:
    answer = events("publish", "order.paid")
    assert "no handler wants order.paid" in answer.err
    assert "none: no handler wanted it" in events("show", answer.out.strip()).out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["publish", "user signup"], Exit.USAGE, "cannot name an event"),
        (["publish", "user.signup", "{"], Exit.USAGE, "is not JSON"),
        (["publish", "user.signup", "{}"], Exit.USAGE, "does not fit the event"),
        (["publish", "user.left", "{}", "--key", ""], Exit.USAGE, "key"),
        (["list", "--name", "*"], Exit.USAGE, "cannot name an event"),
        (["show", "ffffffff"], Exit.NOT_FOUND, "there is no event"),
        (["show", "x"], Exit.USAGE, "not the id of an event"),
        (["replay", "ffffffff"], Exit.NOT_FOUND, "there is no event"),
    ],
)
def test_what_cannot_be_done_is_refused(args: list[str], code: Exit, said: str) -> None:
    answer = events(*args)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert events("list", "--json").json()["events"] == []


def test_waiting_fails_if_a_task_does() -> None:
    """Without a manager it runs into its time limit, and says so."""
    answer = events("publish", "user.left", "--wait", "--timeout", "10ms")
    assert (answer.code, "no manager is running" in answer.err) == (Exit.TIMEOUT, True)
