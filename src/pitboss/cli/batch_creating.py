"""`pitboss batches create`: many tasks of one handler from a file, as one batch."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.command import DryRunOption, JsonOption, StoreOption, ask, id_maker, now, operator, screen_of
from pitboss.cli.enqueueing import decoded_object
from pitboss.cli.formatting import short
from pitboss.cli.progress import spinner
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput
from pitboss.model.text import counted, one_line

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store
    from pitboss.model.batch import Batch, NewBatch
    from pitboss.model.queue import HandlerInfo

_SAMPLE = 5


def create(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The handler that runs each item.")],
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The items; - reads stdin.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="auto, jsonl or csv.")] = "auto",
    name: Annotated[str, typer.Option("--name", help="A name for people.")] = "",
    lane: Annotated[str, typer.Option("--lane", help="The lane in which it queues.")] = "default",
    paused: Annotated[bool, typer.Option("--paused", help="Wait to be resumed instead of queueing.")] = False,
    on_complete: Annotated[
        str | None, typer.Option("--on-complete", metavar="HANDLER", help="Enqueue this when the batch has ended.")
    ] = None,
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="Stored with the batch.")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue than the handler's.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Lower runs first; the default is 0.")] = None,
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
    from pitboss.operate.batch_items import parse_items
    from pitboss.operate.enqueue import described_batch
    from pitboss.operate.lookup import find_handler

    screen = screen_of(context)
    make_id = id_maker()
    batch = described_batch(make_id(), name=name, lane=lane, data=decoded_object(data), by=operator(), paused=paused)
    given = {"on_complete": on_complete, "queue": queue, "priority": priority, "tags": tags}
    options = {key: value for key, value in given.items() if value is not None}

    async def work(opened: "Store") -> None:
        info = await find_handler(opened, handler)
        with spinner(screen, f"reading {file}"):
            params = parse_items(_text(file), form, info, "stdin" if file == "-" else file)
        if dry:
            _tell_dry(screen, info, params)
        else:
            await _store(screen, opened, info, params, make_id, batch, options, as_json=as_json)

    ask(screen, store, work, create=True)


async def _store(
    screen: Screen,
    store: "Store",
    info: "HandlerInfo",
    params: list[str],
    make_id: Callable[[], str],
    new: "NewBatch",
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from pitboss.client.client import Client
    from pitboss.operate.batches import read_batches
    from pitboss.operate.documents import batch_document
    from pitboss.operate.enqueue import create_batch

    client = Client(store, store.clock)
    with spinner(screen, f"storing {counted(len(params), 'item')}"):
        batch = await create_batch(client, info, params, make_id, new, **options)
    _tell(screen, batch, len(params))
    if as_json:
        (reading,) = await read_batches(store, [batch], now(store))
        screen.document({"batch": batch_document(reading)})
    else:
        screen.line(batch.id)


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{'stdin' if file == '-' else file} cannot be read",
            why=getattr(error, "strerror", None) or "it is not text in UTF-8",
            fix="check the path and the permissions of the file; - reads stdin",
        ) from error


def _tell(screen: Screen, batch: "Batch", asked: int) -> None:
    where = f", place {batch.position}" if batch.position else ""
    screen.note(f"batch {short(batch.id)} with {counted(batch.total, 'item')} is {batch.status}{where}")
    if batch.total < asked:
        screen.note(f"{counted(asked - batch.total, 'item')} left out: an unfinished task has the same unique key")


def _tell_dry(screen: Screen, info: "HandlerInfo", params: list[str]) -> None:
    for text in params[:_SAMPLE]:
        screen.note(f"  {info.name}  {one_line(text, 80)}")
    if len(params) > _SAMPLE:
        screen.note(f"  … and {len(params) - _SAMPLE:,} more")
    screen.note(f"would store a batch of {counted(len(params), 'item')}; nothing was stored")
