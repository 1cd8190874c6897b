"""The page about partitions: its commands print what it shows, its code runs, and its tables name every mode."""

import re
from pathlib import Path

import pytest

from pitboss import App
from pitboss.model.partition import MODES, ON_MISSING
from tests.docs.pages import ROOT, Reader

PAGE = ROOT / "docs" / "how-to" / "partitions.md"
# Lines of code that stand alone: they need an app around them.
ALONE = re.compile(r"```python\n(app\.queue[^\n]*\n)```\n")


@pytest.mark.timeout(180)
def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    shown = tmp_path / "page.md"
    shown.write_text(ALONE.sub("", PAGE.read_text()))
    folder = tmp_path / "project"
    folder.mkdir()
    with Reader(folder, {"PITBOSS_HTTP__ENABLED": "false"}) as reader:
        reader.follow(shown)


def test_lines_of_code_that_stand_alone_are_accepted() -> None:
    lines = ALONE.findall(PAGE.read_text())
    assert len(lines) == 2
    for line in lines:
        exec(line, {"app": App("memory://")})


def test_every_mode_is_explained() -> None:
    page = PAGE.read_text()
    for mode in MODES:
        assert re.search(rf"^\| `{mode}`", page, re.MULTILINE)
    for choice in ON_MISSING:
        assert f"`{choice}` (" in page
