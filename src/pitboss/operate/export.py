"""Tasks as lines of JSON, page by page, so that many of them take no memory."""

from collections.abc import AsyncIterator

import msgspec

from pitboss.engines.protocol import Ledger
from pitboss.model.filter import Filter
from pitboss.operate.documents import task_document

MOST_EXPORTED = 100_000
_PAGE = 500
LINES = "application/x-ndjson"


async def export_tasks(store: Ledger, wanted: Filter, most: int = MOST_EXPORTED) -> AsyncIterator[bytes]:
    """The newest tasks that match, newest first, each as `pitboss tasks list --json` has it, on a line of its own."""
    after, left = None, most
    while left > 0:
        page = await store.find(wanted, limit=min(_PAGE, left), after=after)
        if page.tasks:
            yield b"".join(msgspec.json.encode(task_document(one)) + b"\n" for one in page.tasks)
        after, left = page.next, left - len(page.tasks)
        if after is None:
            return
