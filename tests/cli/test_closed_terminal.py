"""A manager whose terminal was closed still stops: it could not say "stopping", and so never did."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import PITBOSS

APP = """
from pitboss import App

app = App()


@app.task
def job() -> None: ...
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_manager_stops_after_its_terminal_was_closed(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    ours, theirs = pty.openpty()
    command = [str(PITBOSS), "up", "app.py", "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        said = ""
        while "is ready" not in said:
            said += os.read(ours, 4096).decode("utf-8", "replace")
        os.close(ours)
        process.send_signal(number)
        assert process.wait(30) >= 0
    finally:
        process.kill()
        process.wait()
