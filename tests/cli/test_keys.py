"""`pitboss keys`."""

from pathlib import Path
from typing import Any

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.access import key_parts
from tests.cli.command_line import new, pitboss, put


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
