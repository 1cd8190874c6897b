"""`pitboss operations`: bulk acts that go on by themselves; list, show, wait, change their rate and cancel."""

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    LimitOption,
    Shown,
    StoreOption,
    WatchOption,
    ask,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import age, local, short, when
from pitboss.cli.progress import bar, counting
from pitboss.cli.screen import Column, Screen
from pitboss.engines.capabilities import operations_of
from pitboss.model.duration import Moment
from pitboss.model.filter import written
from pitboss.model.limits import rate as rate_of
from pitboss.model.operation import Operation, OperationChange, OperationStatus, Verb
from pitboss.model.text import counted, one_line
from pitboss.operate.operations import (
    VERB_WORDS,
    failed_again_text,
    find_operation,
    handled,
    manager_lives,
    operation_document,
    progress_text,
    until_over,
)
from pitboss.operate.queues import rate_text

if TYPE_CHECKING:
    import asyncio

    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, show, wait for and cancel bulk acts on tasks.", no_args_is_help=True, rich_markup_mode=None
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")]
_COLUMNS = (
    Column("Id"),
    Column("Verb"),
    Column("Status"),
    Column("Progress"),
    Column("Done", right=True),
    Column("Refused", right=True, drop=3),
    Column("Failed again", right=True, drop=2),
    Column("Filter", fills=True),
    Column("By", drop=1),
    Column("Age", right=True),
)
_SHOWN = 5


