"""`pitboss batches`: list, create, order, pause, cancel and requeue batches of tasks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import batch_creating
from pitboss.cli.auditing import acting
from pitboss.cli.batch_acting import Act, run
from pitboss.cli.batch_page import draw_batch, draw_batches, draw_lanes
from pitboss.cli.command import (
    JsonOption,
    LimitOption,
    ReasonOption,
    Shown,
    StoreOption,
    WatchOption,
    YesOption,
    ask,
    now,
    screen_of,
    show,
)
from pitboss.cli.errors import Exit
from pitboss.client.batches import checked_max_running, status_of
from pitboss.engines.capabilities import batches_of
from pitboss.model.batch import Cancel, Delete, Move, Pause, Requeue, Resume, Start
from pitboss.model.errors import InvalidInput
from pitboss.model.queue import checked_name
from pitboss.operate.batches import list_batches as read_list
from pitboss.operate.batches import read_batch
from pitboss.operate.documents import batch_document, batch_page_document, lane_document
from pitboss.operate.lookup import find_batch

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, create, order, pause, cancel and requeue batches of tasks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("create")(batch_creating.create)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Ids, or six or more of their last characters.")]
_PLACES = ("top", "up", "down", "bottom", "before")
_RESUMED = ("place", "top", "bottom")


@app.command("list")
def list_batches(
    context: typer.Context,
    statuses: Annotated[
        list[str] | None, typer.Argument(metavar="STATUS", help="Only these, such as running or queued.")
    ] = None,
    limit: LimitOption = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List batches: the running, the queued, the paused, then those that have ended.

    \b
    Examples:
      pitboss batches list
      pitboss batches list running queued --watch 1s
    """
    wanted = [status_of(status) for status in statuses or ()]

    async def read(opened: "Store") -> Shown:
        moment = now(opened)
        found = await read_list(opened, moment, wanted, limit)
        document = {"batches": [batch_document(reading) for reading in found]}
        return Shown(document, lambda screen: draw_batches(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_batch(
    context: typer.Context,
    batch: IdArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show one batch: its progress, what it waits for, its errors by cause.

    \b
    Examples:
      pitboss batches show 8b1f2c9e64a0
      pitboss batches show 8b1f2c9e64a0 --watch 1s
    """

    async def read(opened: "Store") -> Shown:
        moment = now(opened)
        page = await read_batch(opened, batch, moment)
        return Shown(batch_page_document(page), lambda screen: draw_batch(screen, page, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("start")
def start(context: typer.Context, ids: IdsArgument, store: StoreOption = None) -> None:
    """Run batches now, whether or not their lane has a free slot.

    \b
    Examples:
      pitboss batches start 8b1f2c9e64a0
    """
    run(context, store, ids, Act("Start", Start()))


@app.command("pause")
def pause(context: typer.Context, ids: IdsArgument, reason: ReasonOption = "", store: StoreOption = None) -> None:
    """Start no more items of these batches. Running items finish, and the batches keep their place in line.

    \b
    Examples:
      pitboss batches pause 8b1f2c9e64a0
    """
    run(context, store, ids, Act("Pause", Pause(reason)))


@app.command("resume")
def resume(
    context: typer.Context,
    ids: IdsArgument,
    at: Annotated[str, typer.Option("--at", metavar="PLACE", help="place (its old one), top or bottom.")] = "place",
    store: StoreOption = None,
) -> None:
    """Put paused batches back in line; they continue with the items that are left.

    \b
    Examples:
      pitboss batches resume 8b1f2c9e64a0
      pitboss batches resume 8b1f2c9e64a0 --at top
    """
    match at:
        case "place" | "top" | "bottom":
            run(context, store, ids, Act("Resume", Resume(at)))
        case _:
            raise _no_place(at, _RESUMED, "--at")


@app.command("cancel")
def cancel(
    context: typer.Context,
    ids: IdsArgument,
    reason: Annotated[str, typer.Option("--reason", help="Stored with the items.")] = "cancelled from the command line",
    store: StoreOption = None,
    sure: YesOption = False,
) -> None:
    """Cancel the waiting items of these batches, and ask running items to stop. Results are kept.

    \b
    Examples:
      pitboss batches cancel 8b1f2c9e64a0 --reason 'wrong list'
    """
    run(context, store, ids, Act("Cancel", Cancel(reason), items="cancelled", asks=True), sure=sure)


@app.command("move")
def move(
    context: typer.Context,
    batch: IdArgument,
    to: Annotated[str, typer.Argument(metavar="PLACE", help="top, up, down, bottom, or before.")],
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="With before: the batch that follows it.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Move a batch within its lane. A running batch is not moved.

    \b
    Examples:
      pitboss batches move 8b1f2c9e64a0 top
      pitboss batches move 8b1f2c9e64a0 before 77d9e1fb02c4
    """
    if (to == "before") is (other is None) and to in _PLACES:
        raise InvalidInput(
            "before needs another batch" if other is None else f"{to} takes no other batch",
            why="only before names another batch",
            fix="say pitboss batches move ID before OTHER, or one of top, up, down, bottom alone",
        )

    async def act(opened: "Store") -> Act:
        match to:
            case "top" | "up" | "down" | "bottom":
                return Act("Move", Move(to))
            case "before" if other is not None:
                return Act("Move", Move(to, (await find_batch(opened, other)).id))
        raise _no_place(to, _PLACES, "PLACE")

    run(context, store, [batch], act)


@app.command("requeue")
def requeue(
    context: typer.Context,
    ids: IdsArgument,
    error: Annotated[
        str | None, typer.Option("--error", help="Only failures of this exception type, category or group.")
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Also cancelled items.")] = False,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Do not reset the number of attempts.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Run failed items again. A batch that has ended goes to the end of the line.

    \b
    Examples:
      pitboss batches requeue 8b1f2c9e64a0
      pitboss batches requeue 8b1f2c9e64a0 --error TimeoutError
    """
    act = Requeue(error, cancelled, keep_attempts)
    total = run(context, store, ids, Act("Requeue", act, items="set to run again"))
    if not total.changed and not total.refused:
        raise typer.Exit(Exit.NOT_FOUND)
    if total.refused:
        raise typer.Exit(Exit.REFUSED)


@app.command("delete")
def delete(
    context: typer.Context,
    ids: IdsArgument,
    force: Annotated[bool, typer.Option("--force", help="Also if it has not ended, as long as no item runs.")] = False,
    store: StoreOption = None,
    sure: YesOption = False,
) -> None:
    """Delete batches with their items and results. This cannot be undone.

    \b
    Examples:
      pitboss batches delete 8b1f2c9e64a0
      pitboss batches delete 8b1f2c9e64a0 --force --yes
    """
    run(context, store, ids, Act("Delete", Delete(force), items="deleted", asks=True), sure=sure)


@app.command("lanes")
def lanes(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The lane.")] = None,
    max_running: Annotated[
        int | None, typer.Option("--max-running", metavar="N", help="How many of its batches run at the same time.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List the lanes in which batches queue, or change how many batches of one lane run at the same time.

    \b
    Examples:
      pitboss batches lanes
      pitboss batches lanes default --max-running 2
    """
    screen = screen_of(context)
    if max_running is not None:
        if name is None:
            raise InvalidInput(
                "no lane was named", why="--max-running changes one lane", fix="name it before the option"
            )
        lane_name, most = checked_name(name, "lane"), checked_max_running(max_running)
        lane = ask(
            screen,
            store,
            lambda opened: batches_of(opened).change_lane(lane_name, most),
            create=True,
            audit=acting(context),
        )
        screen.note(f'lane "{lane.name}": at most {lane.max_running:,} at a time, {lane.running:,} running now')
        return

    async def read(opened: "Store") -> Shown:
        found = [lane for lane in await batches_of(opened).lanes() if name in (None, lane.name)]
        return Shown({"lanes": [lane_document(lane) for lane in found]}, lambda screen: draw_lanes(screen, found))

    show(screen, store, read, as_json=as_json, watch=watch)


def _no_place(text: str, known: Sequence[str], what: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r:.40} is not a place in line", why=f"{what} is one of {', '.join(known)}", fix="say one of these"
    )
