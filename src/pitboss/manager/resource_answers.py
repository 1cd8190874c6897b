"""Answers what handlers ask of the store about resources."""

from typing import Any

from pitboss.client.resource_desk import resources_of
from pitboss.model.duration import Moment, Span
from pitboss.model.resource import Leased, NewResource, Report, ResourceChange, Want
from pitboss.model.task import Token

ARGUMENTS: dict[str, Any] = {
    "resource_pools": tuple[()],
    "add_resources": tuple[str, list[NewResource]],
    "change_resources": tuple[str, list[str] | None, ResourceChange | None],
    "resources": tuple[str, list[str] | None],
    "acquire": tuple[str, Want, Span, str],
    "release": tuple[str, Report | None],
    "extend": tuple[str, Span],
    "use": tuple[Token | str, str | None, Moment | None],
}


async def done(store: object, verb: str, arguments: Any) -> Any:
    """What the store says; `Unsupported` if it has no resources."""
    resources = resources_of(store)
    if verb == "acquire":
        pool, want, hold, lease = arguments
        found = await resources.acquire(pool, want, hold, lease=lease)
        # Two places instead of one: the message must say which of the two it is.
        return (found, None) if isinstance(found, Leased) else (None, found)
    if verb == "use":
        holder, task, instead = arguments
        return await resources.use(holder, task, instead=instead)
    return await getattr(resources, verb)(*arguments)
