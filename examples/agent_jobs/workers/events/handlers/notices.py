"""Notices to users: by webhook, and if that does not work, into the inbox of the app."""

import asyncio

from pydantic import BaseModel

from app_core import core
from pitboss import backoff, ctx
from workers.events import app, event_handler
from workers.events.processors.webhook import deliver
from workers.events.queues import DEFAULT, NOTICES


class Notice(BaseModel):
    user_id: str
    text: str


app.event("user.notice", Notice)


@app.task(queue=DEFAULT)
async def put_into_inbox(event_data: Notice) -> None:
    """The fallback: it gets what the failed task had."""
    assert ctx.event is not None
    await asyncio.to_thread(core.note_notice, ctx.event.id, event_data.user_id, "inbox", event_data.text)


@event_handler(
    "user.notice", queue=NOTICES, max_retries=2, backoff=backoff("200ms"), timeout=10, fallback=put_into_inbox
)
async def send_notice(event_data: Notice) -> None:
    assert ctx.event is not None
    await deliver(ctx.event.id, event_data.user_id, event_data.text)
    await asyncio.to_thread(core.note_notice, ctx.event.id, event_data.user_id, "webhook", event_data.text)
