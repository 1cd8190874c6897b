"""Runs that ended without finishing their task: the last hundred of each."""

from collections.abc import Iterable

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.rows import attempt_row
from pitboss.model.task import Attempt

KEPT = 100


def record(act: Act, runs: Iterable[tuple[str, Attempt]]) -> None:
    """Add runs to the histories of their tasks."""
    runs = list(runs)
    act.bulk("attempt_record", [attempt_row(task, run) for task, run in runs])
    for task, run in runs:
        # A claim is recorded at most once, so only a high claim number can mean a long history.
        if run.claim > KEPT:
            act.run("attempt_forget", task, KEPT)
