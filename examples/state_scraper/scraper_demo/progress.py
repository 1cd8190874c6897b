"""Shows the states filling up: a row for each worker, a bar for each of its states."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from scrape_yp.state_assignments import get_states_for_worker

_STATUSES = ("planned", "in_progress", "done", "failed")
# The width of a bar, of what is left of the bars, and of what is around each.
_NARROW, _WIDE, _LEFT, _AROUND = 2, 8, 12, 11
_EVERY = 5.0
_UP = "\x1b[{}A\x1b[J"


class Table:
    """On a terminal it is drawn in place, else every few seconds."""

    def __init__(self, workers: Sequence[int]) -> None:
        self._workers = workers
        self._drawn = 0
        self._last = 0.0
        self._live = sys.stdout.isatty()

    def show(self, states: Mapping[str, Counter[str]], *, last: bool = False) -> None:
        if not (last or self._live) and time.monotonic() - self._last < _EVERY:
            return
        lines = rows(self._workers, states)
        say((_UP.format(self._drawn) if self._live and self._drawn else "") + "\n".join(lines))
        self._drawn, self._last = len(lines), time.monotonic()

    def tell(self, text: str) -> None:
        """Say something; the table is drawn anew below it."""
        say(text)
        self._drawn = 0


def rows(workers: Sequence[int], states: Mapping[str, Counter[str]]) -> list[str]:
    known = {worker: [state for state in get_states_for_worker(worker) if state in states] for worker in workers}
    # A line that is wider than the terminal could not be drawn in place.
    room = (shutil.get_terminal_size().columns - _LEFT) // max(map(len, known.values()))
    width = max(_NARROW, min(_WIDE, room - _AROUND))
    every = sum(states.values(), Counter[str]())
    figures = ", ".join(f"{every[name]} {name.replace('_', ' ')}" for name in _STATUSES)
    lines = [
        f"  Worker {worker}  {'  '.join(_bar(one, states[one], width) for one in known[worker])}" for worker in workers
    ]
    return [*lines, f"  {every.total()} targets: {figures}"]


def _bar(state: str, counts: Counter[str], width: int) -> str:
    ended = counts["done"] + counts["failed"]
    full = width * ended // counts.total()
    return f"{state} {'█' * full}{'·' * (width - full)} {ended:>2}/{counts.total()}"


def say(text: str) -> None:
    print(text, flush=True)
