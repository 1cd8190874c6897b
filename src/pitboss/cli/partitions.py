"""`pitboss partitions`: which worker owns which keys of a queue, and the table of a queue that has one."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import JsonOption, Shown, StoreOption, WatchOption, ask, now, screen_of, settings, show
from pitboss.cli.errors import Exit, show_error
from pitboss.cli.formatting import short_key
from pitboss.cli.screen import Column, Screen
from pitboss.model.errors import InvalidInput, PitbossError
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.states import State
from pitboss.model.text import counted, listed
from pitboss.operate.documents import partitions_document, validation_document
from pitboss.operate.partitions import (
    PartitionsReading,
    SlotReading,
    Unpinned,
    Validation,
    move_key,
    pin_key,
    read_partitions,
    unpin_key,
    validation,
)
from pitboss.operate.queues import partitioning_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pitboss.config import Loaded
    from pitboss.engines.protocol import Store
    from pitboss.model.pool import PoolSpec

app = typer.Typer(
    help="Show, validate and change which worker owns which keys of a queue.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue with partitions.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="A key of the queue.")]
_SLOTS = (
    Column("Slot"),
    Column("Worker", drop=3),
    Column("Node", drop=2),
    Column("State"),
    Column("Waiting", right=True),
    Column("Running", right=True),
    Column("Share", right=True),
    Column("Keys", right=True, drop=1),
    Column("Which", fills=True),
)
_UNOWNED = (Column("Keys"), Column("Waiting", right=True), Column("Why", fills=True))
_KEYS_SHOWN = 8
# "-1" is a slot that does not exist, and no option.
_NUMBERS = {"ignore_unknown_options": True}


@app.command("show")
def show_partitions(
    context: typer.Context,
    queue: QueueArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show the slots of a queue's workers with their keys and tasks, and the keys that no live slot has.

    \b
    Examples:
      pitboss partitions show targets
      pitboss partitions show targets --watch 2s
    """

    async def read(opened: "Store") -> Shown:
        found = await read_partitions(opened, queue, now(opened))
        return Shown(partitions_document(found), lambda screen: _draw(screen, found))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("validate")
