"""What differs between installations, from the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_MEGABYTE = 1024 * 1024


class WrongSetting(Exception):
    """A variable has a value that cannot be used."""


class Settings(NamedTuple):
    """`folder` is where all files are. `notifier` is "console", "webhook", or `module:class` of your own."""

    folder: Path
    notifier: str = "console"
    webhook: str = ""
    download_workers: int = 2
    most_bytes: int = 500 * _MEGABYTE
    ffmpeg_threads: str = "1"
    ffmpeg_preset: str = "veryfast"

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        return cls(
            folder=Path(environment.get("MEDIA_FOLDER") or "media").resolve(),
            notifier=environment.get("MEDIA_NOTIFIER") or "console",
            webhook=environment.get("MEDIA_WEBHOOK") or "",
            download_workers=_number(environment, "DOWNLOAD_WORKERS", 2),
            most_bytes=_number(environment, "MEDIA_MAX_MB", 500) * _MEGABYTE,
            ffmpeg_threads=str(_number(environment, "FFMPEG_THREADS", 1)),
            ffmpeg_preset=environment.get("FFMPEG_PRESET") or "veryfast",
        )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise WrongSetting(f"{name}={text} cannot be used: write a whole number, 1 or more.")
    return int(text)
