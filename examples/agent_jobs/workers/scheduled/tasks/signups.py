"""Publishes signups again that were stored but perhaps not published."""

import asyncio

from app_core import core
from workers.events.utils.publishing import publish_signup
from workers.scheduled import scheduled_task
from workers.scheduled.processors.runs import note_run
from workers.scheduled.schedulers import EVERY_15_MINUTES

_LATE = 60.0


@scheduled_task(**EVERY_15_MINUTES, retry_limit=3)
async def resend_signups() -> dict[str, int]:
    """Only needed if the app core and the queue are in two databases: then a crash may come between the two.

    The idempotency key makes sure that a signup that was published is not published again.
    """
    late = await asyncio.to_thread(core.users_without_workspace, older_than=_LATE)
    for user in late:
        await asyncio.to_thread(publish_signup, user["id"], user["email"])
    return await note_run(late=len(late))
