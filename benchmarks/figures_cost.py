"""What figures cost: the processor time of a task in this tree, and in a copy of it that counts nothing, in turn.

    python -m benchmarks.figures_cost --pairs 10

`--without ../before` compares with another checkout instead. Puts tasks that do nothing, most of them in groups and
some one by one, and runs them with a manager of two workers. The processor time is that of all processes: client,
manager, workers, and the PostgreSQL server.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.servers.postgres import PostgresServer

HERE = Path(__file__).resolve().parents[1]
_RUN = HERE / "benchmarks" / "figures_run.py"
_ALLOWED = 3.0
_NOTHING = "NULL::text, NULL::text, NULL::bigint FROM tally, clock"
_RETURN = "\n        return"
# Where figures are counted: what stands there, and what stands there in the copy that counts nothing.
_OFF = {
    "dispatch/measuring.py": [
        (said, said + _RETURN)
        for said in (
            '"""A worker got the task."""',
            '"""The worker reported an outcome."""',
            'needed that many bytes."""',
        )
    ],
    "engines/sqlite/act.py": [(said := '"""Count what happened to tasks (`figures.KINDS`)."""', said + _RETURN)],
    "engines/postgres/sql/put.sql": [("handler, 'put', now FROM tally, clock", _NOTHING)],
    "engines/postgres/sql/settle.sql": [("told, run, now FROM tally, clock", _NOTHING)],
    "engines/postgres/count_changes.py": [
        ("handler = handler if run is not None or new in FINISHED else None", "handler = run = None")
    ],
}


class Pair(NamedTuple):
    """Microseconds of processor time per task."""

    without: float
    with_figures: float

    @property
    def more(self) -> float:
        return 100 * (self.with_figures / self.without - 1)


def switched_off(folder: Path) -> Path:
    """A copy of the sources in which nothing is counted for figures."""
    shutil.copytree(HERE / "src", folder / "src")
    for name, changes in _OFF.items():
        file = folder / "src" / "pitboss" / name
        text = file.read_text(encoding="utf-8")
        for said, instead in changes:
            if text.count(said) != 1:
                sys.exit(f"{name} has no longer exactly one {said!r}: adapt _OFF")
            text = text.replace(said, instead)
        file.write_text(text, encoding="utf-8")
    return folder


def measured(tree: Path, server: PostgresServer | None, tasks: int) -> float:
    """One run in a fresh store, by the sources of this tree."""
    with tempfile.TemporaryDirectory(prefix="figures-", dir="/dev/shm") as folder:
        url = f"sqlite:///{folder}/s.db" if server is None else server.create_database()
        done = subprocess.run(
            [sys.executable, str(_RUN), url, str(tasks), folder, str(0 if server is None else server.pid)],
            env={"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin", "HOME": folder},
            cwd=folder,
            check=True,
            timeout=300,
            stdout=subprocess.PIPE,
            text=True,
        )
    cost: float = json.loads(done.stdout.splitlines()[-1])
    return cost


def compared(without: Path, server: PostgresServer | None, tasks: int, pairs: int) -> list[Pair]:
    found: list[Pair] = []
    for number in range(pairs):
        # Which one comes first alternates too.
        trees = [without, HERE] if number % 2 else [HERE, without]
        costs = {tree: measured(tree, server, tasks) for tree in trees}
        found.append(Pair(costs[without], costs[HERE]))
        print(f"{number + 1}: {costs[without]:.1f} → {costs[HERE]:.1f} µs, {found[-1].more:+.1f} %", flush=True)
    return found


def reported(store: str, pairs: Sequence[Pair]) -> bool:
    """Print the result; whether the cost is allowed."""
    without, more = statistics.median(one.without for one in pairs), statistics.median(one.more for one in pairs)
    total = 100 * (sum(one.with_figures for one in pairs) / sum(one.without for one in pairs) - 1)
    least, most = min(one.more for one in pairs), max(one.more for one in pairs)
    print(
        f"{store}: {without:.1f} µs of processor time per task without figures; with them {more:+.1f} % "
        f"(median of {len(pairs)} pairs, {least:+.1f} … {most:+.1f} %; all together {total:+.1f} %)"
    )
    return more <= _ALLOWED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--without", type=Path, help="a checkout without figures; by default a copy that counts nothing"
    )
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory(prefix="off-") as folder:
        without = given.without.resolve() if given.without else switched_off(Path(folder))
        if "sqlite" in given.stores:
            fine = reported("sqlite", compared(without, None, given.tasks, given.pairs))
        if "postgres" in given.stores:
            with PostgresServer(durable=False) as server:
                fine = reported("postgres", compared(without, server, given.tasks, given.pairs)) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
