"""The log of events with who reacts to them, and one event with its deliveries."""

import json

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.operate.events import list_subscriptions, read_event, subscribers_of

_ROWS, _SUBSCRIPTIONS = 50, 200
_LONGEST = 20_000


async def read_all(view: View) -> Context:
    name, before = view.query.get("name", "").strip(), view.query.get("before") or None
    found = await view.call.server.events.find(name=name or None, limit=_ROWS + 1, before=before)
    wanted = await list_subscriptions(view.store)
    return {
        "name": name,
        "events": found[:_ROWS],
        "subscriptions": wanted[:_SUBSCRIPTIONS],
        "wanted": len(wanted),
        "first": before is None,
        "next": found[_ROWS - 1].id if len(found) > _ROWS else None,
    }


async def read_one(view: View) -> Context:
    text = view.places["event"]
    try:
        page = await read_event(view.call.server.events, view.store, text)
    except InvalidInput as error:
        raise NotFound(error.what, why=error.why, fix=error.fix) from error
    event = page.event
    subscribers = await subscribers_of(view.store, event.name)
    return {
        "event": event,
        "deliveries": list(zip(event.handlers, event.task_ids(), page.tasks, strict=True)),
        "subscribers": subscribers,
        "handlers": {one.subscription.handler for one in subscribers},
        "data": json.dumps(from_json(event.data), indent=2, ensure_ascii=False)[:_LONGEST],
    }


PAGES = (
    Page("/events", "Events", "events.html", read_all, ("queues", "store")),
    Page("/events/{event}", "Event", "event.html", read_one, ("queues", "store")),
)
