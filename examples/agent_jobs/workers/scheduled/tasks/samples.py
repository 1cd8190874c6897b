"""Figures of the app over time."""

from workers.scheduled import scheduled_task
from workers.scheduled.processors.runs import figures, note_run
from workers.scheduled.schedulers import SAMPLES


@scheduled_task(**SAMPLES, retry_limit=0, timeout="10s")
async def sample_figures() -> dict[str, int]:
    return await note_run(**await figures())
