"""Tasks by a filter, page by page, with acts on those that are selected or on all that match."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.capabilities import capabilities
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import Filter, parsed
from pitboss.model.operation import Operation, OperationStatus, Verb
from pitboss.model.queue import Queue
from pitboss.model.states import State
from pitboss.operate.lookup import ID
from pitboss.operate.tasks import states_of
from pitboss.operate.views import list_views

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
# What people look for most, by name.
_VIEWS = (
    ("Failed in the last hour", "state:failed finished:<1h"),
    ("Waiting over 5 min", "state:pending wait:>5m"),
    ("Running over 10 min", "state:running ran:>10m"),
    ("Lost with a worker", "losses:>0"),
    ("On a further attempt", "state:pending,running,scheduled attempts:>0"),
)
# What may stand in the field of the filter, to choose from.
_TRIES = ("task:fetch*", "args.shop.id:123", "attempts:>2", "-tag:test")
_OPERATIONS = 3
# The tabs have no numbers if more tasks must be looked at, and do not count for every reading.
_COUNTED, _COUNT_SECONDS = 5000, 5.0


async def read(view: View) -> Context:
    text, after = view.query.get("q", "").strip(), view.query.get("after") or None
    # Where an id was pasted, its task is meant.
    text = f"id:{text}" if ID.match(text) else text
    oldest = view.query.get("order") == "oldest"
    status = await view.status()
    found: dict[str, Any] = {
        "q": text,
        "oldest": oldest,
        "order": _ORDER,
        "views": _VIEWS,
        "saved": await list_views(view.store, view.call.caller.name),
        "tries": _TRIES,
        "operations": await running_operations(view),
        "first": after is None,
    }
    try:
        wanted = parsed(text)
        page = await view.store.find(wanted, limit=_ROWS, after=after, oldest_first=oldest)
    except InvalidInput as error:
        nothing = ("state", "matched", "next", "covered", "bulk", "counts_by_state")
        return {**found, **dict.fromkeys(nothing), "fault": error, "tasks": (), "rest": ""}
    rest = _without_state(text)
    return {
        **found,
        "fault": None,
        "state": _one_state(wanted),
        "rest": rest,
        "counts_by_state": await _counts(view, rest, status.queues),
        "tasks": page.tasks,
        "matched": await view.store.count(wanted),
        "next": page.next,
        "covered": page.covered,
        "bulk": await _bulk(view, wanted) if "all" in view.query and text else None,
    }


async def _counts(view: View, rest: str, queues: Sequence[Queue]) -> dict[State, int] | None:
    """How many tasks each tab leads to; None if there are too many to be counted for each reading."""
    if not rest:
        return {state: sum(one.counts.get(state, 0) for one in queues) for state in _ORDER}

    async def count() -> dict[State, int] | None:
        if (await view.store.count(parsed(rest), most=_COUNTED)).more:
            return None
        return {state: (await view.store.count(parsed(f"state:{state} {rest}"))).number for state in _ORDER}

    return await view.readings.get(("tabs", rest), count, _COUNT_SECONDS)


async def running_operations(view: View) -> list[Operation]:
    operations = capabilities(view.store).operations
    if operations is None:
        return []
    return await operations.operations(statuses=[OperationStatus.RUNNING], limit=_OPERATIONS)


async def _bulk(view: View, wanted: Filter) -> dict[str, Any]:
    """How many of those that match each act would be about."""
    return {verb.value: await view.store.count(wanted.also(state=states_of(verb, wanted))) for verb in Verb}


def _one_state(wanted: Filter) -> State | None:
    named = wanted.named("state")
    return State(named[0]) if named and len(named) == 1 else None


def _without_state(text: str) -> str:
    """The filter as it is with another state: the tabs above the table add theirs."""
    return " ".join(word for word in text.split() if not word.startswith("state:"))


PAGES = (Page("/tasks", "Tasks", "tasks.html", read, ("queues", "operations", "wishes", "store")),)
