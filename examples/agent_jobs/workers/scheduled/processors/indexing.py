"""The search index."""

import asyncio
from datetime import datetime

from app_core import core


async def index_changes(since: datetime | None, until: datetime | None) -> int:
    """Index conversations that changed after `since` (from the beginning without one) until `until` (now)."""
    begin = since.timestamp() if since else 0.0
    end = until.timestamp() if until else core.clock()
    return await asyncio.to_thread(core.index_conversations, begin, end)
