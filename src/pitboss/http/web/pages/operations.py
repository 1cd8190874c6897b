"""Bulk acts that go on by themselves: all of them, and one with its progress."""

from typing import Any

from pitboss.engines.capabilities import operations_of
from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import written
from pitboss.model.operation import Operation, OperationStatus
from pitboss.operate.operations import (
    VERB_WORDS,
    failed_again_text,
    find_operation,
    handled,
    left_out,
    manager_lives,
    pace,
    progress_text,
    refused_why,
)
from pitboss.operate.queues import rate_text

_ROWS = 50


async def read(view: View) -> Context:
    running = view.query.get("status") == OperationStatus.RUNNING
    statuses = [OperationStatus.RUNNING] if running else []
    found = await operations_of(view.store).operations(statuses=statuses, limit=_ROWS)
    return {"rows": [_row(view, one) for one in found], "running": running, "most": len(found) == _ROWS}


async def read_one(view: View) -> Context:
    try:
        one = await find_operation(view.store, view.places["operation"])
    except InvalidInput as error:
        raise NotFound(error.what, why=error.why, fix=error.fix) from error
    return {
        **_row(view, one),
        "title": f"{VERB_WORDS[one.verb]} tasks",
        "left_out": left_out(one),
        "refused_why": refused_why(one.verb),
        "failed_again": failed_again_text(one),
        "said": progress_text(one),
        "waits": one.status is OperationStatus.RUNNING and not await manager_lives(view.store),
    }


def _row(view: View, one: Operation) -> dict[str, Any]:
    return {
        "one": one,
        "word": VERB_WORDS[one.verb],
        "filter": written(one.wanted),
        "handled": handled(one),
        "pace": pace(one, view.now),
        "rate": rate_text(one.rate),
    }


PAGES = (
    Page("/operations", "Operations", "operations.html", read, ("operations", "store")),
    Page("/operations/{operation}", "Operation", "operation.html", read_one, ("operations", "queues", "store")),
)
