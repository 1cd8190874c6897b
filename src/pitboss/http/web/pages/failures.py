"""Failed tasks by cause, and one cause with its newest task."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.pages.tasks import running_operations
from pitboss.http.web.view import View
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import parsed
from pitboss.operate.failures import FailureGroups, failure_groups, find_failure_cause
from pitboss.operate.operations import FEW

_ROWS = 50
# With a filter of other terms than cause and task, this many of the newest failures are read and grouped.
_READ = 1000
_SECONDS = 2.0
_PERSISTS: Span = 600 * SECOND


async def read(view: View) -> Context:
    text = view.query.get("q", "").strip()
    start = _number(view.query.get("from", ""))
    fault, found = None, FailureGroups(())
    try:
        wanted = parsed(text)
        found = await view.readings.get(
            ("failures", text), lambda: failure_groups(view.store, wanted, most=_READ), _SECONDS
        )
    except InvalidInput as error:
        fault = error
    groups = found.groups
    return {
        "q": text,
        "fault": fault,
        "groups": groups[start : start + _ROWS],
        "count": len(groups),
        "failed": sum(one.count for one in groups),
        "back_to": found.back_to,
        "more": found.more or any(one.more for one in groups),
        "start": start,
        "next": start + _ROWS if len(groups) > start + _ROWS else None,
        "before": max(0, start - _ROWS) if start else None,
    }


async def read_one(view: View) -> Context:
    name = view.places["fingerprint"]
    cause = await view.readings.get(("failure", name), lambda: find_failure_cause(view.store, name), _SECONDS)
    newest = max(cause.groups, key=lambda one: one.last)
    task = (await view.store.get([newest.sample]))[0]
    return {
        "title": newest.error or "Failure",
        "cause": cause,
        "newest": newest,
        # More tasks would soon fail of it again.
        "persists": view.now - cause.last < _PERSISTS,
        "task": task,
        "few": cause.count <= FEW and not cause.more,
        "operations": await running_operations(view),
    }


def _number(text: str) -> int:
    return min(int(text), 1_000_000) if text.isascii() and text.isdigit() and len(text) < 8 else 0  # noqa: PLR2004


PAGES = (
    Page("/failures", "Failures", "failures.html", read, ("queues", "store")),
    Page("/failures/{fingerprint}", "Failure", "failure.html", read_one, ("queues", "operations", "store")),
)
