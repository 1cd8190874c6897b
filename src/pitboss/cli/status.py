"""`pitboss status`: the verdict and the next step, then queues, managers, batches and resource pools."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.batch_page import draw_batches
from pitboss.cli.command import JsonOption, Shown, StoreOption, WatchOption, now, screen_of, settings, show
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import age, ago, hour_and_minute
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import SECOND, Moment
from pitboss.model.finding import Grade
from pitboss.model.fleet import ManagerView, alive, manager_view
from pitboss.model.queue import Queue, QueueSettings
from pitboss.model.queue_forecast import QueueForecast, spoken_forecast
from pitboss.model.resource import ResourcePool, Stage
from pitboss.model.schedule_findings import ScheduleFigures
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.text import counted, masked
from pitboss.model.verdict import Health, Verdict
from pitboss.operate.queues import rate_text
from pitboss.operate.status import Status, read_status
from pitboss.operate.status_documents import status_document

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

QUEUE_COLUMNS = (
    Column("Queue", fills=True),
    Column("Pending", right=True),
    Column("Running", right=True),
    Column("Scheduled", right=True, drop=2),
    Column("Held", right=True, drop=1),
    Column("Completed", right=True, drop=3),
    Column("Failed", right=True),
    Column("Cancelled", right=True, drop=4),
    Column("Forecast"),
    Column("Limited by", drop=6),
    Column("Limits", drop=5),
)
_COUNTED = ("pending", "running", "scheduled", "held", "completed", "failed", "cancelled")
_MANAGERS = (
    Column("Manager", fills=True),
    Column("State"),
    Column("Pid", right=True, drop=2),
    Column("Workers", right=True),
    Column("Running", right=True),
    Column("Up", right=True),
    Column("App", drop=1),
    Column("Http", drop=3),
)
_RESOURCE_POOLS = (
    Column("Pool", fills=True),
    Column("Members", right=True),
    *(Column(stage.capitalize(), right=True) for stage in Stage),
    Column("Next", right=True),
)
_GONE_SHOWN = 2
_MINUTE = 60 * SECOND
_STYLES = {
    Health.HEALTHY: "bold green",
    Health.ATTENTION: "bold yellow",
    Health.UNHEALTHY: "bold red",
}


def status(
    context: typer.Context,
    store: StoreOption = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 6 if the store is unhealthy.")] = False,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show how the store is doing, why, and what to do next.

    \b
    Examples:
      pitboss status
      pitboss status --watch 2s
      pitboss status --check && echo all is well
    """
    shown = show(screen_of(context), store, _read, as_json=as_json, watch=watch)
    if check and shown.document.get("health") == Health.UNHEALTHY:
        raise typer.Exit(Exit.UNHEALTHY)


def overview(screen: Screen) -> None:
    """`pitboss` without a command: the status if there is a store, otherwise how to begin."""
    from pitboss import wiring

    found = settings(screen)
    if wiring.absent_file(found.settings.store) is None and not found.settings.store.startswith("memory:"):
        show(screen, None, _read, as_json=False)
        return
    screen.line("Nothing runs here yet.")
    screen.fields([("store", f"{masked(found.settings.store)} (not created yet)")])
    screen.fields([("next", "pitboss up" if found.settings.app else "pitboss init demo")])
    screen.fields([("help", "pitboss --help")])


async def _read(store: "Store") -> Shown:
    found = await read_status(store, now(store))
    return Shown(status_document(found), lambda screen: _draw(screen, found))


def _draw(screen: Screen, found: Status) -> None:
    draw_verdict(screen, found)
    waiting = [finding.what for finding in found.findings if finding.check == "waiting"]
    if len(waiting) > 1:
        screen.heading("Waiting")
        for text in waiting:
            screen.line(text)
    if found.queues:
        screen.heading("Queues")
        screen.table(QUEUE_COLUMNS, [queue_row(queue, found.forecasts) for queue in found.queues])
    managers = [one for one in found.sessions if one.info.kind == "manager"]
    living = alive(managers, found.now)
    gone = [one for one in managers if one not in living][-_GONE_SHOWN:]
    if managers:
        screen.heading("Managers")
        screen.table(_MANAGERS, [_manager_row(one, found.now) for one in (*reversed(living), *reversed(gone))])
    if found.schedules is not None and found.schedules.total:
        screen.heading("Schedules")
        screen.line(_schedules(found.schedules, found.wall))
    for finding in found.findings:
        if finding.check in ("capacity", "schedules", "partitions") and finding.grade is not Grade.OK:
            screen.note(f"warning: {finding.what}; {finding.why}")
    if found.batches:
        screen.heading("Batches")
        draw_batches(screen, found.batches, found.now)
    if found.resource_pools:
        screen.heading("Resources")
        screen.table(_RESOURCE_POOLS, [_resource_pool_row(pool, found.now) for pool in found.resource_pools])


