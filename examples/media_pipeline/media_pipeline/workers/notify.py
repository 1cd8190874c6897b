"""Tells people about results and failures: tasks of their own, so that none is lost and each is tried again."""

from typing import Any

from media_pipeline.app import CUTTER, DOWNLOAD, NOTICES, PREVIEW, app
from media_pipeline.messages import Message
from media_pipeline.notices import Notice, failed
from media_pipeline.notifier import notifier
from media_pipeline.settings import Settings
from pitboss import DeadTask, backoff, ctx

# A wrong setting is an error of `pitboss up`, not of every notice.
notifier(Settings.load())


@app.task(queue=NOTICES, max_attempts=10, backoff=backoff("1s", cap="10m"), timeout="30s")
async def notify(kind: str, queue: str, to: str, text: str, payload: dict[str, Any]) -> str:
    """Tell one person one thing."""
    await notifier(Settings.load()).send(Notice(kind, queue, to, text, payload), ctx.idempotency_key)
    return text


@app.dead_letter_handler(DOWNLOAD, CUTTER, PREVIEW, queue=NOTICES)
async def tell_failure(dead: DeadTask) -> None:
    """The document's `…_dlq` consumers, without their retries: those are over when a task comes here."""
    notice = failed(dead)
    if notice is not None:
        ctx.enqueue(notify, **notice._asdict())


def tell(asked: Message, notice: Notice) -> None:
    """Enqueue a notice about what a handler has done, in the act that completes its task, unless `noreply`."""
    if not asked.noreply:
        ctx.enqueue(notify, **notice._asdict())
