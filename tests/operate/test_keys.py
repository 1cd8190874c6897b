"""Keys of the HTTP API, and the audit log."""

from itertools import count

import pytest

from pitboss import wiring
from pitboss.engines.capabilities import access_of
from pitboss.model.access import AuditEntry, Role, key_parts
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound, Refused, Unsupported
from pitboss.model.queue import QueueChange
from pitboss.operate import audit
from pitboss.operate.audit import read_audit
from pitboss.operate.documents import audit_document, key_document
from pitboss.operate.keys import create_key, find_key, list_keys, refuse_open_door, revoke_key
from tests.operate.bench import Bench

_NUMBERS = count(1)


async def made(store: Bench, name: str = "ci", *roles: str) -> str:
    """The text of a new key."""
    _, text = await create_key(
        store,
        name,
        roles or ("producer",),
        by="ann@box1",
        make_id=lambda: f"id{next(_NUMBERS)}",
        make_secret=lambda: "s_e-cret",
    )
    return text


async def test_a_key_is_shown_once_and_opens_what_it_says(store: Bench) -> None:
    text = await made(store, "ci", "worker", "producer")
    (key,) = await list_keys(store)
    assert (key.name, key.roles, key.created_by, key.created_at) == (
        "ci",
        (Role.PRODUCER, Role.WORKER),
        "ann@box1",
        store.now,
    )
    assert key_parts(text) == (key.id, "s_e-cret")
    assert key.opened_by("s_e-cret")
    assert "s_e-cret" not in repr(key)
    document = key_document(key)
    assert "digest" not in document
    assert document["roles"] == ["producer", "worker"]


@pytest.mark.parametrize(("name", "roles"), [("a b", ("viewer",)), ("ci", ("boss",)), ("ci", ())])
async def test_a_key_that_cannot_be_used_is_refused_and_not_stored(
    store: Bench, name: str, roles: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput):
        await create_key(store, name, roles, by="ann", make_id=lambda: "id", make_secret=lambda: "s")
    assert await list_keys(store) == []


async def test_a_key_is_revoked_by_its_name_or_its_id(store: Bench) -> None:
    await made(store, "ci")
    first = await revoke_key(store, "ci")
    assert first.revoked_at == store.now
    store.time.advance(1)
    await made(store, "ci")
    second = await find_key(store, "ci")
    assert second.id != first.id, "the name means the key that is not revoked"
    assert (await find_key(store, first.id)).revoked_at is not None
    assert (await revoke_key(store, second.id)).revoked_at == store.now
    assert (await revoke_key(store, "ci")).id == second.id
    with pytest.raises(NotFound, match="no key"):
        await revoke_key(store, "other")


async def test_a_misspelt_key_names_the_one_that_was_meant(store: Bench) -> None:
    await made(store, "crawler")
    with pytest.raises(NotFound) as caught:
        await find_key(store, "crwaler")
    assert "crawler" in caught.value.why
    assert caught.value.fix == "did you mean crawler?"


async def test_other_machines_are_let_in_only_with_a_key(store: Bench) -> None:
    with pytest.raises(Refused) as caught:
        await refuse_open_door(store, "0.0.0.0:8000")
    assert caught.value.what == "the HTTP API cannot listen on 0.0.0.0:8000"
    assert "pitboss keys create" in caught.value.fix
    await made(store)
    await refuse_open_door(store, "0.0.0.0:8000")
    await revoke_key(store, "ci")
    with pytest.raises(Refused):
        await refuse_open_door(store, "0.0.0.0:8000")


def test_real_keys_cannot_be_guessed_and_can_be_taken_apart() -> None:
    ids, secrets = {wiring.key_id() for _ in range(100)}, {wiring.key_secret() for _ in range(100)}
    assert len(ids) == len(secrets) == 100
    assert {len(one) for one in ids} == {8}
    assert {len(one) for one in secrets} == {43}
    assert not any("_" in one for one in ids)


async def test_a_store_without_keys_says_so() -> None:
    with pytest.raises(Unsupported, match="no keys of the HTTP API"):
        access_of(object())


async def acted(store: Bench, who: str, act: str) -> None:
    entry = AuditEntry(id=store.new_id(), who=who, act=act, target="mail", details='{"rate":"1/s"}', source="cli box1")
    await store.audited(entry).change_queue("mail", QueueChange(paused=True))
    store.time.advance(1)


async def test_the_audit_log_is_read_by_act_and_by_who(store: Bench) -> None:
    for who, act in (
        ("ann@box1", "queues pause"),
        ("ci", "tasks retry"),
        ("ann@box2", "queue"),
        ("bob@box1", "queues limit"),
    ):
        await acted(store, who, act)

    async def acts(act: str | None = None, who: str | None = None) -> list[str]:
        return [entry.act for entry in (await read_audit(store, act=act, who=who)).entries]

    assert await acts() == ["queues limit", "queue", "tasks retry", "queues pause"]
    assert await acts(act="queues") == ["queues limit", "queues pause"]
    assert await acts(act="queues pause") == ["queues pause"]
    assert await acts(who="ann") == ["queue", "queues pause"]
    assert await acts(who="ann@box1") == ["queues pause"]
    assert await acts(who="ci", act="tasks") == ["tasks retry"]
    document = audit_document((await read_audit(store, limit=1)).entries[0])
    assert (document["who"], document["details"], document["source"]) == ("bob@box1", {"rate": "1/s"}, "cli box1")


async def test_a_selection_looks_beyond_the_first_page(store: Bench) -> None:
    await acted(store, "ann", "queues pause")
    for _ in range(1200):
        await acted(store, "ci", "tasks retry")
    found = await read_audit(store, 10, act="queues")
    assert ([one.who for one in found.entries], found.next, found.covered) == (["ann"], None, None)
    page = await read_audit(store, 700, who="ci")
    assert (len(page.entries), page.next) == (700, page.entries[-1].id)
    rest = await read_audit(store, 700, before=page.next)
    assert (len(rest.entries), rest.entries[-1].act, rest.next) == (501, "queues pause", None)


async def test_a_selection_ends_after_a_number_of_entries_and_says_so(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_READ", 1000)
    await acted(store, "ann", "queues pause")
    for _ in range(1000):
        await acted(store, "ci", "tasks retry")
    found = await read_audit(store, 10, who="ann")
    assert (found.entries, found.covered) == ([], store.now - 1000 * SECOND)
    further = await read_audit(store, 10, before=found.next, who="ann")
    assert ([one.who for one in further.entries], further.covered) == (["ann"], None)
    whole = await read_audit(store, 1001)
    assert (len(whole.entries), whole.covered) == (1001, None)
