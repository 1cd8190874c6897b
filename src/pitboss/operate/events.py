"""Events as people look at them: one by its id or a piece of it, who wants what, and sending one again."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pitboss.client.client import Client
from pitboss.client.events import EventClient, EventWithTasks
from pitboss.engines.capabilities import declarations_of, events_of
from pitboss.engines.protocol import Store
from pitboss.model.errors import NotFound
from pitboss.model.event import Event, EventId, Subscribers, Subscription
from pitboss.model.ids import TaskId
from pitboss.model.task import Placed
from pitboss.operate.audit import record
from pitboss.operate.lookup import ID, checked_piece, refuse_several

_SEARCHED, _PAGE = 5000, 500


class Subscribed(NamedTuple):
    """A subscription and the app that declares it."""

    app: str
    subscription: Subscription


class Replayed(NamedTuple):
    """An event that was sent again, and the tasks that were put, by handler."""

    event: EventId
    tasks: list[tuple[str, Placed]]


def event_client(store: Store, make_id: Callable[[], TaskId]) -> EventClient:
    return EventClient(Client(store, store.clock), make_id)


async def read_event(client: EventClient, store: Store, text: str) -> EventWithTasks:
    """The event with this id, or the only one of the newest whose id begins or ends with this piece."""
    piece = text.strip().lower()
    return await client.get(piece if ID.match(piece) else await _find(store, checked_piece(text, "event")))


async def replay_events(
    client: EventClient, store: Store, texts: Sequence[str], handlers: Sequence[str] | None = None
) -> list[Replayed]:
    """Send events to their handlers again, or to these of them. Nothing is sent if an event is unknown, or if one of
    these handlers does not want one of the events."""
    found = [(await read_event(client, store, text)).event for text in texts]
    wanting = Subscribers(await client.subscriptions())
    for event in found:
        if not set(handlers or ()) <= {one.handler for one in wanting.of(event.name)}:
            await client.replay(event.id, handlers)  # refuses it, with the names of those that do
    await record(store)
    return [Replayed(event.id, await client.replay(event.id, handlers)) for event in found]


async def list_subscriptions(store: object) -> list[Subscribed]:
    """Which handler of which app wants what, by pattern."""
    declared = await declarations_of(store).declarations()
    found = [Subscribed(one.app, wanted) for one in declared for wanted in one.subscriptions]
    return sorted(found, key=lambda one: (one.subscription.pattern, one.subscription.handler, one.app))


async def subscribers_of(store: object, name: str) -> list[Subscribed]:
    """Who gets events of this name now."""
    found = await list_subscriptions(store)
    wanting = Subscribers(one.subscription for one in found).of(name)
    return [one for one in found if one.subscription in wanting]


async def _find(store: Store, piece: str) -> EventId:
    events = events_of(store)
    matches, before, searched = list[Event](), None, 0
    while searched < _SEARCHED:
        page = await events.events(limit=_PAGE, before=before)
        matches += [event for event in page if event.id.startswith(piece) or event.id.endswith(piece)]
        searched += len(page)
        if len(page) < _PAGE:
            break
        before = page[-1].id
    refuse_several(piece, [event.id for event in matches], "events")
    if not matches:
        raise NotFound(
            f"there is no event {piece}",
            why=f"none of the newest {_SEARCHED:,} has an id that begins or ends like this",
            fix="pitboss events list shows the newest ones; older ones are found by their whole id",
        )
    return matches[0].id
