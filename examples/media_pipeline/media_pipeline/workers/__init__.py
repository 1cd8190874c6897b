"""All handlers: importing this package declares them."""

from media_pipeline.app import app
from media_pipeline.workers.cutter import cutter
from media_pipeline.workers.download import download
from media_pipeline.workers.notify import notify, tell_failure
from media_pipeline.workers.preview import preview

__all__ = ["app", "cutter", "download", "notify", "preview", "tell_failure"]