def draw_verdict(screen: Screen, found: Status) -> None:
    """One sentence; its cause, since when and until when, if that is known; what helps, and what else is wrong."""
    verdict = found.verdict
    screen.line(verdict.sentence, _STYLES[verdict.health])
    if verdict.why:
        screen.line(f"Cause: {verdict.why}")
    if verdict.since is not None and found.now - verdict.since >= _MINUTE:
        screen.line(f"Since: {hour_and_minute(verdict.since)}, {ago(verdict.since, found.now)}")
    if until := until_text(verdict, found.now):
        screen.line(f"Until: {until}")
    if verdict.next_try is not None:
        screen.line(f"Next try: about {hour_and_minute(verdict.next_try)}, {ago(verdict.next_try, found.now)}")
    screen.line(f"Next: {found.next}")
    for line in verdict.also:
        screen.line(f"Also: {line}")


def until_text(verdict: Verdict, moment: Moment) -> str:
    """ "about 10:32, in 18m, when 13 more are back"."""
    if verdict.until is None:
        return verdict.until_note
    told = f"about {hour_and_minute(verdict.until)}, {ago(verdict.until, moment)}"
    return f"{told}, {verdict.until_note}" if verdict.until_note else told


def queue_row(queue: Queue, forecasts: Mapping[str, QueueForecast]) -> list[str]:
    """A queue's cells under `QUEUE_COLUMNS`."""
    name = f"{queue.name} (paused)" if queue.paused else queue.name
    counts = [f"{queue.counts.get(State(state), 0):,}" for state in _COUNTED]
    found = forecasts.get(queue.name)
    counts[_COUNTED.index("running")] = running_text(queue, found)
    told = ["", ""] if found is None else [forecast_text(found), found.pinch.said]
    return [name, *counts, *told, limits_text(queue)]


def running_text(queue: Queue, found: QueueForecast | None) -> str:
    """ "63 (32 at work)": the others are claimed, and wait in a manager for a free seat."""
    claimed = queue.counts.get(State.RUNNING, 0)
    waits = found is not None and found.at_work is not None and found.at_work < claimed
    return f"{claimed:,} ({found.at_work:,} at work)" if waits and found is not None else f"{claimed:,}"


def forecast_text(found: QueueForecast) -> str:
    """ "stalled since 14:02"."""
    return spoken_forecast(found, hour_and_minute)


def limits_text(queue: Queue) -> str:
    """Its limits, and what is declared if an operator set them."""
    if not queue.limited:
        return _limits(queue)
    declared = _limits(queue.declared or QueueSettings()) or "none"
    who = f"({' and '.join(queue.limited)} set by operator; declared: {declared})"
    return f"{_limits(queue) or 'no limits'} {who}"


def _limits(whose: Queue | QueueSettings) -> str:
    limits = [
        rate_text(whose.rate),
        "" if whose.capacity is None else f"at most {whose.capacity:,}",
        "" if whose.max_per_key is None else f"{whose.max_per_key:,} per key",
    ]
    return ", ".join(one for one in limits if one)


def _manager_row(session: Session, moment: Moment) -> list[str]:
    manager = manager_view(session)
    living = bool(alive([session], moment))
    return [
        session.info.host,
        "alive" if living else "gone",
        str(session.info.pid),
        str(len(manager.live)) if living else "",
        str(manager.running) if living else "",
        age(session.opened_at, moment) if living else "",
        manager.snapshot.target.rsplit("/", 1)[-1],
        server_text(manager) if living else "",
    ]


def _schedules(found: ScheduleFigures, wall: Moment) -> str:
    """ "12 schedules, 2 paused, 1 overdue; next nightly in 3h"."""
    paused = f", {found.paused:,} paused" if found.paused else ""
    overdue = f", {len(found.overdue):,} overdue" if found.overdue else ""
    following = "" if found.next_at is None else f"; next {found.next_name} {ago(found.next_at, wall)}"
    return f"{counted(found.total, 'schedule')}{paused}{overdue}{following}"


def server_text(manager: ManagerView) -> str:
    """The address of its HTTP server, and the state if that does not run."""
    server = manager.snapshot.http
    if server is None:
        return ""
    return server.url if server.state == "running" else f"{server.url} ({server.state})".strip()


def _resource_pool_row(pool: ResourcePool, moment: Moment) -> list[str]:
    stages = [f"{pool.stages.get(stage, 0):,}" for stage in Stage]
    return [pool.name, f"{pool.members:,}", *stages, ago(pool.next_at, moment)]
