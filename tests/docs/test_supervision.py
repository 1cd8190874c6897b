"""docs/supervision.md names a test in every row, and has a row for every test of supervision."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "supervision.md").read_text(encoding="utf-8")
SECTIONS = {title: body for title, _, body in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}
FILES = re.compile(r"`(tests/[\w/]+\.py)`")
TESTS = re.compile(r"`(test_\w+)`")


def defined_in(path: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


def rows(body: str) -> list[str]:
    """The rows of a section's table of failures."""
    table = [line for line in body.splitlines() if line.startswith("|")]
    return table[2:] if table and table[0].endswith("| test |") else []


@pytest.mark.parametrize("title", SECTIONS)
def test_every_row_names_tests_that_exist_in_the_files_of_its_section(title: str) -> None:
    body = SECTIONS[title]
    there = set[str]().union(*(defined_in(path) for path in FILES.findall(body)))
    assert set(TESTS.findall(body)) <= there
    for row in rows(body):
        assert TESTS.search(row), f"no test: {row}"


def test_there_are_rows() -> None:
    assert sum(len(rows(body)) for body in SECTIONS.values()) >= 40


def test_every_test_of_supervision_stands_in_the_page() -> None:
    files = (ROOT / "tests" / "manager").glob("test_supervision_*.py")
    there = set[str]().union(*(defined_in(str(path.relative_to(ROOT))) for path in files))
    assert there - set(TESTS.findall(PAGE)) == set()
