"""`pitboss schedules`: list, add, change, run, pause and remove schedules, and look at their next ticks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    ReasonOption,
    Shown,
    StoreOption,
    WatchOption,
    YesOption,
    ask,
    confirm,
    id_maker,
    now,
    operator,
    screen_of,
    show,
    wall,
)
from pitboss.cli.enqueueing import decoded_object, found_or_ended, tell_task
from pitboss.cli.schedule_page import draw_schedule, draw_schedules, draw_ticks, tick_text
from pitboss.client.schedules import ScheduleClient
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.model.schedule import Schedule, ScheduleSpec
from pitboss.model.task import Task
from pitboss.operate.schedule_documents import schedule_document, tick_document
from pitboss.operate.schedules import (
    Tick,
    coming_ticks,
    list_schedules,
    read_schedule,
    run_schedule,
    spoken_when,
    trial,
)

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, add, change, run, pause and remove schedules.", no_args_is_help=True, rich_markup_mode=None
)
_NEXT_SHOWN = 5
_FIELDS = frozenset(ScheduleSpec.__struct_fields__) - {"name", "handler"}
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME", help="Schedules.")]
CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="LINE", help='As in "*/15 * * * *"; six fields have seconds first.')
]
EveryOption = Annotated[str | None, typer.Option("--every", metavar="TIME", help="An interval, as in 10m.")]
AtOption = Annotated[str | None, typer.Option("--at", metavar="MOMENT", help="Once, as in 2030-01-01T08:00+01:00.")]
ZoneOption = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="The zone of the cron line, as in Europe/Prague.")
]
ParamsOption = Annotated[str | None, typer.Option("--params", metavar="JSON", help="Parameters of its tasks.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Another queue than the handler's.")]
PriorityOption = Annotated[
    int | None, typer.Option("--priority", min=-32_768, max=32_767, help="Lower runs first; the default is 0.")
]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long one of its tasks may run.")
]
AttemptsOption = Annotated[int | None, typer.Option("--max-attempts", min=1, max=1_000_000, help="Of each task.")]
OverlapOption = Annotated[
    str | None,
    typer.Option("--overlap", metavar="HOW", help="While the last task is unfinished: skip, queue or allow."),
]
CatchupOption = Annotated[
    str | None, typer.Option("--catchup", metavar="HOW", help="After a standstill: none, last or all.")
]
JitterOption = Annotated[str | None, typer.Option("--jitter", metavar="TIME", help="Delay each tick by up to this.")]


@app.command("list")
def list_all(
    context: typer.Context, store: StoreOption = None, as_json: JsonOption = False, watch: WatchOption = None
) -> None:
    """List schedules with their next tick and how the last run ended.

    \b
    Examples:
      pitboss schedules list
      pitboss schedules list --watch 5s
    """

    async def read(opened: "Store") -> Shown:
        found, clock = await list_schedules(opened), opened.clock.wall()
        document = {"schedules": [schedule_document(one) for one in found]}
        return Shown(document, lambda screen: draw_schedules(screen, found, clock))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_one(
    context: typer.Context,
    name: NameArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show one schedule with its next ticks, and what was changed.

    \b
    Examples:
      pitboss schedules show nightly
    """

    async def read(opened: "Store") -> Shown:
        found, moment, clock = await read_schedule(opened, name), now(opened), opened.clock.wall()
        ticks = coming_ticks([found.schedule], _NEXT_SHOWN)
        document = {"schedule": schedule_document(found), "next": [tick_document(one)["at"] for one in ticks]}
        return Shown(document, lambda screen: draw_schedule(screen, found, ticks, moment, clock))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("add")
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the schedule is called.")],
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The handler whose tasks it puts.")],
    cron: CronOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    tz: ZoneOption = None,
    params: ParamsOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    timeout: TimeoutOption = None,
    max_attempts: AttemptsOption = None,
    overlap: OverlapOption = None,
    catchup: CatchupOption = None,
    jitter: JitterOption = None,
    store: StoreOption = None,
) -> None:
    """Add a schedule at run time. One that was added before is defined anew.

    \b
    Examples:
      pitboss schedules add nightly report --cron '0 3 * * *' --tz Europe/Prague
      pitboss schedules add poll fetch --every 10m --params '{"shop": 7}' --overlap queue
      pitboss schedules add launch announce --at 2030-01-01T08:00+01:00
    """
    fields = _fields(context)

    def work(client: ScheduleClient) -> Awaitable[Schedule]:
        return client.add(name, handler, by=operator(), **fields)

    added = _act(context, store, work, create=True)
    _say(context, added, "is added" if added.version == 1 else "is defined anew")


