"""What happened, and who did what."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.access import Role
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.operate.activity import KINDS, activity_document, search_activity
from pitboss.operate.undo import find_undo_offers

_ROWS = 50
_TIMES = ("1h", "24h", "7d", "30d")


async def read(view: View) -> Context:
    asked = {name: view.query.get(name, "").strip() for name in ("who", "what", "kind", "since")}
    acts = Role.ADMIN in view.call.caller.roles
    found: dict[str, object] = {
        "asked": asked,
        "filtered": any(asked.values()),
        "kinds": [one for one in KINDS if acts or one != "act"],
        "times": _TIMES,
        "acts": acts,
        "first": "before" not in view.query,
    }
    try:
        since = view.now - span(asked["since"], what="time") if asked["since"] else None
        rows, following = await search_activity(
            view.store,
            who=asked["who"],
            what=asked["what"],
            limit=_ROWS,
            before=view.query.get("before") or None,
            since=since,
            kinds=[asked["kind"]] if asked["kind"] else (),
            acts=acts,
        )
    except InvalidInput as error:
        return {**found, "fault": error, "rows": (), "next": None, "undo": ()}
    documents = [activity_document(one) | {"at_moment": one.at} for one in rows]
    offers = await find_undo_offers(view.store, rows)
    return {**found, "fault": None, "rows": documents, "next": following, "undo": offers}


PAGES = (Page("/activity", "Activity", "activity.html", read, ("happenings", "acts", "store")),)
