"""The cutter: segments of 30 seconds. The document's `src/workers/cutter.js`."""

from pathlib import Path

from media_pipeline.app import CUTTER, app
from media_pipeline.files import appearing, short
from media_pipeline.messages import FileMessage, file_message
from media_pipeline.notices import cut
from media_pipeline.processors.segment_video import segment_video_at_path
from media_pipeline.settings import Settings
from media_pipeline.workers.notify import tell
from media_pipeline.workers.preview import preview
from media_pipeline.workers.source_file import source_file
from pitboss import backoff, ctx

_PERCENT = 100


@app.task(queue=CUTTER, max_attempts=6, backoff=backoff("2s", factor=2, cap="1m"), timeout="1h")
async def cutter(message: FileMessage) -> dict[str, list[str]]:
    """Cut one file. The whole video goes on to the preview, whether it was cut or is too short for that."""
    settings = Settings.load()
    with source_file(settings, message) as path:
        folder = settings.folder / "segments" / f"{path.stem}-{short(ctx.id)}"
        # It is there if an earlier attempt wrote it, and died before its outcome was stored.
        if not folder.exists():
            with appearing(folder, ctx.token.claim) as hidden:
                await segment_video_at_path(path, hidden, settings, _report)
    segments = [str(one.relative_to(settings.folder)) for one in sorted(_written(folder))]
    ctx.enqueue(preview, message=file_message(message.file_path, message))
    tell(message, cut(message, segments))
    return {"segments": segments}


def _written(folder: Path) -> list[Path]:
    """The segments. A short video has none, and no folder."""
    found = list(folder.iterdir())
    if not found:
        folder.rmdir()
    return found


def _report(share: float) -> None:
    ctx.progress(min(_PERCENT, round(share * _PERCENT)), "cutting")
