"""Starts the manager of one app: `python -m workers.scheduled`, `python -m workers.events`."""

import os
import sys
from pathlib import Path

from workers.settings import Settings, WrongSetting

PITBOSS = Path(sys.executable).with_name("pitboss")


def launch(target: str) -> None:
    """Become `pitboss up TARGET`, with the document's settings in Pitboss's words. Further arguments are its own."""
    try:
        variables = Settings.load().variables()
    except WrongSetting as error:
        sys.exit(f"error: {error}")
    # The process itself becomes the manager, so that a signal or a service manager reaches it directly.
    os.execve(PITBOSS, [str(PITBOSS), "up", target, *sys.argv[1:]], {**os.environ, **variables})
