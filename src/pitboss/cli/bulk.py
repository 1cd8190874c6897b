"""Commands that act on many tasks: which ones, a question, the act with a bar, and its result."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import ask, confirm, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.progress import counting
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import EVERYTHING, Filter, by, parsed
from pitboss.model.states import State
from pitboss.model.text import counted, one_line
from pitboss.operate.lookup import ID
from pitboss.operate.tasks import PORTION, BulkResult, Progress, Selection, select_tasks

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

TasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|FILTER", help="Ids of tasks, or a filter. See: pitboss help filters."),
]
_SAMPLE = 5


class Act(NamedTuple):
    """An act in the words that are shown, on tasks in one of these states."""

    verb: str
    done: str
    states: tuple[State, ...]
    run: "Callable[[Store, Selection, Progress], Awaitable[BulkResult]]"


def filter_of(words: Sequence[str] | None) -> Filter:
    """The filter that the words make together."""
    return parsed(" ".join(words or ()))


def selected(words: Sequence[str] | None, *, everything: bool) -> Filter:
    """The tasks that ids or a filter select. No words at all are refused: all tasks are rarely meant."""
    given = [word.strip() for word in words or ()]
    if not given:
        if everything:
            return EVERYTHING
        raise InvalidInput(
            "no tasks selected",
            why="without ids or a filter it would be all tasks",
            fix="give ids, a filter such as queue:mail, or --all",
        )
    if all(ID.match(word) for word in given):
        return by(id=[word.lower() for word in given])
    if any(ID.match(word) for word in given):
        raise InvalidInput(
            "ids and a filter cannot be mixed",
            why="all words of a filter must match, so only one of the ids could",
            fix="give ids only, or write one filter such as id:A,B queue:mail",
        )
    return filter_of(given)


def run(context: typer.Context, store: str | None, act: Act, wanted: Filter, *, sure: bool, dry: bool) -> None:
    """Do it, unless the person says no. A single task that was named by its id needs no question."""
    screen = screen_of(context)

    async def work(opened: "Store") -> tuple[Selection, BulkResult]:
        selection = await select_tasks(opened, wanted, act.states)
        asks = not (sure or selection.named)
        if selection.matched and (dry or asks):
            await show_sample(screen, opened, act.verb, selection)
        if dry or not selection.matched:
            return selection, BulkResult()
        if asks:
            confirm(screen, f"{act.verb} {counted(selection.matched, 'task')}?")
        with counting(screen, act.verb, selection.matched, shown=selection.matched > PORTION) as done:
            return selection, await act.run(opened, selection, lambda total: done(total.changed + total.asked))

    selection, result = ask(screen, store, work, audit=acting(context))
    _tell(screen, act, selection, result, dry=dry)
    if result.refused:
        raise typer.Exit(Exit.REFUSED)


def _tell(screen: Screen, act: Act, selection: Selection, result: BulkResult, *, dry: bool) -> None:
    if not selection.matched:
        screen.note(f"no {' or '.join(act.states)} task matches; nothing was changed")
        raise typer.Exit(Exit.NOT_FOUND)
    if dry:
        screen.note(f"would {act.verb.lower()} {counted(selection.matched, 'task')}; nothing was changed")
        return
    asked = f"; {counted(result.asked, 'running task')} asked to stop" if result.asked else ""
    screen.note(f"{counted(result.changed, 'task')} {act.done}{asked}")
    for task in result.refused[:_SAMPLE]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")


async def show_sample(screen: Screen, store: "Store", verb: str, selection: Selection) -> None:
    """How many tasks it is about, and the oldest of them."""
    page = await store.find(selection.wanted, limit=_SAMPLE, oldest_first=True)
    screen.note(f"{verb} {counted(selection.matched, 'task')}:")
    for task in page.tasks:
        screen.note(f"  {task.id}  {task.state:<9}  {task.handler}  {one_line(task.params, 60)}")
    if selection.matched > len(page.tasks):
        screen.note(f"  … and {selection.matched - len(page.tasks):,} more")
