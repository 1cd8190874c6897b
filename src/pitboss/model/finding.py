"""The result of one check: a line for a person, and for everything but `ok` why it matters and how to fix it."""

from enum import StrEnum

import msgspec


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
