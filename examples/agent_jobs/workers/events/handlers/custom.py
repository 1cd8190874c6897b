"""The document's custom event: something happened in a workspace, and is logged."""

from typing import Any

from pitboss import Fail, ctx
from workers.events import event_handler
from workers.events.processors.activity import UnknownAction, log_activity

event_config = {
    "queue": "high_priority",
    "max_retries": 3,
    "timeout": 30,
}


@event_handler("custom.event", event_config=event_config)
async def handle_custom_event(event_data: dict[str, Any]) -> None:
    assert ctx.event is not None
    try:
        await log_activity(ctx.event.id, ctx.event.name, event_data)
    except UnknownAction as error:
        # No retry can help: it fails at once, and goes to the dead-letter handler.
        raise Fail(str(error)) from error
