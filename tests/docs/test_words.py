"""docs/reference/words.md explains every word that the command line shows.

Words of the command line are: every command and group; every option and argument, unless it is in PLAIN; every value
that a command prints as a state, status, condition or outcome. Of a word with hyphens, one part is enough. A plural
finds its singular.
"""

import re
from collections import Counter
from enum import StrEnum
from functools import cache
from typing import get_args

import pytest
from typer.testing import CliRunner

from pitboss.cli.main import app
from pitboss.model.batch import BatchStatus
from pitboss.model.outcome import Outcome
from pitboss.model.resource import Condition, ResourceOutcome
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "words.md"
# What users, code and SQL call things (one noun per thing), and what they say of attempts, resources and batches.
NOUNS = {
    "task", "handler", "queue", "worker", "worker pool", "manager", "session", "claim", "outcome", "resource pool",
    "resource", "member", "batch", "fact", "lane", "attempt", "loss", "crash", "poison", "lease", "use", "cooldown",
    "leader", "hook", "dead letter", "follow-up", "progress", "schedule", "event", "operation",
}  # fmt: skip
# Options and arguments that say what they are: switches, formats, and names of files and things.
PLAIN = {
    "after", "all", "at", "auto", "before", "check", "confirm", "debug", "dry-run", "file", "folder", "follow",
    "force", "format", "from", "full", "help", "id", "install-completion", "json", "level", "lines", "n", "name",
    "no-color", "now", "number", "off", "oldest", "only", "origin", "other", "out", "quiet", "since", "target", "to",
    "topic", "undo", "url", "value", "verbose", "version", "wait", "watch", "what", "yes",
}  # fmt: skip


@cache
def rows() -> tuple[tuple[str, str], ...]:
    """Each row's table (its heading) and word."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE):
        head, _, *lines = table.splitlines()
        for line in lines:
            found += [(head, word.strip(" `")) for word in line.split("|")[1].split(",")]
    return tuple(found)


def is_explained(word: str) -> bool:
    words = {known for _, known in rows()}
    forms = {word, *word.split("-")}
    return bool(words & (forms | {one.removesuffix("s") for one in forms} | {one.removesuffix("es") for one in forms}))


def helped(*path: str) -> str:
    answer = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def names(text: str) -> list[str]:
    """The commands in a page of help."""
    return re.findall(r"^  (\w[\w-]*)", text.partition("\nCommands:\n")[2], re.MULTILINE)


@cache
def command_line() -> dict[str, set[str]]:
    """Every word of the command line, with the pages of help that have it."""
    found: dict[str, set[str]] = {}

    def look(*path: str) -> None:
        text = helped(*path)
        options = re.findall(r"^ +(?:-\w, )?--([a-z-]+)(?: / --[a-z-]+)?(?: |$)", text, re.MULTILINE)
        usage = text.partition("\n")[0].partition("[OPTIONS]")[2]
        arguments = [] if names(text) else re.findall(r"[A-Z]+|auto", usage)
        for word in [*path[-1:], *options, *(argument.lower() for argument in arguments)]:
            found.setdefault(word, set()).add(" ".join(("pitboss", *path)))
        for name in names(text):
            look(*path, name)

    look()
    return found


def test_every_word_of_the_help_is_explained() -> None:
    missing = {word: pages for word, pages in command_line().items() if word not in PLAIN and not is_explained(word)}
    assert missing == {}


def test_the_help_was_read() -> None:
    found = command_line()
    assert {
        "tasks",
        "batches",
        "lanes",
        "enqueue",
        "requeue",
        "priority",
        "capacity",
        "pool",
        "handler",
        "group",
    } <= set(found)
    assert PLAIN - set(found) == {"version"} - set(found), "words that no help has any more"


def test_every_noun_is_explained() -> None:
    assert NOUNS - {word for _, word in rows()} == set()


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("| of a task |", State),
        ("| of a batch: its status |", BatchStatus),
        ("| of a worker |", WorkerState),
        ("| of a member: its condition |", Condition),
        ("| outcome of a use |", ResourceOutcome),
    ],
)
def test_every_value_is_explained_and_no_other(table: str, values: type[StrEnum]) -> None:
    assert {word for head, word in rows() if head.startswith(table)} == set(values)


def test_every_outcome_of_a_run_is_explained() -> None:
    tags = {str(kind.__struct_config__.tag) for kind in get_args(Outcome)}
    words = {word for head, word in rows() if head.startswith("| outcome of a run |")}
    assert tags <= words
    assert words - tags == {"retried", "snoozed"}


def test_no_word_is_explained_twice_in_one_table() -> None:
    assert [row for row, times in Counter(rows()).items() if times > 1] == []
