"""Saved views: filters of tasks under a name, of the caller or shared by all."""

from pitboss.http import bodies
from pitboss.http.answers import Answer
from pitboss.http.context import Call
from pitboss.operate.views import find_view, list_views, remove_view, save_view, view_document


async def get_views(call: Call) -> Answer:
    """The shared views and those of the caller."""
    found = [view_document(one) for one in await list_views(call.store, call.caller.name)]
    return Answer(data={"views": found, "items": found, "count": len(found)})


async def save(call: Call, body: bodies.SaveView) -> Answer:
    """Save a filter under a name; one of the same name is replaced."""
    store = call.audited("views save", body.name, body.model_dump(exclude={"name"}))
    owner = "" if body.shared else call.caller.name
    done = await save_view(store, body.name, body.filter, owner=owner, by=call.by)
    return Answer(data=view_document(done), message="View saved", code=201)


async def remove(call: Call, *, name: str, shared: bool) -> Answer:
    """Remove a shared view, or one of the caller."""
    owner = "" if shared else call.caller.name
    # An act on what does not exist leaves nothing in the audit log.
    await find_view(call.store, name, owner=owner)
    done = await remove_view(call.audited("views remove", name, {"shared": shared}), name, owner=owner, by=call.by)
    return Answer(data=view_document(done), message="View removed")
