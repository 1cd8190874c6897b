"""The dashboard of Pitboss beside those of its peers: `python -m benchmarks.dashboards [--only flower,bull-board]`

Each holds the same data: N finished jobs and N/10 failed ones, which its own worker ran. Milliseconds until the answer
to its first page of a list is there, and to a search for a word in the params, which ten jobs have; then seconds until
all failed jobs wait again. While that is measured, no worker runs jobs. Writes dashboards.md. It ends with exit code 1
if a dashboard fails, or does not show what it should.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.boards.base import Board, List, Search
from benchmarks.boards.bull_board import BullBoard
from benchmarks.boards.flower_board import FlowerBoard
from benchmarks.boards.pgqueuer_board import PgqueuerBoard
from benchmarks.boards.pitboss_board import PitbossBoard, PitbossPostgresBoard
from benchmarks.boards.plan import HITS
from benchmarks.circumstances import machine, servers
from benchmarks.resource_report import table

BOARDS: dict[str, type[Board]] = {
    "pitboss-sqlite": PitbossBoard,
    "pitboss-postgres": PitbossPostgresBoard,
    "flower": FlowerBoard,
    "pgqueuer": PgqueuerBoard,
    "bull-board": BullBoard,
}
T = TypeVar("T")
PAGE = Path(__file__).with_name("dashboards.md")
# What pages of Pitboss share is a second old at most: each pays for all it shows. The others get the same pause.
PAUSE_SECONDS = 1.05
LISTS: tuple[List, ...] = ("finished", "failed")
SEARCHES: tuple[Search, ...] = ("text", "parameter")
HEAD = (
    "finished",
    "failed",
    "text: first answer",
    "text: all found",
    "parameter: first answer",
    "parameter: all found",
    "retry all, s",
)
NOTES = """\
- *finished*, *failed*: the first page of these jobs, as the dashboard asks for it. *–*: it cannot do that.
- *text*, *parameter*: a search for a word that {hits} jobs have in their params, evenly spread; in any text, and in the
  parameter by its name. *First answer*: what it shows may be some of them. *All found*: until all were shown.
- *retry all*: from the request until all {failed:,} failed jobs wait again: in the store of Pitboss, by the answer of
  Bull Board, and until the page of pgqueuer shows none. No worker runs them meanwhile: the queue of Pitboss is paused,
  so that its manager retries and its workers rest; the others have none.
- Where it takes several requests, their number is given.

What is unequal, and for whom it is better:

- Flower and Bull Board answer with JSON, which their page has yet to draw; Pitboss and pgqueuer with the whole page.
- Pages have 50 rows (Pitboss), 15 (Flower), 100 and a log (pgqueuer), 10 (Bull Board): the fewer, the better.
- Flower and Bull Board read memory (their own, Redis's); Pitboss and pgqueuer a database that has synced all to disk.
  Flower loses all when it ends. Its `--max_tasks` was raised, and Redis's limit for a subscriber lifted, to hold all.
"""


class Figures(NamedTuple):
    """Seconds of each round by column, and the requests of those that took several."""

    took: dict[str, list[float]]
    requests: dict[str, int]

    def cell(self, column: str) -> str:
        took = self.took.get(column)
        if not took:
            return "–"
        unit = 1 if column.startswith("retry") else 1000
        middle, most = (f"{unit * one:,.{2 if unit == 1 else 0}f}" for one in (statistics.median(took), max(took)))
        several = self.requests.get(column, 1)
        return f"{middle} (≤ {most})" + (f", {several:,} requests" if several > 1 else "")


class Measurement:
    """The rounds on one dashboard. The first round, of which nothing is kept, warms it up."""

    def __init__(self, board: Board, rounds: int) -> None:
        self._board, self._rounds = board, rounds
        self.figures = Figures({}, {})

    def run(self) -> None:
        for number in range(self._rounds + 1):
            kept = number > 0
            for which in LISTS:
                self._list(which, kept)
            for how in SEARCHES:
                self._search(how, kept)
        for number in range(self._rounds + 1):
            if not self._retry(number > 0):
                break

    def _list(self, which: List, kept: bool) -> None:
        took, shown = timed(lambda: self._board.listed(which))
        if shown is not None:
            expect(shown > 0, f"the list of {which} jobs is empty")
            self._keep(which, took, kept)

    def _search(self, how: Search, kept: bool) -> None:
        time.sleep(PAUSE_SECONDS)
        began, found, requests = time.perf_counter(), 0, 0
        answers = self._board.searched(how)
        if answers is None:
            return
        for shown in answers:
            found, requests = found + shown, requests + 1
            if requests == 1:
                self._keep(f"{how}: first answer", time.perf_counter() - began, kept)
            if found >= HITS:
                break
        self._keep(f"{how}: all found", time.perf_counter() - began, kept, requests)
        expect(found == HITS, f"the search by {how} found {found} of {HITS}")

    def _retry(self, kept: bool) -> bool:
        took, requests = timed(self._board.retry)
        if requests is None:
            return False
        self._keep(HEAD[-1], took, kept, requests)
        self._board.fail_again()
        return True

    def _keep(self, column: str, took: float, kept: bool, requests: int = 1) -> None:
        if kept:
            self.figures.took.setdefault(column, []).append(took)
            self.figures.requests[column] = requests


def timed(ask: Callable[[], T]) -> tuple[float, T]:
    time.sleep(PAUSE_SECONDS)
    began = time.perf_counter()
    answer = ask()
    return time.perf_counter() - began, answer


def expect(true: bool, fault: str) -> None:
    if not true:
        raise AssertionError(fault)


def report(given: argparse.Namespace, results: dict[str, Figures]) -> str:
    rows = [[name, *(one.cell(column) for column in HEAD)] for name, one in results.items()]
    ways = [[name, ", ".join(BOARDS[name].versions).replace("==", " "), BOARDS[name].how] for name in results]
    return "\n".join(
        [
            "# Dashboards: Pitboss beside its peers\n",
            f"{datetime.now(UTC):%Y-%m-%d}. {machine()}; {servers()}.\n",
            f"{given.tasks:,} finished and {given.tasks // 10:,} failed jobs in each; {given.rounds} rounds after one "
            "that warms up; milliseconds, medians (≤ the longest); the last column in seconds.\n",
            table(["dashboard", *HEAD], rows),
            "",
            NOTES.format(hits=HITS, failed=given.tasks // 10),
            table(["dashboard", "versions", "what is asked"], ways).replace("--:", "---"),
            "",
        ]
    )


def measured(name: str, given: argparse.Namespace, results: dict[str, Figures]) -> bool:
    """Whether the dashboard did what it should. Figures that it gave before it failed are kept."""
    print(f"{name}: runs {given.tasks + given.tasks // 10:,} jobs", file=sys.stderr, flush=True)
    results[name] = Figures({}, {})
    try:
        with BOARDS[name](given.tasks) as board:
            print(f"{name}: is measured", file=sys.stderr, flush=True)
            measurement = Measurement(board, given.rounds)
            results[name] = measurement.figures
            measurement.run()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BOARDS), help=f"some of {', '.join(BOARDS)}")
    parser.add_argument("--tasks", type=int, default=100_000, help="finished jobs, a multiple of 100")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=PAGE)
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := sorted(set(names) - set(BOARDS)):
        parser.error(f"unknown: {', '.join(unknown)}")
    if given.tasks < 100 or given.tasks % 100:
        parser.error("--tasks is a multiple of 100")
    results: dict[str, Figures] = {}
    right = [measured(name, given, results) for name in names]
    text = report(given, results)
    given.output.write_text(text)
    print(text)
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
