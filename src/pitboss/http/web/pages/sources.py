"""Queues of RabbitMQ whose messages become tasks, and the dead letters that go back to it."""

from pitboss.http.web.pages import Context, Page
from pitboss.http.web.view import View
from pitboss.model.source import COUNTS_RETURNS, KNOWN_FAILED, SourceState, outbox
from pitboss.operate.sources import read_sources

_WELL = (SourceState.STARTING, SourceState.RUNNING, SourceState.STANDBY)


async def read(view: View) -> Context:
    found = await read_sources(view.store)
    return {
        "sources": [{"of": one, "outbox_queue": outbox(one.figures.name)} for one in found],
        "WELL": _WELL,
        "KNOWN_FAILED": KNOWN_FAILED,
        "COUNTS_RETURNS": COUNTS_RETURNS,
    }


PAGES = (Page("/sources", "Sources", "sources.html", read, ("workers", "queues", "store")),)
