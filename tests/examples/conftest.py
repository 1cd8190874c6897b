"""The story checker reads its settings at import, so they are written before pytest reads its tests."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from story_checker.database import Database
from story_checker.settings import SystemSettings

# One key for all stores of these tests, and for the manager that they start; other tests do not see it.
_KEY = secrets.token_hex(32)
_FOLDER = Path(tempfile.mkdtemp(prefix="story-checker-"))
# An hour has two seconds, so that a test reaches hourly limits and sees them lifted.
SETTINGS = SystemSettings(
    max_threads=3,
    proxy_max_failures=3,
    proxy_hourly_limit=4,
    proxy_min_delay=0.0,
    proxy_cooldown=0.5,
    proxy_blacklist=1.0,
    session_life=60.0,
    auto_trigger_enabled=False,
    hour=2.0,
)
os.environ["STORY_CHECKER_DB"] = str(_FOLDER / "story_checker.db")
SETTINGS.save(Database(_FOLDER / "story_checker.db"))


@pytest.fixture(scope="session", autouse=True)
def _folder() -> Iterator[None]:
    yield
    shutil.rmtree(_FOLDER)


@pytest.fixture(scope="module", autouse=True)
def _key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PITBOSS_SECRET_KEYS", _KEY)
        yield
