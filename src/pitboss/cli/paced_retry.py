"""`pitboss dead retry --rate`: a bar while it goes on, a Ctrl-C that stops it between two portions, and its result."""

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from pitboss.cli import bulk
from pitboss.cli.auditing import acting
from pitboss.cli.command import ask, confirm, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.progress import counting
from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, spoken
from pitboss.model.filter import Filter
from pitboss.model.limits import Window
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.operate.dead_letters import RetryPlan, RetryReport, retry_at_rate
from pitboss.operate.tasks import select_tasks

if TYPE_CHECKING:
    import asyncio

    from pitboss.engines.protocol import Store

_CODES = {"done": Exit.OK, "failures": Exit.FAILED, "stopped": Exit.INTERRUPTED}
_REFUSED_SHOWN = 5


def run(
    context: typer.Context,
    store: str | None,
    wanted: Filter,
    rate: tuple[Window, ...],
    stop_on_failures: int | None,
    *,
    sure: bool,
    dry: bool,
) -> None:
    """Retry at this rate, unless the person says no."""
    screen = screen_of(context)
    plan = RetryPlan(wanted=wanted, rate=rate, stop_on_failures=stop_on_failures)

    async def work(opened: "Store") -> RetryReport | None:
        import asyncio

        selection = await select_tasks(opened, wanted, (State.FAILED,))
        lasts = f"this takes about {spoken(max(SECOND, round(selection.matched / plan.per_second) * SECOND))}"
        if not selection.matched:
            screen.note("no failed task matches; nothing was changed")
            raise typer.Exit(Exit.NOT_FOUND)
        if dry or not (sure or selection.named):
            await bulk.show_sample(screen, opened, "Retry", selection)
        if dry:
            screen.note(f"would retry {counted(selection.matched, 'task')}; {lasts}; nothing was changed")
            return None
        if not (sure or selection.named):
            confirm(screen, f"Retry {counted(selection.matched, 'task')}? {lasts[:1].upper()}{lasts[1:]}.")
        stop = asyncio.Event()
        with _interruptible(stop), counting(screen, "Retry", selection.matched) as done:
            return await retry_at_rate(opened, plan, stop=stop, progress=lambda report: done(report.retried))

    report = ask(screen, store, work, audit=acting(context))
    if report is not None:
        _tell(screen, report)


@contextlib.contextmanager
def _interruptible(stop: "asyncio.Event") -> Iterator[None]:
    """The first Ctrl-C sets the event; another one ends the command as usual."""
    import asyncio

    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _tell(screen: Screen, report: RetryReport) -> None:
    left = report.matched - report.retried - len(report.refused)
    so_far = " so far" if report.ended == "done" else ""
    again = f"; {report.failed_again:,} of them failed again{so_far}" if report.failed_again else ""
    why = {"failures": "stopped: ", "stopped": "interrupted: "}.get(report.ended or "", "")
    rest = f"; {counted(left, 'task')} not retried" if left > 0 and report.ended != "done" else ""
    screen.note(f"{why}{counted(report.retried, 'task')} set to run again{again}{rest}")
    for task in report.refused[:_REFUSED_SHOWN]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")
    code = _CODES[report.ended or "done"]
    if code is Exit.OK and report.refused:
        code = Exit.REFUSED
    if code is not Exit.OK:
        raise typer.Exit(code)