@app.command("change")
def change(
    context: typer.Context,
    name: NameArgument,
    cron: CronOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    tz: ZoneOption = None,
    params: ParamsOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    timeout: TimeoutOption = None,
    max_attempts: AttemptsOption = None,
    overlap: OverlapOption = None,
    catchup: CatchupOption = None,
    jitter: JitterOption = None,
    store: StoreOption = None,
) -> None:
    """Set fields above what code declares. A deploy does not undo it; reset does.

    \b
    Examples:
      pitboss schedules change nightly --cron '0 4 * * *'
      pitboss schedules change poll --every 1m --priority 5
    """
    fields = _fields(context)
    if not fields:
        raise InvalidInput(
            "no change was given", why="there is nothing to set", fix="say --cron '0 4 * * *', --priority 5, …"
        )
    _say(context, _act(context, store, lambda client: client.change(name, by=operator(), **fields)), "is changed")


@app.command("reset")
def reset(context: typer.Context, names: NamesArgument, store: StoreOption = None) -> None:
    """Withdraw what operators changed: the definition holds again.

    \b
    Examples:
      pitboss schedules reset nightly
    """
    for one in _each(context, store, names, lambda client, name: client.reset(name, by=operator())):
        _say(context, one, "is as it is declared")


@app.command("pause")
def pause(context: typer.Context, names: NamesArgument, reason: ReasonOption = "", store: StoreOption = None) -> None:
    """Let schedules put no tasks. Tasks that they have put go on.

    \b
    Examples:
      pitboss schedules pause nightly
    """
    for one in _each(context, store, names, lambda client, name: client.pause(name, by=operator(), reason=reason)):
        screen_of(context).note(f'schedule "{one.name}" is paused')


@app.command("resume")
def resume(context: typer.Context, names: NamesArgument, store: StoreOption = None) -> None:
    """Let schedules go on with their next tick. Those that passed meanwhile are not made up for.

    \b
    Examples:
      pitboss schedules resume nightly
    """
    for one in _each(context, store, names, lambda client, name: client.resume(name, by=operator())):
        _say(context, one, "is resumed")


@app.command("remove")
def remove(context: typer.Context, name: NameArgument, store: StoreOption = None, sure: YesOption = False) -> None:
    """Remove a schedule that was added at run time. Tasks that it has put stay.

    \b
    Examples:
      pitboss schedules remove hourly-export --yes
    """
    screen = screen_of(context)

    async def work(client: ScheduleClient) -> Schedule:
        found = await client.get(name)
        if not sure and found.app is None:
            confirm(screen, f'Remove schedule "{name}" ({spoken_when(found.spec)})?', otherwise="repeat with --yes")
        return await client.remove(name)

    _act(context, store, work)
    screen.note(f'schedule "{name}" is removed')


