"""`pitboss events`: list, show, publish and replay events, and who wants which."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    LimitOption,
    Shown,
    StoreOption,
    WatchOption,
    ask,
    id_maker,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.enqueueing import found_or_ended
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import ago, when
from pitboss.cli.screen import Column, Screen
from pitboss.client.events import EventWithTasks, task_ids
from pitboss.model.duration import Moment, span
from pitboss.model.errors import InvalidInput
from pitboss.model.event import Event, Published, checked_event_name
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import counted, listed, one_line
from pitboss.operate.events import (
    Replayed,
    Subscribed,
    event_client,
    list_subscriptions,
    read_event,
    replay_events,
)
from pitboss.operate.schedule_documents import event_document, event_page_document, subscription_document

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, show, publish and replay events, and see who wants which.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_EVENTS = (
    Column("Id"),
    Column("Event", fills=True),
    Column("Handlers", right=True),
    Column("Published", right=True),
    Column("Key", drop=2),
    Column("By", drop=3),
    Column("Data", drop=1),
)
_TASKS = (Column("Handler", fills=True), Column("Task"), Column("State"), Column("Note", drop=1))
_HANDLERS = (
    Column("Pattern", fills=True),
    Column("Handler"),
    Column("Queue"),
    Column("Order"),
    Column("App", drop=1),
)
_LONG = 60


@app.command("list")
def list_events(
    context: typer.Context,
    name: Annotated[str | None, typer.Option("--name", help="Only events of this name.")] = None,
    limit: LimitOption = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Continue an earlier list.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List the newest events.

    \b
    Examples:
      pitboss events list
      pitboss events list --name user.signup --json
    """
    wanted = None if name is None else checked_event_name(name)

    async def read(opened: "Store") -> Shown:
        found = await event_client(opened, id_maker()).find(name=wanted, limit=limit, before=before)
        following = found[-1].id if len(found) == limit else None
        document = {"events": [event_document(one) for one in found], "next": following}
        return Shown(document, lambda screen: _draw_list(screen, found, following, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_event(
    context: typer.Context,
    event: Annotated[str, typer.Argument(metavar="ID", help="The id, or six or more of its last characters.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show one event with its data and the state of its tasks.

    \b
    Examples:
      pitboss events show a0d3f7
    """

    async def read(opened: "Store") -> Shown:
        page = await read_event(event_client(opened, id_maker()), opened, event)
        return Shown(event_page_document(page), lambda screen: _draw_event(screen, page, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("publish")
def publish(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help='The event, as in "user.signup".')],
    data: Annotated[str, typer.Argument(metavar="DATA", help="JSON; - reads stdin.")] = "{}",
    key: Annotated[
        str | None, typer.Option("--key", help="Handlers that keep the order get events with one key one at a time.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="KEY", help="A repetition publishes nothing more.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all its tasks have ended.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait at most.")] = "1m",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish an event. Prints its id; it is stored together with a task for each handler that wants it.

    \b
    Examples:
      pitboss events publish user.signup '{"user_id": 7}'
      pitboss events publish order.paid '{"order": 17}' --key account:7 --idempotency-key order-17
      pitboss events publish user.signup '{"user_id": 7}' --wait
    """
    screen = screen_of(context)
    value = _decoded(sys.stdin.read() if data == "-" else data)
    limit = timeout if wait else None
    span(timeout, what="--timeout")

    async def work(opened: "Store") -> tuple[Published, list[Task]]:
        client = event_client(opened, id_maker())
        done = await client.publish(name, value, key=key, idempotency_key=idempotency_key, by=operator())
        return done, [await found_or_ended(screen, opened, task, limit) for task in task_ids(done)]

    done, tasks = ask(screen, store, work, create=True)
    _tell_published(screen, name, done, tasks, waited=wait, as_json=as_json)


@app.command("replay")
def replay(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids, or six or more of their last characters.")],
    handlers: Annotated[
        list[str] | None, typer.Option("--handler", metavar="NAME", help="Only to this one; may be repeated.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send events again. Each handler that wants them now gets a new task.

    \b
    Examples:
      pitboss events replay a0d3f7
      pitboss events replay a0d3f7 64c1b2 --handler write_audit_line
    """
    screen = screen_of(context)

    async def work(opened: "Store") -> list[Replayed]:
        return await replay_events(event_client(opened, id_maker()), opened, ids, handlers or None)

    done = ask(screen, store, work, audit=acting(context))
    tasks = [_put_document(one.event, handler, placed.id) for one in done for handler, placed in one.tasks]
    if as_json:
        screen.document({"tasks": tasks})
        return
    for task in tasks:
        screen.line(task["id"])
    names = sorted({task["handler"] for task in tasks})
    whom = f" for {listed(names)}" if names else "; no handler wants them now: pitboss events handlers"
    screen.note(f"{counted(len(tasks), 'task')} put{whom}")


@app.command("handlers")
def handlers(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List which handler wants which events.

    \b
    Examples:
      pitboss events handlers
    """

    async def read(opened: "Store") -> Shown:
        found = await list_subscriptions(opened)
        document = {"handlers": [subscription_document(one) for one in found]}
        return Shown(document, lambda screen: _draw_handlers(screen, found))

    show(screen_of(context), store, read, as_json=as_json)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(
            f"the data {text!r:.60} is not JSON", why=str(error), fix="""put it in single quotes, as in '{"id": 7}'"""
        ) from error


def _tell_published(
    screen: Screen, name: str, done: Published, tasks: Sequence[Task], *, waited: bool, as_json: bool
) -> None:
    bad = [task for task in tasks if task.state.finished and task.state is not State.COMPLETED]
    if as_json:
        rows = [{"handler": task.handler, "id": task.id, "state": task.state.value} for task in tasks]
        screen.document({"id": done.id, "name": name, "created": done.created, "tasks": rows})
    else:
        screen.line(done.id)
        _say_published(screen, name, done, tasks, waited=waited)
    if waited and bad:
        raise typer.Exit(Exit.FAILED)


def _say_published(screen: Screen, name: str, done: Published, tasks: Sequence[Task], *, waited: bool) -> None:
    if not done.created:
        screen.note(f"it was published before under this key, to {listed(done.handlers)}; nothing was added")
    if not done.handlers:
        screen.note(f"no handler wants {name}: it is in the log only; pitboss events handlers lists what is wanted")
    elif waited:
        for task in tasks:
            error = f": {one_line(task.error.message, _LONG)}" if task.error else ""
            failed = task.state is not State.COMPLETED
            screen.note(f"{task.handler} {task.state}{error if failed else ''}  (task {task.id})")
    elif done.created:
        screen.note(f"{counted(len(tasks), 'task')} put for {listed([task.handler for task in tasks])}")


def _put_document(event: str, handler: str, task: TaskId) -> dict[str, str]:
    return {"event": event, "handler": handler, "id": task}


def _draw_list(screen: Screen, events: Sequence[Event], following: str | None, moment: Moment) -> None:
    if not events:
        screen.note("no events are in the log")
        return
    rows = [
        [
            one.id,
            one.name,
            str(len(one.handlers)),
            ago(one.published_at, moment),
            one.key or "",
            one.by or "",
            one_line(one.data, _LONG),
        ]
        for one in events
    ]
    screen.table(_EVENTS, rows)
    if following is not None:
        screen.note(f"there may be more: repeat with --before {following}")


def _draw_event(screen: Screen, page: EventWithTasks, moment: Moment) -> None:
    event = page.event
    screen.fields([("event", event.name), ("id", event.id), ("key", event.key), ("by", event.by)])
    screen.fields([("published", when(event.published_at, moment)), ("data", _long(event.data))])
    screen.heading("Tasks")
    if not event.handlers:
        screen.line(f"none: no handler wanted it. pitboss events replay {event.id[-12:]} sends it to those that do now")
        return
    together = zip(event.handlers, event.task_ids(), page.tasks, strict=True)
    screen.table(_TASKS, [[name, task_id, *_ended(task)] for name, task_id, task in together])


def _ended(task: Task | None) -> tuple[str, str]:
    if task is None:
        return "", "deleted"
    if task.error is not None and task.state is not State.COMPLETED:
        return task.state, one_line(f"{task.error.type or task.error.category}: {task.error.message}", _LONG)
    return task.state, one_line(task.reason or "", _LONG)


def _long(data: str) -> str:
    return data if len(data) <= 2 * _LONG else msgspec.json.format(data, indent=2)


def _draw_handlers(screen: Screen, found: Sequence[Subscribed]) -> None:
    if not found:
        screen.note("no handler wants any event; declare one with @app.event_handler, and start its app")
        return
    rows = [
        [one.pattern, one.handler, one.queue, "one at a time" if one.ordered else "", app_name]
        for app_name, one in found
    ]
    screen.table(_HANDLERS, rows)
