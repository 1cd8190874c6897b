"""What operators do to batches: ask where much would be lost, do it in portions with a bar, and say what came of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pitboss.cli.bulk import confirm
from pitboss.cli.screen import Screen
from pitboss.cli.store import ask
from pitboss.cli.words import counted, short
from pitboss.client.batch_handle import PORTION, act_in_portions
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchStatus
from pitboss.model.states import State

if TYPE_CHECKING:
    from pitboss.engines.protocol import Batches, Store

_REFUSED_SHOWN = 5


class Order(NamedTuple):
    """An act in the words that are shown. `items` says what becomes of items; `asks`: a person has to say yes."""

    verb: str
    act: BatchAct
    items: str = ""
    asks: bool = False


class Total(NamedTuple):
    changed: int = 0
    refused: int = 0


def carried_out(
    screen: Screen,
    store: str | None,
    ids: Sequence[str],
    order: "Order | Callable[[Store], Awaitable[Order]]",
    *,
    sure: bool = False,
) -> Total:
    """Do it to each of the batches, which are all looked up first: a misspelt one stops it before anything is done."""

    from pitboss.cli.batch_reading import found_batch

    async def work(opened: "Store") -> Total:
        desk = batches_of(opened)
        chosen = order if isinstance(order, Order) else await order(opened)
        found = [await found_batch(desk, one) for one in ids]
        if chosen.asks and not sure:
            confirm(screen, _question(chosen, found), otherwise="repeat with --yes")
        done = [await _done(screen, desk, chosen, batch) for batch in found]
        return Total(sum(one.changed for one in done), sum(len(one.refused) for one in done))

    return ask(screen, store, work)


async def _done(screen: Screen, desk: "Batches", order: Order, batch: Batch) -> BatchChanged:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    hidden = not screen.err.is_terminal or not order.items or batch.total <= PORTION
    with Progress(*columns, console=screen.err, transient=True, disable=hidden) as bar:
        shown = bar.add_task(f"{order.verb} {_named(batch)}", total=batch.total)
        changed = await act_in_portions(
            desk, batch.id, order.act, lambda total: bar.update(shown, completed=total.changed)
        )
    _tell(screen, order, batch, changed)
    return changed


def _tell(screen: Screen, order: Order, was: Batch, changed: BatchChanged) -> None:
    items = f"{counted(changed.changed, 'item')} {order.items}" if order.items else ""
    if changed.batch is None:
        screen.note(f"{_named(was)} is deleted with {counted(was.total, 'item')}")
        return
    parts = [f"{_named(was)} is {_standing(changed.batch)}", items]
    screen.note("; ".join(part for part in parts if part))
    for task in changed.refused[:_REFUSED_SHOWN]:
        screen.note(f"refused: {task} (another unfinished task has its unique key)")


def _standing(batch: Batch) -> str:
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


def _question(order: Order, batches: Sequence[Batch]) -> str:
    if len(batches) == 1:
        return f"{order.verb} {_named(batches[0])} with {counted(batches[0].total, 'item')}?"
    total = sum(batch.total for batch in batches)
    return f"{order.verb} {len(batches)} batches with {counted(total, 'item')}?"


def _named(batch: Batch) -> str:
    return f'batch "{batch.name}"' if batch.name else f"batch {short(batch.id)}"