def validate(
    context: typer.Context,
    queue: QueueArgument,
    target: Annotated[
        str | None,
        typer.Option("--app", metavar="TARGET", help="Check what this app declares: module:app, or a Python file."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the table of a queue: every key once, none missing. Exits with 1 if it is not valid.

    \b
    Examples:
      pitboss partitions validate targets
      pitboss partitions validate targets --app app.py

    Checks what app and settings declare, before it is stored; without an app, what is stored.
    """
    from pitboss.cli.app_description import AppNotLoaded, TableRefused

    screen = screen_of(context)
    try:
        found = _validated(screen, queue, target, store)
    except InvalidInput as error:
        if isinstance(error, AppNotLoaded) and not isinstance(error, TableRefused):
            raise
        show_error(screen, error.what, error.why, error.fix)
        raise typer.Exit(Exit.FAILED) from error
    if as_json:
        screen.document(validation_document(found))
    else:
        _draw_validation(screen, found)
    if not found.valid:
        raise typer.Exit(Exit.FAILED)


@app.command("move", context_settings=_NUMBERS)
def move(
    context: typer.Context,
    queue: QueueArgument,
    key: KeyArgument,
    slot: Annotated[str, typer.Argument(metavar="SLOT", help="Such as 3, or scrapers/3.")],
    store: StoreOption = None,
) -> None:
    """Give a key to another slot; it goes there as soon as none of its tasks runs.

    \b
    Examples:
      pitboss partitions move targets CA 3
      pitboss partitions move targets CA scrapers/3

    The leader may move it again when the work becomes uneven. A pin keeps it there.
    """
    screen = screen_of(context)
    moved = ask(screen, store, lambda one: move_key(one, queue, key, slot, now(one)), audit=acting(context))
    screen.note(_told(moved))


@app.command("pin", context_settings=_NUMBERS)
def pin(
    context: typer.Context,
    queue: QueueArgument,
    key: KeyArgument,
    slot: Annotated[str | None, typer.Argument(metavar="SLOT", help="Such as 3, or scrapers/3.")] = None,
    off: Annotated[bool, typer.Option("--off", help="End the pin: the key follows table or work again.")] = False,
    store: StoreOption = None,
) -> None:
    """Give a key to a slot and keep it there, whatever the table or the work says, until --off.

    \b
    Examples:
      pitboss partitions pin targets CA 3
      pitboss partitions pin targets CA --off
    """
    screen = screen_of(context)
    if (slot is None) is not off:
        raise InvalidInput(
            "a pin needs a slot, or --off" if slot is None else "--off takes no slot",
            why="a pin keeps the key in one slot, and --off ends that",
            fix=f"say pitboss partitions pin {queue} {key} 3, or --off",
        )
    if slot is None:
        ended = ask(screen, store, lambda one: unpin_key(one, queue, key, now(one)), audit=acting(context))
        screen.note(_told_unpinned(ended))
    else:
        pinned = ask(screen, store, lambda one: pin_key(one, queue, key, slot, now(one)), audit=acting(context))
        screen.note(f"{_told(pinned)}; it stays there until --off")


def _validated(screen: Screen, queue: str, target: str | None, store: str | None) -> Validation:
    """What app and settings declare of the queue, unless only a store is named; else what is stored."""
    found = settings(screen, app=target, store=store)
    known, pools = ({}, ()) if store is not None and target is None else _declared(found)
    if queue in known:
        spec = known[queue]
        return validation(queue, spec, None if spec.weights else _tasks(screen, store, queue), pools)
    if target is not None:
        raise InvalidInput(
            f'{target} does not declare partitions of queue "{queue}"',
            why=f"it declares those of {listed(sorted(known))}" if known else "it declares none",
            fix=f'write app.queue("{queue}", partition_by="{{…}}"), or [queues.{queue}] in the settings',
        )

    async def stored(opened: "Store") -> Validation:
        reading = await read_partitions(opened, queue, now(opened))
        return validation(queue, reading.spec, _unfinished(reading))

    return ask(screen, store, stored)


def _declared(found: "Loaded") -> "tuple[dict[str, Partitioning], Sequence[PoolSpec]]":
    """The queues with partitions of the app that the settings name, and of the settings themselves; and the worker
    pools of both, none without an app."""
    from pitboss import config
    from pitboss.cli.app_description import described
    from pitboss.cli.up_run import with_settings

    queues = config.queue_settings(found.settings, {}) if found.settings.app is None else {}
    pools: Sequence[PoolSpec] = ()
    if found.settings.app is not None:
        folder = found.folder if found.origins["app"].startswith("file") else None
        description = described(found.settings.app, folder=folder)
        queues = with_settings(found.settings, description).queues
        pools = config.pools(found.settings, description.pools)
    return {name: one.partitions for name, one in queues.items() if one.partitions is not None}, pools


def _tasks(screen: Screen, store: str | None, queue: str) -> dict[str, float]:
    """The unfinished tasks by key; none if there is no store yet, or it does not know the queue."""

    async def read(opened: "Store") -> dict[str, float]:
        return _unfinished(await read_partitions(opened, queue, now(opened)))

    try:
        return ask(screen, store, read)
    except PitbossError:
        return {}


def _unfinished(reading: PartitionsReading) -> dict[str, float]:
    return {key: float(one.unfinished) for key, one in reading.keys.items()}


def _draw_validation(screen: Screen, found: Validation) -> None:
    if found.valid:
        screen.line(f"✓ Partitions of {found.queue} are valid", "green")
    else:
        screen.line(f"✗ Partitions of {found.queue} are not valid", "bold red")
    for text in found.facts or found.problems:
        screen.line(f"  - {text}")
    for text in found.warnings:
        screen.line(f"  ! {text}", "yellow")


def _draw(screen: Screen, found: PartitionsReading) -> None:
    waiting = found.queue.waiting
    screen.fields([("queue", found.queue.name), ("partitions", partitioning_text(found.spec))])
    most = found.queue.max_per_key
    screen.fields([("per key", None if most is None else f"at most {counted(most, 'task')} at once")])
    held = found.queue.counts.get(State.HELD, 0)
    apart = f" ({held:,} of them held)" if held else ""
    screen.fields([("tasks", f"{waiting:,} waiting{apart}, {found.queue.counts.get(State.RUNNING, 0):,} running")])
    screen.fields([("largest slot", f"{found.skew:.2f} times the mean" if any(s.share for s in found.slots) else None)])
    if found.slots:
        screen.line()
        screen.table(_SLOTS, [_row(one) for one in found.slots])
    else:
        screen.note("no worker has a slot yet: start one with pitboss up")
    if any(one.pinned is not None for one in found.keys.values()):
        screen.note("* pinned")
    if found.moving:
        screen.heading("Moving")
        for one in found.moving:
            screen.line(_told(one))
    if found.unowned:
        screen.heading("Keys without a live slot")
        screen.table(_UNOWNED, _unowned_rows(found))


def _unowned_rows(found: PartitionsReading) -> list[list[str]]:
    """A row for each reason."""
    rows: dict[str, list[Partition]] = {}
    for one in found.unowned:
        rows.setdefault(one.why.says, []).append(one.key)
    return [
        [listed([short_key(one.key) for one in keys]), f"{sum(one.waiting for one in keys):,}", says]
        for says, keys in rows.items()
    ]


def _row(slot: SlotReading) -> list[str]:
    names = [f"{short_key(one.key)}*" if one.pinned is not None else short_key(one.key) for one in slot.keys]
    # A second manager on a host, and one with --only, have the node's name with an addition.
    where = slot.node if slot.host in ("", slot.node.partition("~")[0]) else f"{slot.node} ({slot.host})"
    return [
        slot.name,
        slot.worker,
        where,
        slot.state,
        f"{sum(one.waiting for one in slot.keys):,}",
        f"{slot.count(State.RUNNING):,}",
        f"{slot.share:.0%}",
        f"{len(slot.keys):,}",
        listed(names, _KEYS_SHOWN),
    ]


def _told(one: Partition) -> str:
    if one.moving_to is None:
        return f"{one.key} belongs to {one.owner}" if one.owner is not None else f"{one.key} belongs to no slot yet"
    running = one.counts.get(State.RUNNING, 0)
    when = f"when {counted(running, 'running task')} {'ends' if running == 1 else 'end'}" if running else "in a moment"
    return f"{one.key} moves from {one.owner} to {one.moving_to} {when}"


def _told_unpinned(ended: Unpinned) -> str:
    one = ended.key
    if ended.pinned is None:
        return f"{one.key} was not pinned; {_told(one)}"
    if ended.home not in (None, one.owner):
        return f"{one.key} is not pinned any more; it goes back to {ended.home}, as the table says"
    return f"{one.key} is not pinned any more; {_told(one)}"
