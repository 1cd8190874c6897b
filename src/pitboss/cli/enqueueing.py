"""`pitboss tasks enqueue`: a task by its name, checked against what the store knows of its handler."""

import difflib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pitboss.cli.exits import Exit
from pitboss.cli.options import JsonOption, StoreOption, screen_of
from pitboss.cli.screen import Screen
from pitboss.cli.store import ask
from pitboss.model.errors import InvalidInput, NotFound, TaskFailed
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.waiting import alive

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store


def enqueue(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The task's name.")],
    params: Annotated[str, typer.Argument(metavar="JSON", help="Its parameters by name; - reads stdin.")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue than the handler's.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Lower runs first; 0 is usual.")] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Not before, as in 10m.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only one unfinished task has this key.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Store it even if nobody knows the name yet.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Wait no longer.")] = "1m",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a task. Prints its id; with --wait, its result.

    \b
    Examples:
      pitboss tasks enqueue greet '{"name": "you"}'
      pitboss tasks enqueue greet '{"name": "you"}' --delay 10m --key you
      pitboss tasks enqueue report --wait --timeout 5m
      cat params.json | pitboss tasks enqueue report -
    """
    screen = screen_of(context)
    given = {"priority": priority, "delay": delay, "key": key, "tags": tags or None}
    options = {option: value for option, value in given.items() if value is not None}
    values = decoded_params(sys.stdin.read() if params == "-" else params)

    async def work(opened: "Store") -> tuple[Task, bool]:
        handler = await known_handler(opened, name, held=held)
        return await _placed(screen, opened, handler, values, queue, options, timeout if wait else None)

    task, created = ask(screen, store, work, create=True)
    _tell(screen, task, created=created, waited=wait, as_json=as_json)


def decoded_params(text: str) -> dict[str, Any]:
    """The object that the text is."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(
            f"the params {text!r:.60} are not JSON",
            why=str(error),
            fix="""put them in single quotes, as in '{"name": "you"}'""",
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(
            f"the params {text!r:.60} are not an object",
            why="parameters are given by name",
            fix="""write them as '{"name": "you"}'""",
        )
    return found


async def known_handler(store: "Store", name: str, *, held: bool | None = None) -> HandlerInfo:
    """The handler of that name, as the store knows it. `held`: an unknown one may do; None: it cannot be asked for."""
    known = {handler.name: handler for handler in await store.handlers()}
    if name in known or held:
        return known.get(name) or HandlerInfo(name=checked_name(name, "task"))
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)[:10]
    raise NotFound(
        f'no worker has told this store about a task "{name}"',
        why=f"it knows {', '.join(close)}" if close else "no manager has run on it yet",
        fix="check the name, or start its app with pitboss up"
        + ("" if held is None else "; --held stores it anyway, until a worker knows it"),
    )


async def _placed(
    screen: Screen,
    store: "Store",
    handler: HandlerInfo,
    values: dict[str, Any],
    queue: str | None,
    options: dict[str, Any],
    timeout: str | None,
) -> tuple[Task, bool]:
    from pitboss import wiring
    from pitboss.client import schema
    from pitboss.client.client import Client
    from pitboss.client.options import Options
    from pitboss.model.duration import span

    clock = wiring.SystemClock()
    client = Client(store, clock)
    task = (
        Options()
        .changed(**options)
        .task(
            task_id=IdMaker(clock.now, wiring.randbits())(),
            handler=handler.name,
            queue=checked_name(queue or handler.queue, "queue"),
            params=schema.checked(handler, values),
            parent=None,
        )
    )
    limit = None if timeout is None else span(timeout, what="--timeout")
    placed = (await client.put([task]))[0]
    if limit is not None and not alive(await store.sessions(), clock.now()):
        screen.note("note: no manager is running on this store; start one with pitboss up")
    found = await client.get(placed.id) if limit is None else await client.finished(placed.id, timeout=limit)
    return found, placed.created


def _tell(screen: Screen, task: Task, *, created: bool, waited: bool, as_json: bool) -> None:
    if not created:
        screen.note(f'there is an unfinished task with this key already; nothing was added ("{task.unique_key}")')
    if task.state is State.HELD:
        screen.note("it is held until a worker knows its handler")
    if as_json:
        from pitboss.cli.documents import task_document

        screen.document({"task": task_document(task), "created": created})
    elif not waited:
        screen.line(task.id)
    elif task.state is State.COMPLETED:
        screen.line(task.result or "null")
    if waited and task.state is not State.COMPLETED:
        _failed(screen, task, as_json=as_json)


def _failed(screen: Screen, task: Task, *, as_json: bool) -> None:
    if as_json:
        raise typer.Exit(Exit.FAILED)
    raise TaskFailed(
        f"task {task.id} ({task.handler}) {'failed' if task.state is State.FAILED else 'was cancelled'}",
        why=task.error.message if task.error else task.reason or "no reason was given",
        fix=f"pitboss tasks show {task.id}",
    )
