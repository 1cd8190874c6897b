"""Waits until managers have done what they were asked for, and shows what it waits for."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator

from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.errors import PitbossError, TimedOutWaiting
from pitboss.model.rollout_progress import RolloutProgress

_LOOK_SECONDS = 0.5


class NotDone(PitbossError):
    """What was asked for will not come about without somebody's help."""

    code = "not-done"


async def until(screen: Screen, what: str, look: Callable[[], Awaitable[RolloutProgress]], timeout: Span) -> None:
    """Until it is over; `TimedOutWaiting` if that takes longer, `NotDone` if it cannot become so."""
    import asyncio

    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout / SECOND
    with _display(screen, what) as show:
        while not (progress := await look()).over:
            show(progress)
            if progress.trouble:
                raise NotDone(
                    f"{what}: it cannot be completed",
                    why=progress.trouble,
                    fix="mend it and repeat the command; pitboss ps shows the workers, pitboss logs what they said",
                )
            left = ends - loop.time()
            if left <= 0:
                raise _too_late(what, progress, timeout)
            await asyncio.sleep(min(_LOOK_SECONDS, left))


def _too_late(what: str, progress: RolloutProgress, timeout: Span) -> TimedOutWaiting:
    return TimedOutWaiting(
        f"{what}: {progress.done} of {progress.of} after {spoken(timeout)}",
        why=f"still waiting for {progress.left}",
        fix="it was asked for and goes on; repeat with a longer --timeout, or look at pitboss ps",
    )


@contextlib.contextmanager
def _display(screen: Screen, what: str) -> Iterator[Callable[[RolloutProgress], None]]:
    """A bar on a terminal; elsewhere a line whenever there is something new to say."""
    if screen.err.is_terminal:
        with _bar(screen, what) as show:
            yield show
        return
    said = ""

    def tell(progress: RolloutProgress) -> None:
        nonlocal said
        text = f"{what}: {progress.done} of {progress.of}; waiting for {progress.left}"
        if text != said:
            screen.note(text)
        said = text

    yield tell


@contextlib.contextmanager
def _bar(screen: Screen, what: str) -> Iterator[Callable[[RolloutProgress], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(overflow="ellipsis", no_wrap=True)),
    )
    with Progress(*columns, console=screen.err, transient=True) as bar:
        shown = bar.add_task(what, total=None, left="")
        yield lambda progress: bar.update(shown, completed=progress.done, total=progress.of, left=progress.left)
