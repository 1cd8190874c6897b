"""`pitboss audit`, and that every command that changes something is in the audit log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.main import COMMANDS, loaded
from pitboss.model.alert_look import AlertNotes, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import EVERYTHING
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.partition import Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.resource import NewResource
from pitboss.model.schedule import ScheduleSpec
from pitboss.operate import audit as log
from tests.cli.command_line import new, pitboss, put, run_all, with_store
from tests.cli.fake_managers import manager, snapshot, worker


def entries(*args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pitboss("audit", "--json", *args).json()["entries"]
    return found


def scene() -> dict[str, str]:
    """A store in which every act has something to do; the ids of two batches, a task and an event."""
    put(new(), new(), new(queue="mail"))
    run_all(fail="no route")
    (task, _) = put(new(), new(queue="mail"))
    manager(snapshot(worker()))

    async def fill(store: Any) -> dict[str, str]:
        await store.add_resources("proxies", [NewResource(name="p1")])
        items = [new(), new()]
        made = [await store.create_batch(NewBatch(id=one.id[:-4] + "beef"), [one]) for one in items]
        session = (await store.sessions())[-1].number
        declared = Declared(
            app="shop",
            queues={"keyed": QueueSettings(partitions=Partitioning(by="{name}", mode="balanced"))},
            subscriptions=(Subscription(handler="greet", pattern="user.*", parameter="name"),),
        )
        await store.declare(declared)
        await store.take_slots(session, "web", "box1", [0, 1])
        await store.put([new(queue="keyed")])
        await store.put_schedule(ScheduleSpec(name="eu", handler="greet", every=3600 * SECOND, params='{"name":"x"}'))
        event = NewEvent(id=new().id, name="user.signup", data='"you"')
        await store.publish([event])
        notes = AlertNotes(at=store.clock.now(), rules=rules_of({}))
        await store.note_alerts(notes_text(notes), [], version=0, term=(await store.campaign(session)).term)
        operation = NewOperation(id=new().id, verb=Verb.RETRY, wanted=EVERYTHING)
        await store.begin_operation(operation)
        return {"OPERATION": operation.id, "BATCH": made[0].id, "OTHER": made[1].id, "TASK": task, "EVENT": event.id}

    return with_store(fill)


# The words of the command; its target if that is not the words after its name; and its details.
ACTS: list[tuple[list[str], str | None, dict[str, Any]]] = [
    (["queues", "pause", "mail", "default"], None, {}),
    (["queues", "resume", "mail"], None, {}),
    (["queues", "limit", "mail", "--rate", "20/min"], "mail", {"rate": "20/min"}),
    (["tasks", "change", "TASK", "--priority", "3"], "TASK", {"priority": 3}),
    (["tasks", "cancel", "queue:mail", "--yes", "--reason", "late"], "queue:mail", {"reason": "late", "tasks": 1}),
    (["tasks", "retry", "queue:mail", "-tag:x", "--yes"], "queue:mail -tag:x", {"tasks": 1}),
    (["dead", "retry", "--all", "--yes"], "", {"all": True, "tasks": 3}),
    (["dead", "discard", "queue:default", "--yes"], "queue:default", {"tasks": 2}),
    (["batches", "start", "OTHER"], None, {}),
    (["batches", "pause", "BATCH"], None, {}),
    (["batches", "resume", "BATCH", "--at", "top"], "BATCH", {"at": "top"}),
    (["batches", "move", "OTHER", "top"], None, {}),
    (["batches", "cancel", "BATCH", "--yes"], "BATCH", {}),
    (["batches", "requeue", "BATCH", "--cancelled"], "BATCH", {"cancelled": True}),
    (["batches", "delete", "BATCH", "--force", "--yes"], "BATCH", {"force": True}),
    (["batches", "lanes", "default", "--max-running", "2"], "default", {"max-running": 2}),
    (["partitions", "move", "keyed", "you", "web/1"], None, {}),
    (["partitions", "pin", "keyed", "you", "web/1"], None, {}),
    (["schedules", "add", "us", "greet", "--every", "1h", "--params", '{"name":"x"}'], "us greet", {"every": "1h"}),
    (["schedules", "change", "eu", "--every", "2h"], "eu", {"every": "2h"}),
    (["schedules", "reset", "eu"], None, {}),
    (["schedules", "pause", "eu"], None, {}),
    (["schedules", "resume", "eu"], None, {}),
    (["schedules", "remove", "eu", "--yes"], "eu", {}),
    (["schedules", "run", "eu"], None, {}),
    (["events", "replay", "EVENT"], None, {}),
    (["pools", "scale", "download", "3"], None, {}),
    (["pools", "set", "download", "delay=5s"], None, {}),
    (["pools", "restart", "download", "--host", "box1"], "download", {"host": "box1"}),
    (["pools", "pause", "download"], None, {}),
    (["pools", "resume", "download"], None, {}),
    (["drain", "--host", "box1", "--no-wait"], "", {"host": "box1"}),
    (["stop", "--now", "--yes", "--no-wait"], "", {"now": True}),
    (["resources", "add", "proxies", "p2"], "proxies/p2", {"fields": [], "secrets": []}),
    (["resources", "import", "proxies", "list.txt"], "proxies", {"members": 1}),
    (["resources", "enable", "proxies", "p1"], None, {}),
    (["resources", "disable", "proxies", "p1"], None, {}),
    (["resources", "reset", "proxies", "p1"], None, {}),
    (["resources", "limit", "proxies", "per_hour=20"], None, {}),
    (["resources", "remove", "proxies", "--all", "--yes"], "proxies", {"all": True}),
    (["keys", "create", "ci", "--role", "viewer"], "ci", {"role": ["viewer"]}),
    (["views", "save", "late", "queue:mail"], None, {}),
    (["views", "remove", "late"], None, {}),
    (["keys", "revoke", "old", "--yes"], "old", {}),
    (["operations", "rate", "OPERATION", "20/s"], None, {}),
    (["operations", "cancel", "OPERATION"], None, {}),
    (["alerts", "silence", "disk", "--for", "2h"], "disk", {"for": "2h"}),
    (["alerts", "unsilence", "disk"], None, {}),
    (["db", "check", "--repair"], "", {"repair": True}),
]
# What must be done before, so that the act changes something.
FIRST = {
    "pools resume": [["pools", "pause", "download"]],
    "views remove": [["views", "save", "late", "queue:mail"]],
    "batches requeue": [["batches", "cancel", "BATCH", "--yes"]],
    "alerts unsilence": [["alerts", "silence", "disk", "--for", "2h"]],
}
READS = {
    *("init", "status", "why", "logs", "ps", "top", "doctor", "plan", "help", "sources", "audit", "activity"),
    *("tasks list", "tasks show", "tasks stack", "batches list", "batches show", "queues list", "queues show"),
    *("partitions show", "partitions validate", "schedules list", "schedules show", "schedules next"),
    *("events list", "events show", "events handlers", "resources list", "resources show", "resources test"),
    *("pools list", "dead list", "dead show", "keys list", "config show"),
    *("db status", "db backup", "db sql", "views list"),
    *("health", "figures", "report", "alerts list", "alerts test", "operations list", "operations show"),
    "operations wait",
}
# Managers say themselves what they do (happenings), and what is put says itself where it comes from.
OTHERS = {"up", "serve", "tasks enqueue", "batches create", "events publish"}
# Tested with a server: a file is upgraded when it is opened.
APART = {"db upgrade"}


def commands() -> Iterator[str]:
    """Every command of the tree that does something."""
    for name in COMMANDS:
        found = loaded(name)
        yield from (f"{name} {verb}" for verb in found.commands) if hasattr(found, "commands") else [name]


def name_of(words: list[str]) -> str:
    return " ".join(words[:1] if words[0] in ("drain", "stop") else words[:2])


def test_every_command_is_an_act_or_is_known_to_be_none() -> None:
    """A new command belongs into one of these lists."""
    known = [*{name_of(words) for words, _, _ in ACTS}, *READS, *OTHERS, *APART]
    assert sorted(known) == sorted(commands())


@pytest.mark.parametrize("one", ACTS, ids=lambda one: name_of(one[0]))
def test_every_act_is_in_the_audit_log(one: tuple[list[str], str | None, dict[str, Any]], folder: Path) -> None:
    words, target, details = one
    ids, act = scene(), name_of(words)
    (folder / "list.txt").write_text("10.0.0.8:8080\n")
    pitboss("keys", "create", "old", "--role", "viewer")
    for first in FIRST.get(act, ()):
        pitboss(*(ids.get(word, word) for word in first))
    before = len(entries())
    target = " ".join(words[len(act.split()) :]) if target is None else target
    for name, number in ids.items():
        words, target = [number if word == name else word for word in words], target.replace(name, number)
    answer = pitboss(*words)
    assert answer.code == 0, answer.err
    entry, *earlier = entries()
    assert len(earlier) == before
    kept = {key: value for key, value in entry["details"].items() if key not in ("params", "before")}
    assert (entry["act"], entry["target"], kept) == (act, target, details)
    assert (entry["who"], entry["source"]) == (operator(), f"cli {operator().partition('@')[2]}")


def test_an_alias_is_recorded_under_the_name_that_it_stands_for() -> None:
    scene()
    pitboss("queue", "resume", "mail")
    assert entries()[0]["act"] == "queues resume"


@pytest.mark.parametrize(
    "words",
    [
        ["queues", "list"],
        ["status"],
        ["tasks", "list"],
        ["tasks", "cancel", "queue:mail", "--dry-run"],
        ["tasks", "cancel", "queue:mail"],
        ["resources", "limit", "proxies"],
        ["batches", "lanes"],
        ["keys", "list"],
        ["audit"],
        ["queues", "pause", "unknown"],
    ],
    ids=" ".join,
)
def test_what_changes_nothing_is_not(words: list[str]) -> None:
    scene()
    pitboss(*words)
    assert entries() == []


def test_members_are_recorded_without_their_secrets(folder: Path) -> None:
    (folder / "list.txt").write_text("10.0.0.8:8080:ann:hunter2\n10.0.0.9:8080:ann:hunter2\n")
    answer = pitboss("resources", "add", "proxies", "p1", "--url", "http://ann:hunter2@10.0.0.7:8080")
    assert answer.code == 0, answer.err
    assert pitboss("resources", "import", "proxies", "list.txt").code == 0
    newest, first = entries()
    assert (first["act"], first["target"]) == ("resources add", "proxies/p1")
    assert first["details"] == {"fields": ["host", "port", "scheme", "user"], "secrets": ["password"]}
    assert (newest["act"], newest["target"], newest["details"]) == ("resources import", "proxies", {"members": 2})
    assert "hunter2" not in pitboss("audit", "--json").out


def test_the_log_is_selected_and_limited() -> None:
    scene()
    for queue in ("mail", "default"):
        pitboss("queues", "pause", queue)
    pitboss("tasks", "cancel", "queue:mail", "--yes")
    assert [one["act"] for one in entries("--limit", "2")] == ["tasks cancel", "queues pause"]
    assert [one["target"] for one in entries("--act", "queues")] == ["default", "mail"]
    assert len(entries("--who", operator().partition("@")[0])) == 3
    assert entries("--who", "stranger") == []
    lines = pitboss("audit", "--act", "queues").out.splitlines()
    assert lines[0].split() == ["WHEN", "WHO", "ACT", "TARGET", "DETAILS", "SOURCE"]
    assert len(lines) == 3


def test_a_search_that_would_be_long_says_how_far_it_looked() -> None:
    put(new())
    for _ in range(3):
        pitboss("queues", "pause", "default")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "MOST_READ", 1)
        patch.setattr(log, "_PAGE", 1)
        answer = pitboss("audit", "--who", "stranger", "--limit", "1")
        found = pitboss("audit", "--who", "stranger", "--limit", "1", "--json").json()
    assert "entries: 0 matches, the last is of " in answer.err
    assert f"go on with --before {found['next']}" in answer.err
    assert found["covered"] is not None
    assert len(pitboss("audit", "--before", found["next"], "--json").json()["entries"]) == 2
