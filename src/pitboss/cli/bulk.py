"""Acts on many tasks: say how many and which, ask, then do it in steps with a bar."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import typer

from pitboss.cli.exits import Refused
from pitboss.cli.screen import Screen
from pitboss.cli.words import counted, one_line
from pitboss.model.filter import Filter
from pitboss.model.queue import Changed
from pitboss.model.states import State

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_STEP = 1000
_SAMPLE = 5


class Act(NamedTuple):
    """What is done, in the words that are shown, to the tasks of the filter that are in one of these states."""

    verb: str
    done: str
    states: tuple[State, ...]
    step: "Callable[[Store, Filter, int], Awaitable[Changed]]"


class Total(NamedTuple):
    matched: int
    changed: int = 0
    asked: int = 0
    refused: tuple[str, ...] = ()


async def run(screen: Screen, store: "Store", act: Act, wanted: Filter, *, sure: bool, dry: bool) -> Total:
    """Do it, unless the person says no. A single task is not asked about: it was named."""
    wanted = wanted.also(state=act.states)
    matched = await store.count(wanted)
    named = matched == 1 and any(term.field == "id" for term in wanted.terms)
    if matched and (dry or not (sure or named)):
        await _sample(screen, store, act, wanted, matched)
    if dry or not matched:
        return Total(matched)
    if not (sure or named):
        confirm(screen, f"{act.verb} {counted(matched, 'task')}?")
    return await _stepwise(screen, store, act, wanted, matched)


def confirm(
    screen: Screen, question: str, *, otherwise: str = "look at it with --dry-run, then repeat with --yes"
) -> None:
    """Go on only if a person says yes; where nobody can answer, only `--yes` goes on."""
    if not screen.interactive:
        raise Refused(
            "this needs a yes, and nobody can be asked here",
            why="stdin is not a terminal",
            fix=otherwise,
        )
    if not typer.confirm(question, err=True):
        raise Refused("nothing was done", why="the answer was no")


def tell(screen: Screen, act: Act, total: Total, *, dry: bool) -> None:
    """What came of it, for the person."""
    if dry:
        screen.note(f"would {act.verb.lower()} {counted(total.matched, 'task')}; nothing was changed")
        return
    asked = f"; {counted(total.asked, 'running task')} asked to stop" if total.asked else ""
    screen.note(f"{counted(total.changed, 'task')} {act.done}{asked}")
    for task in total.refused[:_SAMPLE]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")


async def _sample(screen: Screen, store: "Store", act: Act, wanted: Filter, matched: int) -> None:
    page = await store.find(wanted, limit=_SAMPLE, oldest_first=True)
    screen.note(f"{act.verb} {counted(matched, 'task')}:")
    for task in page.tasks:
        screen.note(f"  {task.id}  {task.state:<9}  {task.handler}  {one_line(task.params, 60)}")
    if matched > len(page.tasks):
        screen.note(f"  … and {matched - len(page.tasks):,} more")


async def _stepwise(screen: Screen, store: "Store", act: Act, wanted: Filter, matched: int) -> Total:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    total = Total(matched)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    hidden = not screen.err.is_terminal or matched <= _STEP
    with Progress(*columns, console=screen.err, transient=True, disable=hidden) as bar:
        shown = bar.add_task(act.verb, total=matched)
        while True:
            step = await act.step(store, wanted, _STEP)
            refused = tuple(dict.fromkeys((*total.refused, *step.refused)))
            total = Total(matched, total.changed + step.changed, total.asked + step.asked, refused)
            bar.update(shown, completed=total.changed + total.asked)
            # What is refused stays where it is: a step that moves nothing would be repeated for ever.
            if not step.more or not step.changed + step.asked:
                return total
