"""Where files are, and how a folder of results appears: whole, or not at all."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80
_ID = 12


class OutsideFolder(Exception):
    """A message names a file that is not in the media folder."""


def inside(folder: Path, name: str) -> Path:
    """The file of a message. Messages come from other programs, so they may not name any file of this machine."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise OutsideFolder(f"{name} is not in the media folder")
    return path


def name_of(url: str) -> str:
    """The file name of a URL, without characters that mean something to a shell, to ffmpeg or to a file system."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    return _OTHER.sub("_", name).lstrip(".-")[-_LONGEST:] or "video"


def short(task: str) -> str:
    """The end of a task's id, as the command line takes it: it names the folder of the task's results."""
    return task[-_ID:]


@contextmanager
def appearing(target: Path, claim: int) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `target` at the end of the block.

    A worker that is killed leaves its hidden folder behind; the next attempt removes it.
    """
    for left in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    hidden = target.parent / f".{target.name}.{claim}"
    hidden.mkdir(parents=True)
    try:
        yield hidden
        hidden.rename(target)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
