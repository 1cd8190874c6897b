"""Commands that act on many tasks: which ones, a question, the act with a bar, and its result."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli import operations
from pitboss.cli.auditing import acting
from pitboss.cli.command import ask, audited, confirm, id_maker, operator, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import local
from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import EVERYTHING, Filter, by, parsed
from pitboss.model.limits import Window
from pitboss.model.operation import NewOperation, Operation, Verb, lasts
from pitboss.model.states import State
from pitboss.model.text import counted, one_line
from pitboss.operate.lookup import ID
from pitboss.operate.operations import FEW, BulkResult, act_on_tasks
from pitboss.operate.tasks import Selection, Staying, select_tasks, staying_tasks

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

TasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|FILTER", help="Ids of tasks, or a filter. See: pitboss help filters."),
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until an act on many tasks is over.")
]
_SAMPLE = 5


class Act(NamedTuple):
    """An act in the words that are shown, on tasks in one of these states, and how it is done."""

    verb: Verb
    word: str
    done: str
    states: tuple[State, ...]
    reason: str = ""
    keep_attempts: bool = False
    rate: tuple[Window, ...] = ()
    stop_on_failures: int | None = None


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


def run(
    context: typer.Context,
    store: str | None,
    act: Act,
    wanted: Filter,
    *,
    sure: bool,
    dry: bool,
    waits: bool = True,
) -> None:
    """Do it, unless the person says no. A single task that was named by its id needs no question."""
    screen, audit = screen_of(context), acting(context)

    async def work(opened: "Store") -> _Done:
        selection = await select_tasks(opened, wanted, act.states)
        if not selection.matched:
            return _Done(selection)
        few = selection.matched <= FEW and not selection.more
        stay = await staying_tasks(opened, selection) if act.verb is Verb.DISCARD and few else Staying()
        asks = not (sure or selection.named)
        if dry or asks:
            await show_sample(screen, opened, act.word, selection)
        if dry:
            return _Done(selection, stay)
        if asks:
            lasts = f" {_lasts(act, selection)[:1].upper()}{_lasts(act, selection)[1:]}." if act.rate else ""
            confirm(screen, f"{act.word} {counted(selection.matched, 'task', more=selection.more)}?{lasts}")
        done = await act_on_tasks(
            opened,
            _operation(act, selection),
            lambda about: audited(opened, audit._replace(details={**audit.details, **about})),
        )
        if isinstance(done, Operation):
            if not waits:
                await operations.tell_begun(screen, opened, done)
                raise typer.Exit
            done = await operations.follow(screen, opened, done)
        return _Done(selection, stay, done)

    selection, stay, result = ask(screen, store, work)
    if isinstance(result, Operation):
        operations.tell(screen, result)
        return
    _tell(screen, act, selection, result, stay)
    deletes = act.verb is Verb.DISCARD and result is not None and result.changed < selection.matched
    if deletes or (result is not None and result.refused):
        raise typer.Exit(Exit.REFUSED)


class _Done(NamedTuple):
    """`result` is None if nothing was to be changed."""

    selection: Selection
    stay: Staying = Staying()
    result: BulkResult | Operation | None = None


def _operation(act: Act, selection: Selection) -> NewOperation:
    return NewOperation(
        id=id_maker()(),
        verb=act.verb,
        wanted=selection.wanted,
        by=operator(),
        reason=act.reason,
        keep_attempts=act.keep_attempts,
        matched=selection.matched,
        more=selection.more,
        rate=act.rate,
        stop_on_failures=act.stop_on_failures,
    )


def _lasts(act: Act, selection: Selection) -> str:
    return f"this takes about {spoken(max(SECOND, lasts(act.rate, selection.matched)))}"


def _tell(screen: Screen, act: Act, selection: Selection, result: BulkResult | None, stay: Staying) -> None:
    if not selection.matched:
        screen.note(f"no {' or '.join(act.states)} task matches; nothing was changed")
        raise typer.Exit(Exit.NOT_FOUND)
    if result is None:
        number = max(0, selection.matched - stay.remembered - stay.others)
        takes = f"; {_lasts(act, selection)}" if act.rate else ""
        tasks = counted(number, "task", more=selection.more)
        screen.note(f"would {act.word.lower()} {tasks}{takes}; nothing was changed")
        _tell_staying(screen, stay, stay.remembered + stay.others)
        return
    asked = f"; {counted(result.asked, 'running task')} asked to stop" if result.asked else ""
    screen.note(f"{counted(result.changed, 'task')} {act.done}{asked}")
    if act.verb is Verb.DISCARD:
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
    screen.note(f"{verb} {counted(selection.matched, 'task', more=selection.more)}:")
    for task in page.tasks:
        screen.note(f"  {task.id}  {task.state:<9}  {task.handler}  {one_line(task.params, 60)}")
    if selection.matched > len(page.tasks):
        screen.note(f"  … and {selection.matched - len(page.tasks):,}{'+' * selection.more} more")
