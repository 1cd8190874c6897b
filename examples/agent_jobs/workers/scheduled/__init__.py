"""Scheduled jobs. `from workers.scheduled import scheduled_task` declares one."""

from pitboss import App
from workers.settings import Settings

app = App(Settings.load().store, name="scheduled")
app.pool("scheduled", memory="512MB", cpu=1, unresponsive="60s", max_tasks_per_worker=10_000)
scheduled_task = app.scheduled_task

__all__ = ["app", "scheduled_task"]