@app.command("list")
def list_operations(
    context: typer.Context,
    running: Annotated[bool, typer.Option("--running", help="Only those that run.")] = False,
    limit: LimitOption = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List operations, newest first.

    \b
    Examples:
      pitboss operations list
      pitboss operations list --running --watch 1s
    """

    async def read(opened: "Store") -> Shown:
        statuses = [OperationStatus.RUNNING] if running else []
        found = await operations_of(opened).operations(statuses=statuses, limit=limit)
        document = {"operations": [operation_document(one) for one in found]}
        return Shown(document, lambda screen: _draw_list(screen, found, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_operation(
    context: typer.Context,
    operation: IdArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show one operation: how far it is, who began it, and what was refused.

    \b
    Examples:
      pitboss operations show a0d3f7 --watch 1s
    """

    async def read(opened: "Store") -> Shown:
        found = await find_operation(opened, operation)
        return Shown(operation_document(found), lambda screen: _draw(screen, found, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("wait")
def wait(context: typer.Context, operation: IdArgument, store: StoreOption = None) -> None:
    """Wait until an operation is over. Where no manager runs, this command performs it.

    \b
    Examples:
      pitboss operations wait a0d3f7
    """
    screen = screen_of(context)

    async def work(opened: "Store") -> Operation:
        return await follow(screen, opened, await find_operation(opened, operation))

    tell(screen, ask(screen, store, work))


@app.command("cancel")
def cancel(context: typer.Context, operation: IdArgument, store: StoreOption = None) -> None:
    """Let an operation touch no more tasks. What it has done stays so.

    \b
    Examples:
      pitboss operations cancel a0d3f7
    """
    change = OperationChange(cancel=True, by=operator())
    screen = screen_of(context)
    after, before = _change(context, screen, store, operation, change)
    if before.status is OperationStatus.RUNNING:
        screen.note(f"operation {short(after.id)} is cancelled; {progress_text(after)}")
    else:
        screen.note(f"operation {short(after.id)} is over already: {after.status}; {progress_text(after)}")


@app.command("rate")
def change_rate(
    context: typer.Context,
    operation: IdArgument,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="How fast, as in 10/s, or none.")],
    store: StoreOption = None,
) -> None:
    """Let an operation go on faster or slower.

    \b
    Examples:
      pitboss operations rate a0d3f7 50/s
      pitboss operations rate a0d3f7 none
    """
    change = OperationChange(by=operator(), rate=() if rate == "none" else rate_of(rate))
    screen = screen_of(context)
    after, _ = _change(context, screen, store, operation, change)
    if after.status is OperationStatus.RUNNING:
        screen.note(f"operation {short(after.id)} goes on at {_rate(after)}")
    else:
        screen.note(f"operation {short(after.id)} is over already: {after.status}; nothing was changed")


async def follow(screen: Screen, store: "Store", operation: Operation) -> Operation:
    """Wait for it with a bar. At Ctrl-C the operation goes on; a person may cancel it instead."""
    import asyncio

    stop = asyncio.Event()
    total = operation.matched or 0
    with _interruptible(stop), counting(screen, VERB_WORDS[operation.verb], total) as shown:
        operation = await until_over(store, operation, stop=stop, told=lambda one: shown(handled(one)))
    if stop.is_set() and operation.status is OperationStatus.RUNNING:
        return await _interrupted(screen, store, operation)
    return operation


def tell(screen: Screen, operation: Operation) -> None:
    """Say what was done; ends the command with the exit code for that."""
    before = "" if operation.status is OperationStatus.DONE else f"{operation.status}: "
    screen.note(before + progress_text(operation))
    for task in operation.refused_tasks[:_SHOWN]:
        why = "it must stay for now" if operation.verb is Verb.DISCARD else "another unfinished task has its unique key"
        screen.note(f"refused: {task} ({why})")
    if operation.status is not OperationStatus.DONE:
        raise typer.Exit(Exit.FAILED)
    if operation.refused:
        raise typer.Exit(Exit.REFUSED)


async def tell_begun(screen: Screen, store: "Store", operation: Operation) -> None:
    """It goes on without this command."""
    name = short(operation.id)
    screen.note(f"operation {name} goes on in the background; {progress_text(operation)}")
    screen.note(f"look at it: pitboss operations show {name}; cancel it: pitboss operations cancel {name}")
    if not await manager_lives(store):
        screen.note(f"no manager runs: it waits for one, or for pitboss operations wait {name}")


async def _interrupted(screen: Screen, store: "Store", operation: Operation) -> Operation:
    if screen.interactive and typer.confirm("Cancel the rest? If not, it goes on in the background.", err=True):
        change = OperationChange(cancel=True, by=operator())
        return await operations_of(store).change_operation(operation.id, change)
    await tell_begun(screen, store, operation)
    raise typer.Exit(Exit.INTERRUPTED)


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


def _change(
    context: typer.Context, screen: Screen, store: str | None, operation: str, change: OperationChange
) -> tuple[Operation, Operation]:
    async def work(opened: "Store") -> tuple[Operation, Operation]:
        found = await find_operation(opened, operation)
        return await operations_of(opened).change_operation(found.id, change), found

    return ask(screen, store, work, audit=acting(context))


def _rate(operation: Operation) -> str:
    return rate_text(operation.rate) or "full speed"


def _draw_list(screen: Screen, operations: list[Operation], moment: Moment) -> None:
    if not operations:
        screen.note("no operations")
        return
    rows = [
        [
            short(one.id),
            one.verb,
            one.status,
            _percent(screen, one),
            f"{one.done + one.asked:,}",
            f"{one.refused:,}" if one.refused else "",
            failed_again_text(one) if one.failed_again else "",
            one_line(written(one.wanted)),
            one.by or "",
            age(one.began, moment),
        ]
        for one in operations
    ]
    screen.table(_COLUMNS, rows)


def _percent(screen: Screen, operation: Operation) -> str:
    if operation.status is OperationStatus.DONE:
        return bar(screen, 100)
    return bar(screen, min(99, handled(operation) * 100 // operation.matched)) if operation.matched else ""


def _draw(screen: Screen, operation: Operation, moment: Moment) -> None:
    of = "" if operation.matched is None else f" of {operation.matched:,}{'+' if operation.more else ''}"
    screen.fields(
        [
            ("operation", operation.id),
            ("verb", operation.verb),
            ("status", f"{operation.status}{f': {operation.why}' if operation.why else ''}"),
            ("filter", one_line(written(operation.wanted))),
            ("done", f"{operation.done + operation.asked:,}{of} {_percent(screen, operation)}".strip()),
            ("asked to stop", f"{operation.asked:,}" if operation.asked else None),
            ("refused", f"{operation.refused:,}" if operation.refused else None),
            ("failed again", failed_again_text(operation) if operation.failed_again else None),
            ("rate", rate_text(operation.rate) or None),
            ("stops at", _stops_at(operation)),
            ("by", operation.by),
            ("began", when(operation.began, moment)),
            ("ended", None if operation.ended_at is None else local(operation.ended_at)),
        ]
    )
    for task in operation.refused_tasks[:_SHOWN]:
        screen.note(f"refused: {task}")


def _stops_at(operation: Operation) -> str | None:
    most = operation.stop_on_failures
    return None if most is None else counted(most, "failure")
