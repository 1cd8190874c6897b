"""The daily clean-up."""

from app_core import archive_old_conversations, cleanup_expired_sessions
from pitboss import ctx
from workers.scheduled import scheduled_task
from workers.scheduled.processors.runs import note_run
from workers.scheduled.schedulers import DAILY


@scheduled_task(**DAILY, retry_limit=5, retry_delay="1m")
async def daily_cleanup() -> dict[str, int]:
    # Clean up old sessions
    sessions = await cleanup_expired_sessions()
    ctx.progress(50, f"{sessions} sessions deleted")
    # Archive old conversations
    conversations = await archive_old_conversations()
    return await note_run(sessions=sessions, conversations=conversations)
