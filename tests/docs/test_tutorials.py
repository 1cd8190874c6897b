"""README and tutorials: every block runs as printed, with a manager on a terminal, in an empty folder."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import NUMBERS, ROOT, Reader, clean

TUTORIALS = ROOT / "docs" / "tutorials"


def test_the_readme(tmp_path: Path) -> None:
    with Reader(tmp_path, {}) as reader:
        reader.follow(ROOT / "README.md")


def test_first_steps(tmp_path: Path) -> None:
    """`pip` is a stand-in that accepts the page's arguments: the package under test is installed already."""
    stand_in = tmp_path / "bin" / "pip"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\n[ "$*" = "install pitboss" ]\n')
    stand_in.chmod(0o755)
    # Another test may have the usual port.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {"PATH": f"{stand_in.parent}:{clean()['PATH']}", "PITBOSS_WORKERS": "2", "PITBOSS_HTTP__PORT": port}
    with Reader(tmp_path, env, varies=NUMBERS) as reader:
        reader.follow(TUTORIALS / "first-steps.md")


@pytest.mark.timeout(240)
def test_proxies_with_limits(tmp_path: Path) -> None:
    """The window of a minute is cut to 12 seconds by the environment, so that the test need not wait for a minute."""
    shorter = {"RATE": "6/12s", "PER_MINUTE": "none", "MIN_DELAY": "100ms"}
    env = {f"PITBOSS_RESOURCES__PROXIES__{key}": value for key, value in shorter.items()}
    with Reader(tmp_path, {**env, "PITBOSS_HTTP__ENABLED": "false"}) as reader:
        reader.follow(TUTORIALS / "proxies-with-limits.md")


def test_there_are_no_other_tutorials() -> None:
    assert {page.name for page in TUTORIALS.glob("*.md")} == {"index.md", "first-steps.md", "proxies-with-limits.md"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page: str) -> None:
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", (ROOT / page).read_text()):
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True, timeout=60)