@app.command("run")
def run(
    context: typer.Context,
    name: NameArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait at most.")] = "1m",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put its task now, besides its ticks. Prints the id; with --wait, the result. A pause does not matter.

    \b
    Examples:
      pitboss schedules run nightly
      pitboss schedules run nightly --wait --timeout 10m
    """
    screen = screen_of(context)

    limit = timeout if wait else None
    span(timeout, what="--timeout")

    async def work(opened: "Store") -> tuple[Task, bool]:
        placed = await run_schedule(opened, name, id_maker())
        return await found_or_ended(screen, opened, placed.id, limit), placed.created

    task, created = ask(screen, store, work, audit=acting(context))
    if not created:
        screen.note("a task of it is not finished, so none was put (overlap: skip); this is that task")
    tell_task(screen, task, created=created, waited=wait, as_json=as_json)


@app.command("next")
def next_ticks(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One schedule; otherwise all together.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many ticks.")] = 10,
    cron: CronOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    tz: ZoneOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the next ticks of one schedule or of all. With --cron, --every or --at, of a line that is not stored.

    \b
    Examples:
      pitboss schedules next
      pitboss schedules next nightly -n 3
      pitboss schedules next --cron '30 6 * * 1-5' --tz Europe/Prague
    """
    screen = screen_of(context)
    if (cron or every or at) is None:
        if tz is not None:
            raise InvalidInput("--tz alone says no times", why="it is the zone of a line", fix="say --cron '…' too")

        async def read(opened: "Store") -> Shown:
            chosen = [await read_schedule(opened, name)] if name else await list_schedules(opened)
            ticks = coming_ticks([one.schedule for one in chosen], number)
            clock = opened.clock.wall()
            return _ticks_shown(ticks, clock, chosen[0].when if name else "", named=name is None)

        show(screen, store, read, as_json=as_json)
        return
    if name is not None:
        raise InvalidInput(
            "a schedule and a line were given", why="the line is for one that is not stored", fix="give one of them"
        )
    clock = wall()
    tried = trial(cron, every, at, tz, clock)
    shown = _ticks_shown(coming_ticks([tried], number), clock, spoken_when(tried.spec), named=False)
    if as_json:
        screen.document(shown.document)
    else:
        shown.draw(screen)


def _ticks_shown(ticks: Sequence[Tick], clock: int, words: str, *, named: bool) -> Shown:
    found = [tick_document(one) if named else {"at": tick_document(one)["at"]} for one in ticks]
    document: dict[str, Any] = {"ticks": found} | ({"when": words} if words else {})
    return Shown(document, lambda screen: draw_ticks(screen, ticks, clock, words, named=named))


def _fields(context: typer.Context) -> dict[str, Any]:
    """The options that were given, by the names of the fields."""
    found = {name: value for name, value in context.params.items() if name in _FIELDS and value is not None}
    if "params" in found:
        found["params"] = decoded_object(found["params"])
    return found


def _act(
    context: typer.Context,
    store: str | None,
    work: Callable[[ScheduleClient], Awaitable[Schedule]],
    *,
    create: bool = False,
) -> Schedule:
    async def do(opened: "Store") -> Schedule:
        return await work(ScheduleClient(opened, id_maker()))

    audit = acting(context)
    if context.params.get("timeout") is not None:
        # Of the tasks: other commands mean how long they wait, which is not recorded.
        audit.details["timeout"] = context.params["timeout"]
    return ask(screen_of(context), store, do, create=create, audit=audit)


def _each(
    context: typer.Context,
    store: str | None,
    names: Sequence[str],
    work: Callable[[ScheduleClient, str], Awaitable[Schedule]],
) -> list[Schedule]:
    """For all of these, or none if one of them is unknown."""

    async def do(opened: "Store") -> list[Schedule]:
        client = ScheduleClient(opened, id_maker())
        for name in names:
            await client.get(name)
        return [await work(client, name) for name in names]

    return ask(screen_of(context), store, do, audit=acting(context))


def _say(context: typer.Context, schedule: Schedule, what: str) -> None:
    tick = schedule.next_at
    following = "it does not tick any more" if tick is None else f"next {tick_text(tick, wall())}"
    paused = " (it is paused)" if schedule.paused else ""
    said = f"{what}: {spoken_when(schedule.spec)}; {following}{paused}"
    screen_of(context).note(f'schedule "{schedule.name}" {said}')
