"""`pitboss tasks`: find, look at, enqueue, repeat and cancel."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import bulk, enqueueing
from pitboss.cli.documents import attempt_document, task_document
from pitboss.cli.exits import Exit
from pitboss.cli.options import (
    AllOption,
    DryRunOption,
    FilterArgument,
    JsonOption,
    LimitOption,
    PickArgument,
    StoreOption,
    WatchOption,
    YesOption,
    screen_of,
)
from pitboss.cli.picking import filter_of, found, picked
from pitboss.cli.screen import Column, Screen
from pitboss.cli.store import Shown, ask, show
from pitboss.cli.task_page import draw_task
from pitboss.cli.words import age, one_line
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Page
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.queue import Changed, Queue
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.waiting import why

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="Find, look at, enqueue, retry and cancel tasks.", no_args_is_help=True, rich_markup_mode=None)
app.command("enqueue")(enqueueing.enqueue)
_COLUMNS = (
    Column("Id"),
    Column("State"),
    Column("Task", fills=True),
    Column("Queue", drop=2),
    Column("Tries", right=True, drop=3),
    Column("Age", right=True),
    Column("Note", drop=4),
)


@app.command("list")
def list_tasks(
    context: typer.Context,
    terms: FilterArgument = None,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Continue an earlier list.")] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List tasks, newest first.

    \b
    Examples:
      pitboss tasks list
      pitboss tasks list state:failed queue:mail
      pitboss tasks list 'task:fetch*' 'age:<1h' -tag:test --json
    """
    wanted = filter_of(terms)

    async def read(opened: "Store") -> Shown:
        page = await opened.find(wanted, limit=limit, after=after, oldest_first=oldest)
        document = {"tasks": [task_document(task) for task in page.tasks], "next": page.next}
        return Shown(document, lambda screen: _draw_list(screen, page))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_task(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show everything about one task: why it waits, params, result, every attempt with its traceback.

    \b
    Examples:
      pitboss tasks show 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks show a0d3f7 --watch 1s
    """

    async def read(opened: "Store") -> Shown:
        return await _task_page(opened, task)

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("retry")
def retry(
    context: typer.Context,
    picks: PickArgument = None,
    everything: AllOption = False,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Do not start to count attempts from zero.")
    ] = False,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
) -> None:
    """Run failed tasks again, and cancelled ones if they are named or asked for.

    \b
    Examples:
      pitboss tasks retry 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks retry queue:mail error:SMTPError --dry-run
      pitboss tasks retry state:cancelled tag:eu --yes
    """
    wanted = picked(picks, everything=everything)
    # A filter means the failures; who wants back what somebody has cancelled must say so.
    asked = any(term.field in ("state", "id") for term in wanted.terms)
    states = (State.FAILED, State.CANCELLED) if asked else (State.FAILED,)

    async def step(opened: "Store", chosen: Filter, limit: int) -> Changed:
        return await opened.retry(chosen, keep_attempts=keep_attempts, limit=limit)

    _act(context, store, bulk.Act("Retry", "set to run again", states, step), wanted, sure=sure, dry=dry)


@app.command("cancel")
def cancel(
    context: typer.Context,
    picks: PickArgument = None,
    everything: AllOption = False,
    reason: Annotated[str, typer.Option("--reason", help="Stored with the tasks.")] = "cancelled from the command line",
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
) -> None:
    """Cancel waiting tasks, and ask running ones to stop.

    \b
    Examples:
      pitboss tasks cancel 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks cancel queue:mail 'age:>1d' --dry-run
      pitboss tasks cancel state:scheduled tag:test --yes --reason 'wrong list'
    """
    wanted = picked(picks, everything=everything)
    states = (State.HELD, State.SCHEDULED, State.PENDING, State.RUNNING)

    async def step(opened: "Store", chosen: Filter, limit: int) -> Changed:
        return await opened.cancel(chosen, reason=reason, limit=limit)

    _act(context, store, bulk.Act("Cancel", "cancelled", states, step), wanted, sure=sure, dry=dry)


def _act(context: typer.Context, store: str | None, act: bulk.Act, wanted: Filter, *, sure: bool, dry: bool) -> None:
    screen = screen_of(context)
    total = ask(screen, store, lambda opened: bulk.run(screen, opened, act, wanted, sure=sure, dry=dry))
    if not total.matched:
        screen.note(f"no {' or '.join(act.states)} task matches; nothing was changed")
        raise typer.Exit(Exit.NOT_FOUND)
    bulk.tell(screen, act, total, dry=dry)
    if total.refused:
        raise typer.Exit(Exit.REFUSED)


def _draw_list(screen: Screen, page: Page) -> None:
    from pitboss import wiring

    now = wiring.SystemClock().now()
    if not page.tasks:
        screen.note("no tasks match")
        return
    screen.table(_COLUMNS, [_row(task, now) for task in page.tasks])
    if page.next:
        screen.note(f"there are more: repeat with --after {page.next}")


def _row(task: Task, now: int) -> list[str]:
    tries = str(task.attempts) if task.attempts else ""
    return [task.id, task.state, task.handler, task.queue, tries, age(task.created_at, now), _note(task)]


def _note(task: Task) -> str:
    if task.state is State.RUNNING and task.progress is not None:
        return f"{task.progress} % {one_line(task.note or '', 40)}".strip()
    if task.error is not None and task.state is not State.COMPLETED:
        return one_line(f"{task.error.type or task.error.category}: {task.error.message}", 60)
    return one_line(task.reason or "", 60)


async def _batch_of(store: "Store", task: Task) -> str | None:
    batches = capabilities(store).batches
    if task.batch is None or batches is None:
        return None
    batch = next(iter(await batches.batches([task.batch])), None)
    return None if batch is None else batch.status


async def _shortage_of(store: "Store", queue: Queue | None, now: Moment) -> str | None:
    if queue is None or queue.resources is None:
        return None
    from pitboss.cli.batch_reading import pool_views

    views = await pool_views(store, {queue.resources})
    return next((view.shortage(now) for view in views.values()), None)


async def _task_page(store: "Store", piece: str) -> Shown:
    from pitboss import wiring

    task = await found(store, piece)
    attempts = await store.attempts(task.id)
    queue = next((one for one in await store.queues() if one.name == task.queue), None)
    now = wiring.SystemClock().now()
    because = why(
        task,
        queue=queue,
        sessions=await store.sessions(),
        now=now,
        batch=await _batch_of(store, task),
        shortage=await _shortage_of(store, queue, now),
    )
    document = {
        "task": task_document(task),
        "why": because,
        "attempts": [attempt_document(attempt) for attempt in attempts],
    }
    return Shown(document, lambda screen: draw_task(screen, task, attempts, because, now))
