"""Keys of the API and of this dashboard."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.access import Role
from pitboss.operate.keys import list_keys

_MAY = {
    Role.VIEWER: "sees all pages but this one",
    Role.OPERATOR: "sees and acts",
    Role.ADMIN: "everything, also keys and the audit log",
    Role.PRODUCER: "puts tasks and publishes events",
    Role.WORKER: "claims tasks and reports on them",
}


async def read(view: View) -> Context:
    keys = sorted(await list_keys(view.store), key=lambda one: (one.revoked_at is not None, -one.created_at))
    return {"keys": keys, "open": sum(one.revoked_at is None for one in keys), "may_of": _MAY}


PAGES = (Page("/keys", "Keys", "keys.html", read, ("acts", "store")),)
