"""A stub of the API, and an environment without settings of the person who runs the tests."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss.remote.client import warn_of_plain_http
from pitboss.remote.config import SETTINGS
from tests.remote.stub_api import StubAPI


@pytest.fixture(autouse=True)
def _clean_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for said in SETTINGS.values():
        monkeypatch.delenv(said["env"], raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    warn_of_plain_http.cache_clear()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """`Worker.main` sets up logging for the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def api() -> Iterator[StubAPI]:
    stub = StubAPI()
    yield stub
    stub.close()
