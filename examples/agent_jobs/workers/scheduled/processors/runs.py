"""A record of each run in the app core, by the tick that it was for."""

import asyncio

from app_core import core
from pitboss import ctx


async def note_run(**details: int) -> dict[str, int]:
    tick = ctx.scheduled_for
    await asyncio.to_thread(core.note_run, ctx.task.handler, tick.isoformat() if tick else ctx.id, details)
    return details


async def figures() -> dict[str, int]:
    """How many rows the main tables have."""
    tables = ("users", "sessions", "conversations", "workspaces")
    counts = [await asyncio.to_thread(core.all, f"SELECT count(*) AS n FROM {table}") for table in tables]
    return {table: rows[0]["n"] for table, rows in zip(tables, counts, strict=True)}
