"""`pitboss keys` and `pitboss audit`, and that every command that changes something is in the audit log."""

from pathlib import Path
from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.access import key_parts
from pitboss.model.batch import NewBatch
from pitboss.model.resource import NewResource
from tests.cli.command_line import new, pitboss, put, run_all, with_store
from tests.cli.fake_managers import manager, snapshot, worker


def created(*args: str) -> str:
    answer = pitboss("keys", "create", *args)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def entries(*args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pitboss("audit", "--json", *args).json()["entries"]
    return found


def test_a_key_is_printed_once_and_the_store_has_only_its_digest(folder: Path) -> None:
    answer = pitboss("keys", "create", "ci", "--role", "worker", "--role", "producer")
    text = answer.out.strip()
    key_id, secret = key_parts(text) or ("", "")
    assert (len(key_id), len(secret)) == (8, 43)
    assert answer.err == f'key "ci" ({key_id}) may act as producer, worker; it is not shown again\n'
    listed = pitboss("keys", "list")
    assert listed.out.splitlines()[1].split()[:3] == ["ci", key_id, "active"]
    stored = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert secret.encode() not in stored
    document = pitboss("keys", "list", "--json").json()["keys"]
    assert [(one["name"], one["roles"], one["created_by"]) for one in document] == [
        ("ci", ["producer", "worker"], operator())
    ]
    assert "digest" not in document[0]


def test_a_key_as_json_has_its_text() -> None:
    found = pitboss("keys", "create", "ci", "--role", "viewer", "--json").json()
    assert key_parts(found["text"]) is not None
    assert found["key"]["id"] in found["text"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["create", "ci"], Exit.USAGE, "--role"),
        (["create", "ci", "--role", "boss"], Exit.USAGE, "the roles are producer, worker, viewer, operator, admin"),
        (["create", "a b", "--role", "viewer"], Exit.USAGE, "names are"),
        (["revoke", "other", "--yes"], Exit.NOT_FOUND, "there is no key"),
    ],
)
def test_what_cannot_be_done_is_refused(args: list[str], code: Exit, said: str) -> None:
    created("first", "--role", "admin")
    answer = pitboss("keys", *args)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert len(entries()) == 1


def test_a_second_key_of_a_name_is_refused_until_the_first_is_revoked() -> None:
    created("ci", "--role", "viewer")
    assert "there is a key named ci already" in pitboss("keys", "create", "ci", "--role", "viewer").err
    refused = pitboss("keys", "revoke", "ci")
    assert (refused.code, "repeat with --yes" in refused.err) == (Exit.REFUSED, True)
    assert " is revoked\n" in pitboss("keys", "revoke", "ci", "--yes").err
    assert " is revoked already\n" in pitboss("keys", "revoke", "ci", "--yes").err
    created("ci", "--role", "viewer")
    assert [one.split()[2] for one in pitboss("keys", "list").out.splitlines()[1:]] == ["revoked", "active"]


def test_a_store_without_keys_says_how_to_make_one() -> None:
    put(new())
    assert "pitboss keys create" in pitboss("keys", "list").err
    assert pitboss("audit").err == "no acts of operators are recorded\n"


def scene() -> str:
    """A store in which every act has something to do; the id of a batch."""
    put(new(), new(), new(queue="mail"))
    run_all(fail="no route")
    put(new(), new(queue="mail"))
    manager(snapshot(worker()))

    async def fill(store: Any) -> str:
        await store.add_resources("proxies", [NewResource(name="p1")])
        item = new()
        return str((await store.create_batch(NewBatch(id=item.id[:-4] + "beef"), [item])).id)

    return with_store(fill)


ACTS: list[tuple[list[str], str, str, dict[str, Any]]] = [
    (["queues", "pause", "mail", "default"], "queues pause", "mail default", {}),
    (["queue", "resume", "mail"], "queues resume", "mail", {}),
    (["queues", "limit", "mail", "--rate", "20/min"], "queues limit", "mail", {"rate": "20/min"}),
    (["tasks", "cancel", "queue:mail", "--yes", "--reason", "late"], "tasks cancel", "queue:mail", {"reason": "late"}),
    (["tasks", "retry", "queue:mail", "-tag:x", "--yes"], "tasks retry", "queue:mail -tag:x", {}),
    (["dead", "retry", "--all", "--yes"], "dead retry", "", {"all": True}),
    (["dead", "discard", "queue:default", "--yes"], "dead discard", "queue:default", {}),
    (["batches", "pause", "BATCH"], "batches pause", "BATCH", {}),
    (["batches", "cancel", "BATCH", "--yes"], "batches cancel", "BATCH", {}),
    (["batches", "lanes", "default", "--max-running", "2"], "batches lanes", "default", {"max-running": 2}),
    (["pools", "scale", "download", "3"], "pools scale", "download 3", {}),
    (["pools", "restart", "download", "--host", "box1"], "pools restart", "download", {"host": "box1"}),
    (["pools", "pause", "download"], "pools pause", "download", {}),
    (["drain", "--host", "box1", "--no-wait"], "drain", "", {"host": "box1"}),
    (["stop", "--now", "--yes", "--no-wait"], "stop", "", {"now": True}),
    (["resources", "disable", "proxies", "p1"], "resources disable", "proxies p1", {}),
    (["resources", "limit", "proxies", "per_hour=20"], "resources limit", "proxies per_hour=20", {}),
    (["resources", "remove", "proxies", "--all", "--yes"], "resources remove", "proxies", {"all": True}),
    (["keys", "create", "ci", "--role", "viewer"], "keys create", "ci", {"role": ["viewer"]}),
]


@pytest.mark.parametrize("one", ACTS, ids=lambda one: " ".join(one[0][:2]))
def test_every_act_is_in_the_audit_log(one: tuple[list[str], str, str, dict[str, Any]]) -> None:
    words, act, target, details = one
    batch = scene()
    words, target = [batch if word == "BATCH" else word for word in words], target.replace("BATCH", batch)
    answer = pitboss(*words)
    assert answer.code == 0, answer.err
    (entry,) = entries()
    assert (entry["act"], entry["target"], entry["details"]) == (act, target, details)
    assert (entry["who"], entry["source"]) == (operator(), f"cli {operator().partition('@')[2]}")


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
