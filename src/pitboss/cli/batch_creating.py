"""`pitboss batches create`: many tasks of one kind from a file, as one batch."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.enqueueing import decoded_params, known_handler
from pitboss.cli.options import DryRunOption, JsonOption, StoreOption, screen_of
from pitboss.cli.orders import me
from pitboss.cli.screen import Screen
from pitboss.cli.store import ask
from pitboss.cli.words import counted, one_line, short
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Batch, BatchStatus, NewBatch
from pitboss.model.canonical import to_json
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo, checked_name

if TYPE_CHECKING:
    from pitboss.client.options import Options
    from pitboss.engines.protocol import Store
    from pitboss.model.task import NewTask

_SAMPLE = 5


def create(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The task that each item runs.")],
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The items; - reads stdin.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="auto, jsonl or csv.")] = "auto",
    name: Annotated[str, typer.Option("--name", help="What people call the batch.")] = "",
    lane: Annotated[str, typer.Option("--lane", help="The line that it stands in.")] = "default",
    paused: Annotated[bool, typer.Option("--paused", help="It waits to be resumed instead of for its turn.")] = False,
    on_complete: Annotated[
        str | None, typer.Option("--on-complete", metavar="TASK", help="Put this task when it has ended.")
    ] = None,
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="Kept with the batch.")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue than the handler's.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Lower runs first; 0 is usual.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    dry: DryRunOption = False,
) -> None:
    """Store a batch of tasks, all of them or none. Prints its id.

    \b
    Examples:
      pitboss batches create check --file profiles.jsonl --name 'night run'
      pitboss batches create check --file profiles.csv --lane slow --paused
      generate | pitboss batches create check --file - --on-complete report

    Each line of JSON Lines is an object with the parameters of one item; the first line of CSV names them.
    """
    screen = screen_of(context)
    new = _described(name, lane, data, paused=paused)
    given = {key: value for key, value in {"priority": priority, "tags": tags}.items() if value is not None}

    async def work(opened: "Store") -> None:
        info = await known_handler(opened, handler)
        params = _read(screen, file, form, info)
        if dry:
            _tell_dry(screen, info, params)
            return
        document = await _created(screen, opened, new, info, params, queue, given, on_complete)
        screen.document(document) if as_json else screen.line(document["batch"]["id"])

    ask(screen, store, work, create=True)


def _described(name: str, lane: str, data: str, *, paused: bool) -> NewBatch:
    """The batch, still without an id."""
    from pitboss.client.batches import checked_title

    return NewBatch(
        id="",
        name=checked_title(name),
        lane=checked_name(lane, "lane"),
        data=to_json(decoded_params(data), what="data of the batch"),
        by=me(),
        paused=paused,
    )


def _read(screen: Screen, file: str, form: str, info: HandlerInfo) -> list[str]:
    from pitboss.cli.batch_files import checked_items, read_items
    from pitboss.client.schema import checker

    with screen.err.status(f"reading {file}") if screen.err.is_terminal else _nothing():
        return checked_items(read_items(file, form, info), checker(info), file)


async def _created(
    screen: Screen,
    store: "Store",
    new: NewBatch,
    info: HandlerInfo,
    params: list[str],
    queue: str | None,
    given: dict[str, Any],
    on_complete: str | None,
) -> dict[str, Any]:
    import msgspec

    from pitboss import wiring
    from pitboss.cli.batch_page import batch_document
    from pitboss.cli.batch_reading import surveyed
    from pitboss.client.client import Client
    from pitboss.client.options import Options

    clock = wiring.SystemClock()
    ids = IdMaker(clock.now, wiring.randbits())
    options = Options().changed(**given)
    place = checked_name(queue or info.queue, "queue")
    items = [_task(options, ids(), info.name, place, one) for one in params]
    batch = ids()
    following = None if on_complete is None else await _completion(store, ids(), on_complete, batch)
    desk = batches_of(store)
    new = msgspec.structs.replace(new, id=batch, on_complete=following)
    with screen.err.status(f"storing {counted(len(items), 'item')}") if screen.err.is_terminal else _nothing():
        made = await Client(store, clock).patiently(lambda: desk.create_batch(new, items))
    _tell(screen, made, len(items))
    return {"batch": batch_document(await surveyed(store, [made]), made)}


def _task(options: "Options", task_id: str, handler: str, queue: str, params: str) -> "NewTask":
    return options.task(task_id=task_id, handler=handler, queue=queue, params=params, parent=None)


async def _completion(store: "Store", task_id: str, name: str, batch: str) -> "NewTask":
    from pitboss.client.options import Options
    from pitboss.client.schema import checked

    info = await known_handler(store, name)
    params = checked(info, {"batch": batch, "status": BatchStatus.DONE.value})
    return _task(Options(), task_id, info.name, info.queue, params)


def _tell(screen: Screen, made: Batch, asked: int) -> None:
    where = f", place {made.position}" if made.position else ""
    screen.note(f"batch {short(made.id)} with {counted(made.total, 'item')} is {made.status}{where}")
    if made.total < asked:
        screen.note(f"{counted(asked - made.total, 'item')} left out: an unfinished task has the same unique key")


def _tell_dry(screen: Screen, info: HandlerInfo, params: list[str]) -> None:
    for text in params[:_SAMPLE]:
        screen.note(f"  {info.name}  {one_line(text, 80)}")
    if len(params) > _SAMPLE:
        screen.note(f"  … and {len(params) - _SAMPLE:,} more")
    screen.note(f"would store a batch of {counted(len(params), 'item')}; nothing was stored")


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()
