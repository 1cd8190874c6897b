"""Events as people look at them: found by a piece of their id, sent again, and who wants them."""

import pytest

from pitboss.model.access import AuditEntry
from pitboss.model.declared import Declared
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.event import Subscription
from pitboss.operate.events import event_client, list_subscriptions, read_event, replay_events, subscribers_of
from pitboss.operate.schedule_documents import event_page_document, subscription_document
from tests.operate.bench import GREET, Bench

WANTED = (
    Subscription(handler="greet", pattern="user.*", parameter="name"),
    Subscription(handler="mail", pattern="user.signup", queue="mail", ordered=True),
)


async def declared(store: Bench) -> None:
    await store.register([GREET])
    await store.declare(Declared(app="shop", subscriptions=WANTED))


async def test_an_event_has_its_tasks_with_their_states(store: Bench) -> None:
    await declared(store)
    client = event_client(store, store.new_id)
    published = await client.publish("user.signup", "ann", key="7", by="bob")
    await store.run_all()
    page = await read_event(client, store, published.id[-8:].upper())
    document = event_page_document(page)
    assert (document["name"], document["data"], document["key"], document["by"]) == ("user.signup", "ann", "7", "bob")
    assert [(one["handler"], one["state"]) for one in document["tasks"]] == [("greet", "completed"), ("mail", "held")]
    with pytest.raises(NotFound, match="no event"):
        await read_event(client, store, "ffffffff")
    with pytest.raises(InvalidInput, match="not the id of an event"):
        await read_event(client, store, "user.signup")


async def test_events_are_sent_again_to_all_or_to_some(store: Bench) -> None:
    await declared(store)
    client = event_client(store, store.new_id)
    ids = [(await client.publish("user.signup", "ann")).id for _ in range(2)]
    done = await replay_events(client, store, ids)
    assert [[handler for handler, _ in one.tasks] for one in done] == [["greet", "mail"]] * 2
    audited = store.audited(AuditEntry(id=store.new_id(), who="ann", act="events replay", target=ids[0]))
    (one,) = await replay_events(event_client(audited, store.new_id), audited, ids[:1], ["mail"])
    assert [(handler, placed.created) for handler, placed in one.tasks] == [("mail", True)]
    assert [entry.act for entry in await store.audit_log()] == ["events replay"]
    other = (await client.publish("user.left")).id
    before = len(store.tables.tasks)
    for event, handler in ((ids[1], "mial"), (other, "mail")):
        refused = store.audited(AuditEntry(id=store.new_id(), who="ann", act="refused", target=""))
        with pytest.raises(NotFound, match=f"{handler} does not subscribe"):
            await replay_events(event_client(refused, store.new_id), refused, [ids[0], event], [handler])
    assert len(store.tables.tasks) == before
    assert [entry.act for entry in await store.audit_log()] == ["events replay"]


async def test_nothing_is_sent_if_one_event_is_unknown(store: Bench) -> None:
    await declared(store)
    client = event_client(store, store.new_id)
    published = await client.publish("user.signup", "ann")
    before = len(store.tables.tasks)
    with pytest.raises(NotFound):
        await replay_events(client, store, [published.id, store.new_id()])
    assert len(store.tables.tasks) == before


async def test_subscriptions_are_listed_by_pattern(store: Bench) -> None:
    await declared(store)
    found = [subscription_document(one) for one in await list_subscriptions(store)]
    assert [(one["pattern"], one["handler"], one["app"], one["ordered"]) for one in found] == [
        ("user.*", "greet", "shop", False),
        ("user.signup", "mail", "shop", True),
    ]


async def test_who_gets_events_of_a_name(store: Bench) -> None:
    await declared(store)
    assert [one.subscription.handler for one in await subscribers_of(store, "user.signup")] == ["greet", "mail"]
    assert [one.subscription.handler for one in await subscribers_of(store, "user.left")] == ["greet"]
    assert await subscribers_of(store, "order.paid") == []
