"""Progress on a terminal: bars, and what a rollout still waits for. A pipe gets numbers and lines instead."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pitboss.cli.screen import Screen
from pitboss.model.duration import Span
from pitboss.model.rollout_progress import RolloutProgress

_FULL, _EMPTY = "━", "─"


def bar(screen: Screen, percent: int, *, width: int = 12) -> str:
    """A bar within a line of text; in a pipe only the number."""
    if not screen.out.is_terminal:
        return f"{percent} %"
    full = percent * width // 100
    return f"{_FULL * full}{_EMPTY * (width - full)} {percent:>3} %"


@contextlib.contextmanager
def counting(screen: Screen, what: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar while something is done; call the value with the number done so far. Disappears at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    hidden = not (shown and screen.err.is_terminal)
    with Progress(*columns, console=screen.err, transient=True, disable=hidden) as display:
        task = display.add_task(what, total=total)
        yield lambda done: display.update(task, completed=done)


def spinner(screen: Screen, text: str) -> contextlib.AbstractContextManager[Any]:
    return screen.err.status(text) if screen.err.is_terminal else contextlib.nullcontext()


async def rollout(screen: Screen, what: str, look: Callable[[], Awaitable[RolloutProgress]], timeout: Span) -> None:
    """Wait until managers have done it, and show what it still waits for."""
    from pitboss.operate.desired_state import wait_for_rollout

    with _rollout_bar(screen, what) if screen.err.is_terminal else _rollout_lines(screen, what) as show:
        await wait_for_rollout(what, look, timeout, show)


@contextlib.contextmanager
def _rollout_lines(screen: Screen, what: str) -> Iterator[Callable[[RolloutProgress], None]]:
    said = ""

    def show(progress: RolloutProgress) -> None:
        nonlocal said
        text = f"{what}: {progress.done} of {progress.of}; waiting for {progress.left}"
        if text != said:
            screen.note(text)
        said = text

    yield show


@contextlib.contextmanager
def _rollout_bar(screen: Screen, what: str) -> Iterator[Callable[[RolloutProgress], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(overflow="ellipsis", no_wrap=True)),
    )
    with Progress(*columns, console=screen.err, transient=True) as display:
        task = display.add_task(what, total=None, left="")
        yield lambda progress: display.update(task, completed=progress.done, total=progress.of, left=progress.left)
