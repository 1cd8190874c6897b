"""`pitboss tasks`: list, show, enqueue, change, retry and cancel."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import bulk, changing, enqueueing
from pitboss.cli.bulk import TasksArgument, WaitOption
from pitboss.cli.command import (
    AllOption,
    DryRunOption,
    FilterArgument,
    JsonOption,
    LimitOption,
    Shown,
    StoreOption,
    WatchOption,
    YesOption,
    id_maker,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.formatting import age, short_key, when
from pitboss.cli.screen import Column, Screen
from pitboss.cli.task_page import draw_stack, draw_task
from pitboss.engines.protocol import MOST_READ, Page
from pitboss.model.duration import Moment
from pitboss.model.operation import Verb
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import one_line
from pitboss.operate.documents import stack_document, task_document, task_page_document, utc
from pitboss.operate.stacks import read_stack
from pitboss.operate.tasks import (
    CANCELLABLE,
    read_task,
    retryable,
)

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, show, enqueue, change, retry and cancel tasks.", no_args_is_help=True, rich_markup_mode=None
)
app.command("enqueue")(enqueueing.enqueue)
app.command("change")(changing.change)
# Shown only where a task has one.
_PARTITION = Column("Partition", drop=1)
_COLUMNS = (
    Column("Id"),
    Column("State"),
    Column("Task", fills=True),
    Column("Queue", drop=2),
    _PARTITION,
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
    wanted = bulk.filter_of(terms)

    async def read(opened: "Store") -> Shown:
        page = await opened.find(wanted, limit=limit, after=after, oldest_first=oldest)
        document = {
            "tasks": [task_document(task) for task in page.tasks],
            "next": page.next,
            "covered": utc(page.covered),
        }
        return Shown(document, lambda screen: _draw_list(screen, page, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_task(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show one task: why it waits, params, result, every attempt with its traceback.

    \b
    Examples:
      pitboss tasks show 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks show a0d3f7 --watch 1s
    """

    async def read(opened: "Store") -> Shown:
        moment = now(opened)
        page = await read_task(opened, task, moment)
        return Shown(task_page_document(page), lambda screen: draw_task(screen, page, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("stack")
def stack(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a running task is: file, line and function of each frame, the innermost last.

    \b
    Examples:
      pitboss tasks stack a0d3f7

    Its manager answers within a second or two, also if the task blocks the event loop of its worker.
    """

    async def read(opened: "Store") -> Shown:
        found = await read_stack(opened, task, id_maker(), by=operator())
        return Shown({"stack": stack_document(found)}, lambda screen: draw_stack(screen, found, now(opened)))

    show(screen_of(context), store, read, as_json=as_json)


@app.command("retry")
def retry(
    context: typer.Context,
    tasks: TasksArgument = None,
    everything: AllOption = False,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Do not reset the number of attempts.")
    ] = False,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
    waits: WaitOption = True,
) -> None:
    """Run failed tasks again; cancelled ones only if selected by id or state.

    \b
    Examples:
      pitboss tasks retry 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks retry queue:mail error:SMTPError --dry-run
      pitboss tasks retry state:cancelled tag:eu --yes
    """
    wanted = bulk.selected(tasks, everything=everything)
    act = bulk.Act(Verb.RETRY, "Retry", "set to run again", retryable(wanted), keep_attempts=keep_attempts)
    bulk.run(context, store, act, wanted, sure=sure, dry=dry, waits=waits)


@app.command("cancel")
def cancel(
    context: typer.Context,
    tasks: TasksArgument = None,
    everything: AllOption = False,
    reason: Annotated[str, typer.Option("--reason", help="Stored with the tasks.")] = "cancelled from the command line",
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
    waits: WaitOption = True,
) -> None:
    """Cancel waiting tasks, and ask running ones to stop.

    \b
    Examples:
      pitboss tasks cancel 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss tasks cancel queue:mail 'age:>1d' --dry-run
      pitboss tasks cancel state:scheduled tag:test --yes --reason 'wrong list'
    """
    wanted = bulk.selected(tasks, everything=everything)
    act = bulk.Act(Verb.CANCEL, "Cancel", "cancelled", CANCELLABLE, reason=reason)
    bulk.run(context, store, act, wanted, sure=sure, dry=dry, waits=waits)


def _draw_list(screen: Screen, page: Page, moment: Moment) -> None:
    if not page.tasks and page.next is None:
        screen.note("no tasks match")
        return
    divided = any(task.partition is not None for task in page.tasks)
    columns = [column for column in _COLUMNS if divided or column is not _PARTITION]
    if page.tasks:
        screen.table(columns, [_row(task, moment, divided=divided) for task in page.tasks])
    if page.covered is not None:
        found = f"{len(page.tasks) or 'none'} of them {'match' if len(page.tasks) > 1 else 'matches'}"
        end = f"the last is of {when(page.covered, moment)}"
        screen.note(f"looked at {MOST_READ:,} tasks: {found}, {end}; go on with --after {page.next}")
    elif page.next:
        screen.note(f"there are more: repeat with --after {page.next}")


def _row(task: Task, moment: Moment, *, divided: bool) -> list[str]:
    tries = str(task.attempts) if task.attempts else ""
    key = [short_key(task.partition or "")] if divided else []
    return [task.id, task.state, task.handler, task.queue, *key, tries, age(task.created_at, moment), _note(task)]


def _note(task: Task) -> str:
    if task.state is State.RUNNING and task.progress is not None:
        return f"{task.progress} % {one_line(task.note or '', 40)}".strip()
    if task.error is not None and task.state is not State.COMPLETED:
        return one_line(f"{task.error.type or task.error.category}: {task.error.message}", 60)
    return one_line(task.reason or "", 60)
