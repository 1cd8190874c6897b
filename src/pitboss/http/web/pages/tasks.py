"""Tasks by a filter, page by page, with acts on those that are selected or on all that match."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import Filter, parsed
from pitboss.model.states import State

_ROWS = 50
_ORDER = (
    State.HELD,
    State.SCHEDULED,
    State.PENDING,
    State.RUNNING,
    State.COMPLETED,
    State.FAILED,
    State.CANCELLED,
)
# What may stand in the field of the filter, to choose from.
_TRIES = ("task:fetch*", "queue:default", "age:<1h", "attempts:>2", "-tag:test")


async def read(view: View) -> Context:
    text, after = view.query.get("q", "").strip(), view.query.get("after") or None
    oldest = view.query.get("order") == "oldest"
    status = await view.status()
    counts = {state: sum(one.counts.get(state, 0) for one in status.queues) for state in _ORDER}
    found: dict[str, object] = {
        "q": text,
        "oldest": oldest,
        "counts_by_state": counts,
        "order": _ORDER,
        "tries": _TRIES,
    }
    try:
        wanted = parsed(text)
        page = await view.store.find(wanted, limit=_ROWS, after=after, oldest_first=oldest)
    except InvalidInput as error:
        return {
            **found,
            "fault": error,
            "tasks": (),
            "state": None,
            "rest": "",
            "matched": None,
            "next": None,
            "covered": None,
            "first": True,
        }
    return {
        **found,
        "fault": None,
        "state": _one_state(wanted),
        "rest": _without_state(text),
        "tasks": page.tasks,
        "matched": await view.store.count(wanted),
        "next": page.next,
        "covered": page.covered,
        "first": after is None,
    }


def _one_state(wanted: Filter) -> State | None:
    named = wanted.named("state")
    return State(named[0]) if named and len(named) == 1 else None


def _without_state(text: str) -> str:
    """The filter as it is with another state: the tabs above the table add theirs."""
    return " ".join(word for word in text.split() if not word.startswith("state:"))


PAGES = (Page("/tasks", "Tasks", "tasks.html", read, ("queues", "store")),)
