"""Starts the manager of one app: `python -m workers.scheduled`, `python -m workers.events`."""

import os
import sys
from pathlib import Path

from workers.settings import Settings

PITBOSS = Path(sys.executable).with_name("pitboss")


def launch(target: str) -> None:
    """Become `pitboss up TARGET`, with the document's settings in Pitboss's words. Further arguments are its own."""
    environment = {**os.environ, **Settings.load().variables()}
    # The process itself becomes the manager, so that a signal or a service manager reaches it directly.
    os.execve(PITBOSS, [str(PITBOSS), "up", target, *sys.argv[1:]], environment)
