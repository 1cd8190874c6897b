"""The file that a task of the cutter or the preview reads, and which of its errors no retry can help."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from media_pipeline.ffmpeg import NotAVideo
from media_pipeline.files import OutsideFolder, inside
from media_pipeline.messages import FileMessage
from media_pipeline.settings import Settings
from pitboss import Fail


@contextmanager
def source_file(settings: Settings, message: FileMessage) -> Iterator[Path]:
    """The message's file. What is wrong with the file itself fails at once; all else is tried again."""
    try:
        path = inside(settings.folder, message.file_path)
        if not path.is_file():
            raise Fail(f"{message.file_path} does not exist", category="missing")
        yield path
    except (NotAVideo, OutsideFolder) as error:
        raise Fail(str(error), category="corrupt" if isinstance(error, NotAVideo) else "refused") from error
