"""Adds the proxies from stdin, creates one batch per niche, and shows the batches moving through the queue."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from pitboss.model.batch import OVER, Batch
from pitboss.model.leasing import condition
from story_checker.app import app, create_batch, database, proxies
from story_checker.queue_manager import as_document

_LOOKS_PER_SECOND = 4
_LIMIT = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forever", action="store_true", help="create new batches whenever these have ended")
    asked = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    with app:
        proxies.add_many(json.load(sys.stdin))
        while True:
            ids = [create_batch(niche).id for niche in database.niches()]
            batches = watch(console, ids)
            outcomes(console, batches)
            if not asked.forever:
                return 0 if all(batch.status in OVER for batch in batches) else 1


def watch(console: Console, ids: Sequence[str]) -> list[Batch]:
    """Watch the batches until they end: live in a terminal, otherwise one line per change."""
    if not console.is_terminal:
        return _told(console, ids)
    batches: list[Batch] = []
    with Live(console=console, auto_refresh=False) as live:
        for batches in _looks(ids):
            live.update(picture(batches), refresh=True)
    return batches


def picture(batches: Iterable[Batch]) -> Table:
    table = Table("Niche", "Status", "Place", "Progress", "Checked", "Failed", "Stories", title=_weather())
    for batch in batches:
        told = as_document(batch)
        bar = ProgressBar(total=max(1, batch.total), completed=batch.finished, width=30)
        place = {None: "-", 0: "running"}.get(batch.position, f"#{batch.position}")
        checked = f"{told['successful_checks']}/{batch.total}"
        stories = str(len(told["profiles_with_stories"]))
        table.add_row(batch.name, batch.status, place, bar, checked, str(told["failed_checks"]), stories)
    return table


def outcomes(console: Console, batches: Iterable[Batch]) -> None:
    """Print how the checks ended, and separately what they found."""
    console.print("\nChecks by outcome, and what they found:")
    for batch in batches:
        told = as_document(batch)
        causes = Counter(task.error.category for task in app.batch_handle(batch.id).items(state="failed") if task.error)
        failed = ", ".join(f"{count} {cause}" for cause, count in causes.items()) or "none"
        stories = len(told["profiles_with_stories"])
        console.print(
            f"  {batch.name:<9} {batch.status:<16} {told['successful_checks']:>3} checked: {stories} with a story, "
            f"{told['successful_checks'] - stories} without; failed: {failed}"
        )


def _looks(ids: Sequence[str]) -> Iterator[list[Batch]]:
    ends = time.monotonic() + _LIMIT
    while True:
        batches = [app.batch_handle(one).batch() for one in ids]
        yield batches
        if all(batch.status in OVER for batch in batches) or time.monotonic() > ends:
            return
        time.sleep(1 / _LOOKS_PER_SECOND)


def _told(console: Console, ids: Sequence[str]) -> list[Batch]:
    seen: dict[str, Any] = {}
    batches: list[Batch] = []
    for batches in _looks(ids):
        for batch in batches:
            quarter = 4 * batch.finished // max(1, batch.total)
            if seen.get(batch.id) != (batch.status, batch.position, quarter):
                seen[batch.id] = (batch.status, batch.position, quarter)
                place = f"#{batch.position}" if batch.position else ""
                console.print(f"{batch.name:<9} {batch.status:<16} {place:<3} {batch.finished:>3}/{batch.total}")
    return batches


def _weather() -> str:
    """The number of proxies in each condition."""
    now = time.time_ns() // 1000
    rules = proxies.declared.rules
    counts = Counter(condition(member, rules, now)[0] for member in proxies.members())
    return "proxies: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
