"""Eight processes at full load on one SQLite file: who gets how many turns, and how long they wait."""

from pathlib import Path
from statistics import mean

import msgspec

from tests.faults.children import together
from tests.faults.line_load import Turns

PROCESSES = 8
LONGEST_P99 = 0.25
LEAST_SHARE = 0.5


def stand_in_line(folder: Path, seconds: float) -> list[Turns]:
    """One manager and seven enqueuers; what each of them got."""
    many = [[str(folder / "s.db"), kind, str(seconds)] for kind in ["manager", *["enqueuer"] * (PROCESSES - 1)]]
    with together("tests.faults.line_load", many) as children:
        return [msgspec.json.decode(child.result(seconds + 60), type=Turns) for child in children]


def shares(turns: list[Turns]) -> list[float]:
    """Each one's acts over the mean of all: a claim or a settle is a turn at the file like a put."""
    average = mean(one.acts for one in turns)
    return [one.acts / average for one in turns]


def complaints(turns: list[Turns]) -> list[str]:
    """What is worse than promised."""
    found = [f"process {number}: {error}" for number, one in enumerate(turns) for error in one.errors[:3]]
    for number, (one, share) in enumerate(zip(turns, shares(turns), strict=True)):
        if share < LEAST_SHARE:
            found.append(f"process {number} ({one.kind}) got {share:.0%} of the mean")
        if one.wait(0.99) > LONGEST_P99:
            found.append(f"process {number} ({one.kind}) waited {one.wait(0.99) * 1000:.0f} ms at p99")
    return found


def table(turns: list[Turns]) -> str:
    lines = ["process   kind      acts   of mean    tasks   p50 ms   p99 ms   max ms   errors"]
    for number, (one, share) in enumerate(zip(turns, shares(turns), strict=True)):
        waits = "".join(f"{one.wait(part) * 1000:9.1f}" for part in (0.5, 0.99, 1.0))
        lines.append(f"{number:<8} {one.kind:<8} {one.acts:6} {share:9.0%} {one.tasks:8}{waits}{len(one.errors):9}")
    return "\n".join(lines)
