"""Delivers notices to the webhook that the user's app listens to."""

import asyncio
import json
import os
from urllib.request import Request, urlopen

from workers.scheduled.utils.retry import with_retry

WEBHOOK = os.environ.get("AGENT_WEBHOOK", "http://127.0.0.1:8901/notices")
_SECONDS = 5.0


@with_retry(max_retries=2, backoff_factor=0.1)
async def deliver(event_id: str, user_id: str, text: str) -> None:
    """Raises if the far side does not take it. It gets the id of the event, so that it can tell a repetition."""
    await asyncio.to_thread(_post, {"id": event_id, "user_id": user_id, "text": text})


def _post(notice: dict[str, str]) -> None:
    body = json.dumps(notice).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "agent-jobs/1.0", "Idempotency-Key": notice["id"]}
    with urlopen(Request(WEBHOOK, body, headers), timeout=_SECONDS):
        pass
