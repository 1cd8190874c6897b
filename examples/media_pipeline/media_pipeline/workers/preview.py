"""The preview worker: a short clip and a strip of thumbnails. The document's `src/workers/video_preview.js`."""

from media_pipeline.app import PREVIEW, app
from media_pipeline.files import appearing, short
from media_pipeline.messages import FileMessage
from media_pipeline.notices import previewed
from media_pipeline.processors.video_preview import CLIP, STRIP, create_preview_video_at_path
from media_pipeline.settings import Settings
from media_pipeline.workers.notify import tell
from media_pipeline.workers.source_file import source_file
from pitboss import backoff, ctx


@app.task(queue=PREVIEW, max_attempts=6, backoff=backoff("2s", factor=2, cap="1m"), timeout="10m")
async def preview(message: FileMessage) -> dict[str, str]:
    settings = Settings.load()
    with source_file(settings, message) as path:
        folder = settings.folder / "previews" / f"{path.stem}-{short(ctx.id)}"
        # It is there if an earlier attempt wrote it, and died before its outcome was stored.
        if not folder.exists():
            with appearing(folder, ctx.token.claim) as hidden:
                await create_preview_video_at_path(path, hidden, settings)
    clip, strip = (str((folder / name).relative_to(settings.folder)) for name in (CLIP, STRIP))
    tell(message, previewed(message, clip, strip))
    return {"preview": clip, "strip": strip}
