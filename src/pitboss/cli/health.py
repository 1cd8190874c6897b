"""`pitboss health`: how workers and tasks did over a time, also before the last restart."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import JsonOption, Shown, StoreOption, WatchOption, now, screen_of, show
from pitboss.cli.formatting import ago, local, took
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import Moment, span, spoken
from pitboss.model.figures import Histogram
from pitboss.model.pool import spoken_size
from pitboss.model.queue_forecast import per
from pitboss.model.text import counted
from pitboss.operate.figures import TOO_MANY
from pitboss.operate.overview import Overview, QueueOverview, Work, WorkerOverview, overview_document, read_overview

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_WORKERS = (
    Column("Worker", fills=True),
    Column("Host"),
    Column("State"),
    Column("Processed", right=True),
    Column("Failed", right=True),
    Column("Success", right=True, drop=1),
    Column("Mean", right=True, drop=2),
    Column("Up", right=True, drop=3),
    Column("Memory", right=True, drop=4),
    Column("Crashes", right=True, drop=5),
    Column("Last", right=True, drop=6),
)
_QUEUES = (
    Column("Queue", fills=True),
    Column("Waiting", right=True),
    Column("Running", right=True),
    Column("Processed", right=True),
    Column("Failed", right=True),
    Column("Success", right=True),
    Column("Done", right=True, drop=2),
    Column("Mean", right=True, drop=1),
    Column("P95", right=True, drop=3),
)


def health(
    context: typer.Context,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 1h or 7d.")] = "24h",
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Show how workers and tasks did: success, times, memory and restarts.

    By queue and by worker. What workers did before their last restart counts too; pitboss status says what is wrong.

    \b
    Examples:
      pitboss health
      pitboss health --since 7d --json
    """
    back = span(since, what="--since")

    async def read(opened: "Store") -> Shown:
        found = await read_overview(opened, now(opened), back)
        return Shown(overview_document(found), lambda screen: _draw(screen, found))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


def _draw(screen: Screen, found: Overview) -> None:
    work, moment = found.work, found.until
    active = f"{counted(len(found.present), 'worker')}, {found.active:,} active"
    ended = f"{work.processed:,}: {work.successful:,} successful, {work.failed:,} failed"
    uptime = None if found.uptime is None else f"{spoken(found.uptime)} on average"
    screen.fields(
        [
            ("since", f"{spoken(found.until - found.since)} ago; a manager ran {found.covered:.0%} of the time"),
            ("workers", active),
            ("uptime", uptime),
            ("memory", spoken_size(found.memory) if found.memory else None),
            ("restarts", f"{found.restarts:,}, {counted(found.crashes, 'crash', 'crashes')}"),
            ("processed", ended),
            ("success", None if work.share is None else f"{_share(work)}, {per(work.per_second)} completed"),
            ("others", f"{found.cancelled:,} cancelled, {found.retried:,} runs retried, {found.lost:,} lost"),
            ("run", _times(found.processing)),
            ("wait", _times(found.waited)),
            ("last", ago(found.last, moment)),
        ]
    )
    if found.measured_since is not None:
        screen.line(TOO_MANY.format(local(found.measured_since)), "yellow")
    if found.queues:
        screen.heading("Queues")
        screen.table(_QUEUES, [_queue_row(one) for one in found.queues])
    if found.workers:
        screen.heading("Workers")
        screen.table(_WORKERS, [_worker_row(one, moment) for one in found.workers])


def _times(found: Histogram) -> str | None:
    if not found.n:
        return None
    return f"{took(found.mean)} on average, 95 % within {took(found.quantile(0.95))}"


def _share(work: Work) -> str:
    return "" if work.share is None else f"{work.share * 100:.1f} %"


def _queue_row(one: QueueOverview) -> list[str]:
    work = one.work
    return [
        one.name,
        f"{one.waiting:,}",
        f"{one.running:,}",
        f"{work.processed:,}",
        f"{work.failed:,}",
        _share(work),
        per(work.per_second) if work.successful else "",
        took(one.processing.mean),
        took(one.processing.quantile(0.95)),
    ]


def _worker_row(one: WorkerOverview, moment: Moment) -> list[str]:
    return [
        one.name,
        one.host,
        one.state,
        f"{one.work.processed:,}",
        f"{one.work.failed:,}",
        _share(one.work),
        took(one.mean),
        "" if one.uptime is None else spoken(one.uptime),
        spoken_size(one.memory) if one.memory else "",
        str(one.crashes),
        ago(one.last, moment),
    ]
