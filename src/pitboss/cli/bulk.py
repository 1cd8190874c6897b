"""Commands that act on many tasks: which ones, a question, the act with a bar, and its result."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import ask, confirm, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import local
from pitboss.cli.progress import counting
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import EVERYTHING, Filter, by, parsed
from pitboss.model.states import State
from pitboss.model.text import counted, one_line
from pitboss.operate.lookup import ID
from pitboss.operate.tasks import PORTION, BulkResult, Progress, Selection, Staying, select_tasks, staying_tasks

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

TasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|FILTER", help="Ids of tasks, or a filter. See: pitboss help filters."),
]
_SAMPLE = 5


class Act(NamedTuple):
    """An act in the words that are shown, on tasks in one of these states. `deletes`: some tasks may have to stay."""

    verb: str
    done: str
    states: tuple[State, ...]
    run: "Callable[[Store, Selection, Progress], Awaitable[BulkResult]]"
    deletes: bool = False


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

    async def work(opened: "Store") -> tuple[Selection, Staying, BulkResult]:
        selection = await select_tasks(opened, wanted, act.states)
        stay = await staying_tasks(opened, selection) if act.deletes and selection.matched else Staying()
        asks = not (sure or selection.named)
        if selection.matched and (dry or asks):
            await show_sample(screen, opened, act.verb, selection)
        if dry or not selection.matched:
            return selection, stay, BulkResult()
        if asks:
            confirm(screen, f"{act.verb} {counted(selection.matched, 'task')}?")
        with counting(screen, act.verb, selection.matched, shown=selection.matched > PORTION) as done:
            return selection, stay, await act.run(opened, selection, lambda total: done(total.changed + total.asked))

    selection, stay, result = ask(screen, store, work, audit=acting(context))
    _tell(screen, act, selection, result, stay, dry=dry)
    if result.refused or (act.deletes and not dry and result.changed < selection.matched):
        raise typer.Exit(Exit.REFUSED)


def _tell(screen: Screen, act: Act, selection: Selection, result: BulkResult, stay: Staying, *, dry: bool) -> None:
    if not selection.matched:
        screen.note(f"no {' or '.join(act.states)} task matches; nothing was changed")
        raise typer.Exit(Exit.NOT_FOUND)
    if dry:
        number = max(0, selection.matched - stay.remembered - stay.others)
        screen.note(f"would {act.verb.lower()} {counted(number, 'task')}; nothing was changed")
        _tell_staying(screen, stay, stay.remembered + stay.others)
        return
    asked = f"; {counted(result.asked, 'running task')} asked to stop" if result.asked else ""
    screen.note(f"{counted(result.changed, 'task')} {act.done}{asked}")
    if act.deletes:
        _tell_staying(screen, stay, selection.matched - result.changed)
    for task in result.refused[:_SAMPLE]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")


def _tell_staying(screen: Screen, stay: Staying, left: int) -> None:
    """Why these are not deleted."""
    if known := min(left, stay.remembered):
        ids = "its message id is" if known == 1 else "their message ids are"
        screen.note(
            f"{counted(known, 'task stays', 'tasks stay')}: {ids} remembered until {local(stay.until)}, so that a "
            "redelivery does not run again. Delete them after that, or run them again: pitboss dead retry"
        )
    if others := left - known:
        why = "part of a batch, or of a unique key whose period is not over"
        screen.note(f"{counted(others, 'task stays', 'tasks stay')}: {why}")


async def show_sample(screen: Screen, store: "Store", verb: str, selection: Selection) -> None:
    """How many tasks it is about, and the oldest of them."""
    page = await store.find(selection.wanted, limit=_SAMPLE, oldest_first=True)
    screen.note(f"{verb} {counted(selection.matched, 'task')}:")
    for task in page.tasks:
        screen.note(f"  {task.id}  {task.state:<9}  {task.handler}  {one_line(task.params, 60)}")
    if selection.matched > len(page.tasks):
        screen.note(f"  … and {selection.matched - len(page.tasks):,} more")
