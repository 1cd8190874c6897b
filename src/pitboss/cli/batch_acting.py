"""Acts on batches: a question where much would be lost, the act in portions with a bar, and its result."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import ask, confirm, screen_of
from pitboss.cli.formatting import short
from pitboss.cli.progress import counting
from pitboss.cli.screen import Screen
from pitboss.client.batch_handle import PORTION, act_in_portions
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchStatus, Cancel
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.operate.lookup import find_batch

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_REFUSED_SHOWN = 5


class Act(NamedTuple):
    """An act in the words that are shown. `items` says what happens to items; `asks`: a person must confirm."""

    verb: str
    act: BatchAct
    items: str = ""
    asks: bool = False


class Total(NamedTuple):
    changed: int = 0
    refused: int = 0


def run(
    context: typer.Context,
    store: str | None,
    ids: Sequence[str],
    act: "Act | Callable[[Store], Awaitable[Act]]",
    *,
    sure: bool = False,
) -> Total:
    """Do it to each batch. All are looked up first, so that a wrong id stops it before anything is done."""
    screen = screen_of(context)

    async def work(opened: "Store") -> Total:
        chosen = act if isinstance(act, Act) else await act(opened)
        found = [await find_batch(opened, one) for one in ids]
        if chosen.asks and not sure:
            confirm(screen, _question(chosen, found), otherwise="repeat with --yes")
        done = [await _done(screen, opened, chosen, batch) for batch in found]
        return Total(sum(one.changed for one in done), sum(len(one.refused) for one in done))

    return ask(screen, store, work, audit=acting(context))


async def _done(screen: Screen, store: "Store", act: Act, batch: Batch) -> BatchChanged:
    shown = bool(act.items) and batch.total > PORTION
    with counting(screen, f"{act.verb} {_named(batch)}", batch.total, shown=shown) as done:
        changed = await act_in_portions(batches_of(store), batch.id, act.act, lambda total: done(total.changed))
    _tell(screen, act, batch, changed)
    return changed


def _tell(screen: Screen, act: Act, was: Batch, changed: BatchChanged) -> None:
    if changed.batch is None:
        screen.note(f"{_named(was)} is deleted with {counted(was.total, 'item')}")
        return
    items = f"; {_changed_items(act, was, changed.batch, changed.changed)}" if act.items else ""
    screen.note(f"{_named(was)} is {_status(changed.batch)}{items}")
    for task in changed.refused[:_REFUSED_SHOWN]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")


def _changed_items(act: Act, was: Batch, batch: Batch, changed: int) -> str:
    if not isinstance(act.act, Cancel):
        return f"{counted(changed, 'item')} {act.items}"
    ended = batch.counts.get(State.CANCELLED, 0) - was.counts.get(State.CANCELLED, 0)
    asked = batch.counts.get(State.RUNNING, 0)
    return f"{counted(ended, 'item')} {act.items}" + (f", {asked:,} asked to stop" if asked else "")


def _status(batch: Batch) -> str:
    running = batch.counts.get(State.RUNNING, 0)
    match batch.status:
        case BatchStatus.QUEUED:
            return f"queued, place {batch.position}"
        case BatchStatus.RUNNING:
            return f"running: {counted(batch.left, 'item')} left"
        case BatchStatus.PAUSING | BatchStatus.CANCELLING:
            return f"{batch.status}: {counted(running, 'item')} still running"
        case BatchStatus.PAUSED:
            return f"paused with {counted(batch.left, 'item')} left"
    return batch.status.replace("_", " ")


def _question(act: Act, batches: Sequence[Batch]) -> str:
    if len(batches) == 1:
        return f"{act.verb} {_named(batches[0])} with {counted(batches[0].total, 'item')}?"
    total = sum(batch.total for batch in batches)
    return f"{act.verb} {len(batches)} batches with {counted(total, 'item')}?"


def _named(batch: Batch) -> str:
    return f'batch "{batch.name}"' if batch.name else f"batch {short(batch.id)}"
