"""Tasks that failed for good."""

import asyncio

from app_core import core
from pitboss import DeadTask
from workers.events import app
from workers.events.queues import HIGH_PRIORITY


@app.dead_letter_handler(HIGH_PRIORITY)
async def note_incident(dead: DeadTask) -> None:
    """Record it where a person looks. `pitboss dead list` shows it too, and `pitboss dead retry` tries it again."""
    error = dead.error.message if dead.error else dead.reason
    await asyncio.to_thread(core.note_incident, dead.id, dead.handler, dead.queue, error)
