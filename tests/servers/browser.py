"""The Chromium of the system, for tests with Playwright."""

import shutil

from tests.servers.postgres import ServerError

# The tests may run as root, and pages come from this machine only.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def find_chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise ServerError("no chromium found; `make chromium` installs it")
    return found
