"""`pitboss queues`: lanes, and what is allowed in them."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pitboss.cli.documents import queue_document
from pitboss.cli.options import JsonOption, StoreOption, WatchOption, screen_of
from pitboss.cli.orders import me
from pitboss.cli.screen import Screen
from pitboss.cli.status import QUEUE_COLUMNS, queue_row
from pitboss.cli.store import Shown, ask, show
from pitboss.cli.words import counted
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.limits import rate as rate_of
from pitboss.model.queue import Queue, QueueChange, checked_name
from pitboss.model.states import State

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="Look at queues; pause, resume and limit them.", no_args_is_help=True, rich_markup_mode=None)
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of queues.")]
_NONE = "none"


@app.command("list")
def list_queues(
    context: typer.Context, store: StoreOption = None, as_json: JsonOption = False, watch: WatchOption = None
) -> None:
    """List the queues with the number of their tasks by state.

    \b
    Examples:
      pitboss queues list
      pitboss queues list --watch 2s
    """
    show(screen_of(context), store, _read, as_json=as_json, watch=watch)


@app.command("pause")
def pause(context: typer.Context, names: NamesArgument, store: StoreOption = None) -> None:
    """Start no more tasks of these queues. What runs goes on, and tasks can still be put.

    \b
    Examples:
      pitboss queues pause mail
      pitboss queues resume mail
    """
    screen = screen_of(context)
    change = QueueChange(paused=True, by=me())
    for queue in ask(screen, store, lambda opened: _changed(opened, names, change)):
        running = queue.counts.get(State.RUNNING, 0)
        rest = f"; {counted(running, 'task')} still running" if running else ""
        screen.note(f'queue "{queue.name}" is paused with {counted(queue.waiting, "waiting task")}{rest}')


@app.command("resume")
def resume(context: typer.Context, names: NamesArgument, store: StoreOption = None) -> None:
    """Start tasks of these queues again.

    \b
    Examples:
      pitboss queues resume mail
    """
    screen = screen_of(context)
    change = QueueChange(paused=False, by=me())
    for queue in ask(screen, store, lambda opened: _changed(opened, names, change)):
        screen.note(f'queue "{queue.name}" goes on with {counted(queue.waiting, "waiting task")}')


@app.command("limit")
def limit(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The queue; it comes into being if need be.")],
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/TIME", help='Starts per time, as in 20/min; "none" lifts it.')
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="N", help='Waiting tasks at most; "none" lifts it.')
    ] = None,
    store: StoreOption = None,
) -> None:
    """Limit how fast a queue's tasks start, and how many may wait.

    \b
    Examples:
      pitboss queues limit mail --rate 20/min
      pitboss queues limit mail --rate '2/s, 1000/h' --capacity 5000
      pitboss queues limit mail --rate none --capacity none

    A rate holds over all managers together: in no span of that time, wherever it begins, start more tasks.
    """
    screen = screen_of(context)
    change = _limits(rate, capacity)
    checked_name(name, "queue")
    queue = ask(screen, store, lambda opened: opened.change_queue(name, change), create=True)
    screen.note(f'queue "{queue.name}": {_limits_of(queue)}')


async def _read(store: "Store") -> Shown:
    found = await store.queues()
    document = {"queues": [queue_document(queue) for queue in found]}
    return Shown(document, lambda screen: _draw(screen, found))


def _draw(screen: Screen, queues: list[Queue]) -> None:
    if not queues:
        screen.note("there are no queues yet: a queue comes into being with its first task")
        return
    screen.table(QUEUE_COLUMNS, [queue_row(queue) for queue in queues])


async def _changed(store: "Store", names: list[str], change: QueueChange) -> list[Queue]:
    """Only queues that exist: pausing a misspelt one would go unnoticed."""
    known = {queue.name: queue for queue in await store.queues()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"there is no queue {', '.join(unknown)}",
            why=f"the queues are {', '.join(known) or 'none yet'}",
            fix="check the name; nothing was changed",
        )
    changed = [await store.change_queue(name, change) for name in names]
    return [msgspec.structs.replace(queue, counts=known[queue.name].counts) for queue in changed]


def _limits(rate: str | None, capacity: str | None) -> QueueChange:
    if rate is None and capacity is None:
        raise InvalidInput(
            "no limit was given", why="there is nothing to change", fix="say --rate 20/min, --capacity 1000, or both"
        )
    return QueueChange(
        rate=msgspec.UNSET if rate is None else () if rate == _NONE else rate_of(rate),
        capacity=msgspec.UNSET if capacity is None else None if capacity == _NONE else _capacity(capacity),
    )


def _capacity(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise InvalidInput(
            f"{text!r:.40} is not a capacity", why="it is a whole number above 0", fix='say --capacity 1000, or "none"'
        )
    return number


def _limits_of(queue: Queue) -> str:
    limits = queue_row(queue)[-1]
    return limits or "no limits"
