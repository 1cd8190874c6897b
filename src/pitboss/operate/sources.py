"""The sources of messages as every face shows them."""

from typing import Any, NamedTuple

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.fleet import live_managers
from pitboss.model.source import SourceFigures, outbox
from pitboss.model.source_findings import shown_sources, with_silent


class SourceReading(NamedTuple):
    """A source in one manager, the messages that wait in its outbox, and its host."""

    figures: SourceFigures
    outbox: int
    host: str


async def read_sources(store: Store) -> list[SourceReading]:
    """All of them by name."""
    waiting = {queue.name: queue.waiting for queue in await store.queues()}
    sessions, now = await store.sessions(), store.clock.now()
    found = [
        SourceReading(one, waiting.get(outbox(one.name), 0), session.info.host)
        for session, figures in shown_sources(sessions, now)
        for one in figures
    ]
    silent = with_silent([one.figures for one in found], live_managers(sessions, now), now)[len(found) :]
    found += [SourceReading(one, waiting.get(outbox(one.name), 0), "-") for one in silent]
    return sorted(found, key=lambda one: (one.figures.name, one.host))


def source_document(reading: SourceReading) -> dict[str, Any]:
    figures: dict[str, Any] = msgspec.to_builtins(reading.figures)
    return {**figures, "outbox_waiting": reading.outbox, "host": reading.host}
