"""The document's custom task: every 15 minutes it puts what changed into the search index."""

from pitboss import ctx
from workers.scheduled import scheduled_task
from workers.scheduled.processors.indexing import index_changes
from workers.scheduled.processors.runs import note_run
from workers.scheduled.schedulers import EVERY_15_MINUTES

task_config = {
    "timeout": 60,
    "priority": 1,
    "retry_delay": 300,
}


@scheduled_task(name="custom_task", **EVERY_15_MINUTES, retry_limit=3, task_config=task_config)
async def custom_task() -> dict[str, int]:
    # The cursor is the last run that succeeded. One that failed leaves its share to the next one.
    return await note_run(indexed=await index_changes(ctx.last_success, ctx.scheduled_for))
