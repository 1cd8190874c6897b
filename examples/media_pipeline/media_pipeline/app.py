"""The app, its queues, and the workers that serve them: the document's `src/index.js` and `workerConfig`."""

from media_pipeline.settings import Settings
from pitboss import App

DOWNLOAD, CUTTER, PREVIEW = "download_queue", "cutter_queue", "preview_queue"
NOTICES = "notice_queue"

app = App(name="media_pipeline")

app.pool(
    "download",
    queues=[DOWNLOAD],
    workers=Settings.load().download_workers,
    concurrency=1,
    memory="512MB",
    cpu=0.5,
    restart="always",
)
app.pool(
    "cutter",
    queues=[CUTTER],
    workers=1,
    concurrency=1,
    memory="1GB",  # ffmpeg counts, too
    cpu=1.0,
    restart="on-failure",
)
app.pool("preview", queues=[PREVIEW], workers=1, concurrency=1, memory="256MB", cpu=0.25, restart="unless-stopped")
# The document's main process does this itself. Here it cannot lose a notice, because each one is a task.
app.pool("notices", queues=[NOTICES], workers=1, concurrency=8, memory="256MB")

# Each web site is a member: its limits hold across all workers and hosts. pitboss.toml changes them.
sites = app.resources("sites", min_delay="1s", concurrency=2, cooldown="1m")
