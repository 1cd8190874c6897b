"""`pitboss tasks enqueue`: a task by the name of its handler, checked against the handler's schema."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pitboss.cli.command import JsonOption, StoreOption, ask, id_maker, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput, TaskFailed
from pitboss.model.fleet import live_managers
from pitboss.model.ids import TaskId
from pitboss.model.states import State
from pitboss.model.task import Task

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store


def enqueue(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The handler's name.")],
    params: Annotated[str, typer.Argument(metavar="JSON", help="Its parameters by name; - reads stdin.")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue than the handler's.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Lower runs first; the default is 0.")] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Run it later, as in 10m.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only one unfinished task has this key.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Store it even if no worker knows the handler yet.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait at most.")] = "1m",
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
    values = decoded_object(sys.stdin.read() if params == "-" else params)

    async def work(opened: "Store") -> tuple[Task, bool]:
        limit = timeout if wait else None
        return await _enqueued(screen, opened, name, values, limit, queue=queue, held=held, **options)

    task, created = ask(screen, store, work, create=True)
    _tell(screen, task, created=created, waited=wait, as_json=as_json)


def decoded_object(text: str) -> dict[str, Any]:
    """The JSON object in this text."""
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


async def _enqueued(
    screen: Screen, store: "Store", name: str, params: dict[str, Any], timeout: str | None, **options: Any
) -> tuple[Task, bool]:
    from pitboss.client.client import Client
    from pitboss.model.duration import span
    from pitboss.operate.enqueue import enqueue as enqueue_by_name

    if timeout is not None:
        # A wrong one is refused before the task is stored.
        span(timeout, what="--timeout")
    client = Client(store, store.clock)
    placed = await enqueue_by_name(client, name, params, id_maker()(), **options)
    return await found_or_ended(screen, store, placed.id, timeout), placed.created


async def found_or_ended(screen: Screen, store: "Store", task: TaskId, timeout: str | None) -> Task:
    """The task; with a time limit, after its end."""
    from pitboss.client.client import Client
    from pitboss.model.duration import span

    client = Client(store, store.clock)
    if timeout is None:
        return await client.get(task)
    if not live_managers(await store.sessions(), store.clock.now()):
        screen.note("note: no manager is running on this store; start one with pitboss up")
    return await client.finished(task, timeout=span(timeout, what="--timeout"))


def _tell(screen: Screen, task: Task, *, created: bool, waited: bool, as_json: bool) -> None:
    if not created:
        screen.note(f'an unfinished task has this key already; nothing was added ("{task.unique_key}")')
    if task.state is State.HELD:
        screen.note("it is held until a worker knows its handler")
    tell_task(screen, task, created=created, waited=waited, as_json=as_json)


def tell_task(screen: Screen, task: Task, *, created: bool, waited: bool, as_json: bool) -> None:
    """Its id, or its result if its end was waited for; fails if it has none then."""
    if as_json:
        from pitboss.operate.documents import task_document

        screen.document({"task": task_document(task), "created": created})
    elif not waited:
        screen.line(task.id)
    elif task.state is State.COMPLETED:
        screen.line(task.result or "null")
    if waited and task.state is not State.COMPLETED:
        _fail(task, as_json=as_json)


def _fail(task: Task, *, as_json: bool) -> None:
    if as_json:
        raise typer.Exit(Exit.FAILED)
    raise TaskFailed(
        f"task {task.id} ({task.handler}) {'failed' if task.state is State.FAILED else 'was cancelled'}",
        why=task.error.message if task.error else task.reason or "no reason was given",
        fix=f"pitboss tasks show {task.id}",
    )
