"""Messages of users. Those of one user are handled in the order in which they were published."""

import asyncio

from pydantic import BaseModel

from app_core import core
from pitboss import ctx
from workers.events import app, event_handler
from workers.events.queues import DEFAULT


class Message(BaseModel):
    user_id: str
    text: str


app.event("user.message", Message)


@event_handler("user.message", queue=DEFAULT, ordered=True)
async def handle_message(event_data: Message) -> None:
    assert ctx.event is not None
    await asyncio.to_thread(core.note_message, ctx.event.id, event_data.user_id, event_data.text)
