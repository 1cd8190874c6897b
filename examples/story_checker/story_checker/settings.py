"""The system's settings: one row per name in its database, and defaults for the others."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from story_checker.database import Database

MINUTES = 60


@dataclass(frozen=True)
class SystemSettings:
    """What an operator can set.

    `hour` is the length of an hour in seconds. The demo and the tests make it short, and everything per hour or per
    minute shrinks with it. Settings of proxies and sessions are in real seconds.
    """

    max_threads: int = 3
    proxy_max_failures: int = 3
    proxy_hourly_limit: int = 50
    profiles_per_minute: int = 30
    default_batch_size: int = 100
    story_retention_hours: int = 24
    max_retries: int = 3
    proxy_min_delay: float = 2.0
    proxy_cooldown: float = 900.0
    proxy_blacklist: float = 1800.0
    proxy_test_timeout: float = 10.0
    session_life: float = 600.0
    site: str = "http://127.0.0.1:8800"
    hour: float = 3600.0

    @property
    def minute(self) -> float:
        return self.hour / MINUTES

    @classmethod
    def load(cls, database: "Database") -> "SystemSettings":
        known = {field.name for field in fields(cls)}
        stored = {name: json.loads(value) for name, value in database.settings().items() if name in known}
        return cls(**stored)

    def save(self, database: "Database") -> None:
        database.save_settings({name: json.dumps(value) for name, value in asdict(self).items()})


def database_path() -> Path:
    """The file with niches, profiles, results and settings: STORY_CHECKER_DB, or one in the working folder."""
    return Path(os.environ.get("STORY_CHECKER_DB", "story_checker.db"))
