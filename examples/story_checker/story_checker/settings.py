"""The system's settings: one row per name in its database, and defaults for the others."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from story_checker.database import Database

MINUTES = 60
_MOST = 10_000_000
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# Pitboss and its workers read these when they start or reload. The others count from the next minute on.
AT_START = frozenset(
    {
        "max_threads",
        "proxy_max_failures",
        "proxy_hourly_limit",
        "proxy_min_delay",
        "proxy_cooldown",
        "proxy_blacklist",
        "proxy_test_timeout",
        "site",
        "max_retries",
        "session_life",
        "hour",
    }
)


class WrongSetting(ValueError):
    """What an operator tried to set cannot be set."""


@dataclass(frozen=True)
class SystemSettings:
    """What an operator can set.

    `hour` is the length of an hour in seconds. The demo and the tests make it short, and everything per hour or per
    minute shrinks with it. Settings of proxies and sessions are in real seconds. `min_trigger_interval` is in minutes.
    """

    max_threads: int = 3
    proxy_max_failures: int = 3
    proxy_hourly_limit: int = 50
    profiles_per_minute: int = 30
    default_batch_size: int = 100
    story_retention_hours: int = 24
    auto_trigger_enabled: bool = True
    min_trigger_interval: int = 60
    notifications_enabled: bool = False
    notification_email: str = ""
    notification_webhook: str = ""
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

    def changed(self, name: str, text: str) -> "SystemSettings":
        """With one setting read from text; `WrongSetting` says what is wrong with it."""
        values = asdict(self)
        if name not in values:
            raise WrongSetting(f"there is no setting {name}; there are: {', '.join(values)}")
        values[name] = _read(name, text.strip(), values[name])
        return SystemSettings(**values)


def _read(name: str, text: str, now: object) -> object:
    if isinstance(now, bool):
        if text.lower() not in (*_YES, *_NO):
            raise WrongSetting(f"{name} is true or false, not {text!r}")
        return text.lower() in _YES
    if isinstance(now, str):
        return _text(name, text)
    number = _number(name, text, type(now))
    least = 0 if name == "proxy_min_delay" else 1 if isinstance(now, int) else 0.1
    if not least <= number <= _MOST:
        raise WrongSetting(f"{name} is from {least} to {_MOST:,}, not {text}")
    return number


def _number(name: str, text: str, kind: type) -> int | float:
    try:
        return int(text) if kind is int else float(text)
    except ValueError as error:
        raise WrongSetting(f"{name} is a {'whole number' if kind is int else 'number'}, not {text!r}") from error


def _text(name: str, text: str) -> str:
    if name == "notification_email":
        if text and ("@" not in text[1:-1] or any(letter.isspace() for letter in text)):
            raise WrongSetting(f"{name} is an address such as ann@example.org, or empty, not {text!r}")
        return text
    parts = urlsplit(text)
    if (text or name == "site") and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise WrongSetting(f"{name} is a URL such as http://127.0.0.1:8800, not {text!r}")
    return text


def database_path() -> Path:
    """The file with niches, profiles, results and settings: STORY_CHECKER_DB, or one in the working folder."""
    return Path(os.environ.get("STORY_CHECKER_DB", "story_checker.db"))
