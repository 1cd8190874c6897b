"""`pitboss queues`: list, show, pause, resume and limit."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    ReasonOption,
    Shown,
    StoreOption,
    WatchOption,
    ask,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.formatting import ago, sparkline, when
from pitboss.cli.screen import Column, Screen
from pitboss.cli.status import QUEUE_COLUMNS, forecast_text, limits_text, queue_row
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate as rate_of
from pitboss.model.queue import LIMITS, Queue, QueueChange, checked_name
from pitboss.model.queue_forecast import QueueForecast, per
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.operate.lookup import closest
from pitboss.operate.queues import (
    LimitReading,
    QueueReading,
    limit_queue,
    limit_readings,
    partitioning_text,
    read_queue,
    read_queues,
    retention_text,
)
from pitboss.operate.status_documents import queue_page_document
from pitboss.operate.tasks import change_queues

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="List, show, pause, resume and limit queues.", no_args_is_help=True, rich_markup_mode=None)
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of queues.")]
_NONE = "none"
_SPARKS = 30
_LIMITS = (Column("Limit"), Column("Now", fills=True), Column("Source"))


@app.command("list")
def list_queues(
    context: typer.Context, store: StoreOption = None, as_json: JsonOption = False, watch: WatchOption = None
) -> None:
    """List the queues with the number of their tasks by state, and what becomes of their backlog.

    \b
    Examples:
      pitboss queues list
      pitboss queues list --watch 2s
    """
    show(screen_of(context), store, _read, as_json=as_json, watch=watch)


@app.command("show")
def show_queue(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The queue.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show a queue: its tasks by state, what becomes of its backlog and why, and its limits with who set them.

    \b
    Examples:
      pitboss queues show mail
    """

    async def read(opened: "Store") -> Shown:
        found, moment = await read_queue(opened, name, now(opened)), now(opened)
        document = {"queue": queue_page_document(found.queue, found.forecast)}
        return Shown(document, lambda screen: _draw_queue(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("pause")
def pause(context: typer.Context, names: NamesArgument, reason: ReasonOption = "", store: StoreOption = None) -> None:
    """Start no more tasks of these queues. Running tasks finish, and new tasks are still accepted.

    \b
    Examples:
      pitboss queues pause mail --reason "the site is down"
      pitboss queues resume mail
    """
    screen = screen_of(context)
    change = QueueChange(paused=True, by=operator(), reason=reason)
    for queue in ask(screen, store, lambda opened: change_queues(opened, names, change), audit=acting(context)):
        running = queue.counts.get(State.RUNNING, 0)
        rest = f"; {counted(running, 'task')} still running" if running else ""
        screen.note(f'queue "{queue.name}" is paused with {counted(queue.waiting, "waiting task")}{rest}')


@app.command("resume")
def resume(context: typer.Context, names: NamesArgument, store: StoreOption = None) -> None:
    """Start tasks of these queues again.

    \b
    Examples:
      pitboss queues resume mail
    """
    screen = screen_of(context)
    change = QueueChange(paused=False, by=operator())
    for queue in ask(screen, store, lambda opened: change_queues(opened, names, change), audit=acting(context)):
        screen.note(f'queue "{queue.name}" is resumed with {counted(queue.waiting, "waiting task")}')


@app.command("limit")
def limit(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The queue; created if it does not exist.")],
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/TIME", help='Starts per time, as in 20/min; "none" removes it.')
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="N", help='How many tasks may wait; "none" removes it.')
    ] = None,
    per_key: Annotated[
        str | None,
        typer.Option(
            "--max-per-key", metavar="N", help='Tasks of one partition key that may run at once; "none" removes it.'
        ),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget what operators set before: what is declared holds again.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Limit how fast a queue's tasks start, how many may wait, and how many of a key run, above what is declared.

    \b
    Examples:
      pitboss queues limit mail --rate 20/min
      pitboss queues limit mail --rate '2/s, 1000/h' --capacity 5000
      pitboss queues limit mail --rate none --capacity none
      pitboss queues limit targets --max-per-key 5
      pitboss queues limit mail --reset

    A rate applies to all managers together, in every span of that time. What is set here stays until --reset.
    """
    screen = screen_of(context)
    given = {"rate": rate, "capacity": capacity, "max_per_key": per_key}
    change = _limits(given, reset=reset)
    checked_name(name, "queue", reserved=True)
    create, audit = any(one is not None for one in given.values()), acting(context)

    async def act(opened: "Store") -> tuple[Queue, list[str]]:
        known = [one.name for one in await opened.queues()]
        return await limit_queue(opened, name, change), known

    queue, known = ask(screen, store, act, create=create, audit=audit)
    screen.note(f'queue "{queue.name}": {limits_text(queue) or "no limits"}' + ("" if create else ", as declared"))
    if name not in known:
        meant = closest(name, known)
        screen.note(f'note: queue "{name}" is new' + ("" if meant is None else f"; did you mean {meant}?"))
    if per_key is not None and queue.max_per_key is not None and queue.partitions is None:
        screen.note("note: max_per_key limits nothing yet: the queue has no partitions (partition_by)")


async def _read(store: "Store") -> Shown:
    found = await read_queues(store, now(store))
    document = {"queues": [queue_page_document(one.queue, one.forecast) for one in found]}
    return Shown(document, lambda screen: _draw(screen, found))


def _draw(screen: Screen, queues: Sequence[QueueReading]) -> None:
    if not queues:
        screen.note("there are no queues yet: the first task of a queue creates it")
        return
    screen.table(QUEUE_COLUMNS, [queue_row(one.queue, {one.queue.name: one.forecast}) for one in queues])


def _draw_queue(screen: Screen, found: QueueReading, moment: Moment) -> None:
    queue = found.queue
    paused = f"paused by {queue.paused_by}" if queue.paused_by else "paused"
    screen.fields([("queue", queue.name)])
    screen.fields([("state", f"{paused}, {ago(queue.paused_at, moment)}" if queue.paused else None)])
    screen.fields([("reason", queue.paused_reason)])
    counts = [f"{number:,} {state}" for state in State if (number := queue.counts.get(state, 0))]
    screen.fields([("tasks", ", ".join(counts) or "none")])
    claimed, at_work = queue.counts.get(State.RUNNING, 0), found.forecast.at_work
    if at_work is not None and at_work < claimed:
        screen.fields([("running", f"{claimed:,} claimed, at most {at_work:,} of them at work")])
    screen.fields([("resources", queue.resources)])
    _draw_forecast(screen, found.forecast, moment)
    screen.fields([("partitions", None if queue.partitions is None else partitioning_text(queue.partitions))])
    ages = queue.declared.retention if queue.declared else {}
    screen.fields([("kept", ", ".join(f"{state} {retention_text(age)}" for state, age in ages.items()))])
    limits = limit_readings(queue)
    screen.fields([("limits", None if limits else "none")])
    if limits:
        screen.heading("Limits")
        screen.table(_LIMITS, [[one.key, one.value, _source(one)] for one in limits])


def _draw_forecast(screen: Screen, found: QueueForecast, moment: Moment) -> None:
    """What becomes of its backlog, what limits it, and the last hour."""
    highest = max([*found.came, *found.went], default=0)
    came, went = per(found.inflow, found.outflow), per(found.outflow, found.inflow)
    screen.fields(
        [
            ("forecast", forecast_text(found)),
            ("limited by", found.pinch.said),
            ("until", when(found.until, moment)),
            ("oldest", f"has waited {spoken(waited)}" if (waited := found.waited or 0) >= SECOND else None),
            ("in", f"{came}{_bursts(found)}  {sparkline(found.came, _SPARKS, highest)}" if highest else None),
            ("out", f"{went}  {sparkline(found.went, _SPARKS, highest)}" if highest else None),
        ]
    )


def _bursts(found: QueueForecast) -> str:
    """ ", besides 2 bursts of 5,500 tasks"."""
    return f", besides {counted(found.bursts, 'burst')} of {counted(found.rushed, 'task')}" if found.bursts else ""


def _source(limit: LimitReading) -> str:
    return "declared" if limit.source == "declared" else f"set by operator (declared: {limit.declared})"


def _limits(given: Mapping[str, str | None], *, reset: bool) -> QueueChange:
    said = {key: value for key, value in given.items() if value is not None}
    if not said and not reset:
        raise InvalidInput(
            "no limit was given",
            why="there is nothing to change",
            fix="say --rate 20/min, --capacity 1000 or --max-per-key 5; --reset for what is declared",
        )
    return QueueChange(
        withdraw=tuple(key for key in LIMITS if key not in said) if reset else (),
        rate=msgspec.UNSET if "rate" not in said else () if said["rate"] == _NONE else rate_of(said["rate"]),
        capacity=_number(said, "capacity", "--capacity 1000"),
        max_per_key=_number(said, "max_per_key", "--max-per-key 5"),
    )


def _number(said: Mapping[str, str], key: str, example: str) -> int | msgspec.UnsetType | None:
    text = said.get(key)
    if text is None or text == _NONE:
        return msgspec.UNSET if text is None else None
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise InvalidInput(
            f"{text!r:.40} is not a limit", why="it is a whole number above 0", fix=f'say {example}, or "none"'
        )
    return number
