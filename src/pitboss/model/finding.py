"""The result of one check: a line for a person, and for everything but `ok` why it matters and how to fix it."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from pitboss.model.text import listed


class Grade(StrEnum):
    """A warning is for a person to look at; a problem makes `pitboss doctor` fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One result. `check` is stable and may be matched by programs; several findings may share one."""

    check: str
    grade: Grade
    what: str
    why: str = ""
    fix: str = ""


def fine(check: str, what: str) -> Finding:
    return Finding(check, Grade.OK, what)


def warning(check: str, what: str, *, why: str, fix: str) -> Finding:
    return Finding(check, Grade.WARNING, what, why, fix)


def problem(check: str, what: str, *, why: str, fix: str) -> Finding:
    return Finding(check, Grade.PROBLEM, what, why, fix)


def count_finding(differences: Sequence[tuple[str, str, int]]) -> Finding:
    """Stored numbers of tasks that differ from a recount: queue, state, and by how much they are too high."""
    if not differences:
        return fine("counts", "the numbers of tasks agree with a recount")
    told = listed([f"{queue} {state} {n:+,}" for queue, state, n in differences], 3)
    return problem(
        "counts",
        f"the stored numbers of tasks differ from a recount: {told}",
        why="claims and capacities go by them: tasks may wait although they could run",
        fix="pitboss db check --repair",
    )
