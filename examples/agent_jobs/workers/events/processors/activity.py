"""The log of what happens in workspaces."""

import asyncio
from collections.abc import Mapping
from typing import Any

from app_core import core

ACTIONS = ("opened", "edited", "shared")


class UnknownAction(Exception):
    """The event says something that this app does not know."""


async def log_activity(event_id: str, name: str, data: Mapping[str, Any]) -> None:
    action = data.get("action")
    if action not in ACTIONS:
        raise UnknownAction(f"the action {action!r:.60} is unknown; it is one of {', '.join(ACTIONS)}")
    await asyncio.to_thread(core.note_activity, event_id, name, dict(data))
