"""Every test of the command line works in an empty folder, with no settings of the person who runs it."""

import os
from pathlib import Path

import pytest

from pitboss.engines.postgres import connections


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*os.environ]:
        if name.startswith("PITBOSS_") or name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    # Tests run beside each other and cannot share a port; those of the HTTP API name one.
    monkeypatch.setenv("PITBOSS_HTTP__ENABLED", "false")
    # A store that cannot be reached is given up at once, not after three seconds.
    monkeypatch.setattr(connections, "_CONNECT_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    return tmp_path
