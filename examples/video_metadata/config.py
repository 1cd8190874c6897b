"""Settings: from the command line, the environment, `.env`, or the default, in this order."""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from pitboss import remote

GOOGLE = "https://www.googleapis.com/youtube/v3"


@dataclass(frozen=True)
class YouTube:
    """The settings of this worker's own service. `Manners` in api_client.py says what the last three mean."""

    api_key: str
    api_url: str
    requests_per_second: float
    longest_wait: float
    quota_pause: float

    @classmethod
    def load(cls, worker: remote.Config) -> "YouTube":
        """`worker` has what its file says, also the names that only this worker knows."""

        def said(name: str, default: str = "") -> str:
            return os.environ.get(name) or str(worker.get(name) or default)

        return cls(
            api_key=said("YOUTUBE_API_KEY"),
            api_url=said("YOUTUBE_API_URL", GOOGLE),
            requests_per_second=_positive("YOUTUBE_REQUESTS_PER_SECOND", said("YOUTUBE_REQUESTS_PER_SECOND", "5")),
            longest_wait=_positive("YOUTUBE_LONGEST_WAIT", said("YOUTUBE_LONGEST_WAIT", "10")),
            quota_pause=_positive("YOUTUBE_QUOTA_PAUSE", said("YOUTUBE_QUOTA_PAUSE", "3600")),
        )

    def validate(self) -> None:
        if not self.api_key:
            raise ValueError("YOUTUBE_API_KEY environment variable required")
        if urlsplit(self.api_url).scheme not in ("http", "https"):
            raise ValueError(f"YOUTUBE_API_URL must begin with http:// or https://, not {self.api_url!r}")


def _positive(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        fix = f"set it in the environment or in .env, for example {name}=5"
        raise remote.ConfigError(f"{name} is {text!r}", why="it must be a number above 0", fix=fix)
    return number


class Config:
    """The settings as the document names them, read when this module is imported."""

    _worker = remote.Config.load()
    _youtube = YouTube.load(_worker)

    API_URL = _worker.api_url
    WORKER_ID = _worker.worker_id
    POLL_INTERVAL = _worker.poll_interval
    MAX_RUNS = _worker.max_runs
    DEBUG = _worker.debug
    YOUTUBE_API_KEY = _youtube.api_key
    YOUTUBE_API_URL = _youtube.api_url
    YOUTUBE_REQUESTS_PER_SECOND = _youtube.requests_per_second

    @classmethod
    def validate(cls) -> None:
        """Raise ValueError if the worker could not work with these settings."""
        cls._youtube.validate()  # those of every worker were checked when they were loaded
