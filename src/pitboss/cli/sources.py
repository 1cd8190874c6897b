"""`pitboss sources`: queues of RabbitMQ whose messages become tasks, and how they are."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    Shown,
    StoreOption,
    WatchOption,
    ask,
    confirm,
    id_maker,
    now,
    screen_of,
    settings,
    show,
)
from pitboss.cli.errors import Exit
from pitboss.cli.formatting import ago
from pitboss.cli.progress import counting
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.source import COUNTS_RETURNS, KNOWN_FAILED
from pitboss.model.text import counted, listed
from pitboss.operate.sources import SourceReading, read_sources, source_document

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store
    from pitboss.model.source import SourceFigures, SourceSpec
    from pitboss.sources.taking_back import TakenBack

_COLUMNS = (
    Column("Source"),
    Column("Queue", fills=True),
    Column("Handler", drop=6),
    Column("State"),
    Column("Since", right=True, drop=5),
    Column("Ready", right=True, drop=8),
    Column("Received", right=True, drop=2),
    Column("Stored", right=True),
    Column("Known", right=True, drop=3),
    Column("Malformed", right=True, drop=4),
    Column("Outbox"),
    Column("Waiting", right=True),
    Column("Published", right=True, drop=1),
    Column("Host", drop=7),
)


def sources(
    context: typer.Context, store: StoreOption = None, as_json: JsonOption = False, watch: WatchOption = None
) -> None:
    """Show queues of RabbitMQ whose messages become tasks.

    \b
    Examples:
      pitboss sources
      pitboss sources --watch 2s

    Figures count since the delivery process started. Dead letters are taken back with: pitboss dead retry --source NAME
    """

    async def read(opened: "Store") -> Shown:
        found, moment = await read_sources(opened), now(opened)
        document = {"sources": [source_document(one) for one in found]}
        return Shown(document, lambda screen: _draw(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


def _draw(screen: Screen, found: list[SourceReading], moment: Moment) -> None:
    if not found:
        screen.note("no source of messages runs; write [sources.NAME] into pitboss.toml and start pitboss up")
        return
    rows = [
        [
            one.figures.name,
            one.figures.queue,
            one.figures.handler,
            one.figures.state.value,
            ago(one.figures.since, moment) if one.figures.since else "-",
            "-" if one.figures.ready is None else f"{one.figures.ready:,}",
            f"{one.figures.received:,}",
            f"{one.figures.stored:,}",
            f"{one.figures.duplicates:,}",
            f"{one.figures.malformed:,}",
            one.figures.out_state.value,
            f"{one.outbox:,}",
            f"{one.figures.published:,}",
            one.host,
        ]
        for one in found
    ]
    screen.table(_COLUMNS, rows)
    for one in found:
        for why in dict.fromkeys(text for text in (one.figures.why, one.figures.out_why) if text):
            screen.note(f"{one.figures.name}: {why}")
        for said in _counts(one.figures):
            screen.note(f"{one.figures.name}: {said}")


def _counts(figures: "SourceFigures") -> Iterator[str]:
    """What rarely happens, in sentences."""
    if figures.requeued:
        yield f"{counted(figures.requeued, 'message was', 'messages were')} given back to RabbitMQ; {COUNTS_RETURNS}"
    if figures.known_failed:
        yield f"{counted(figures.known_failed, 'message')} {KNOWN_FAILED}"
    if figures.malformed:
        yield f"the last malformed message: {figures.malformed_why}"
    if figures.retried:
        yield f"{counted(figures.retried, 'failed task')} set to run again, because the dead letter came back"


def take_back_dead_letters(context: typer.Context, store: str | None, name: str, *, sure: bool, dry: bool) -> None:
    """`pitboss dead retry --source NAME`."""
    screen = screen_of(context)
    spec = _spec(screen, store, name)

    async def work(opened: "Store") -> "TakenBack | None":
        from pitboss import wiring
        from pitboss.sources.taking_back import take_back, waiting_dead_letters

        broker = wiring.make_broker(spec.url)
        matched = await waiting_dead_letters(broker, spec)
        if not matched:
            screen.note(f"{spec.dead_letter_queue} is empty; nothing was changed")
            raise typer.Exit(Exit.NOT_FOUND)
        if dry:
            screen.note(f"would take back {counted(matched, 'message')}; nothing was changed")
            return None
        if not sure:
            confirm(screen, f"Take back {counted(matched, 'message')} of {spec.dead_letter_queue}?")
        with counting(screen, "Take back", matched) as done:
            return await take_back(
                broker,
                spec,
                opened,
                id_maker(),
                progress=lambda report: done(report.retried + report.created + report.known + report.left),
            )

    report = ask(screen, store, work, audit=acting(context))
    if report is not None:
        _tell(screen, spec, report)


def _tell(screen: Screen, spec: "SourceSpec", report: "TakenBack") -> None:
    parts = [
        (report.retried, f"{counted(report.retried, 'task')} set to run again"),
        (report.created, f"{counted(report.created, 'new task')} of messages without a task"),
        (report.known, f"{counted(report.known, 'message')} removed whose task runs or is done already"),
        (report.left, f"{counted(report.left, 'message')} left in {spec.dead_letter_queue}"),
    ]
    screen.line("; ".join(text for number, text in parts if number) or "nothing was taken back")
    for reason in report.reasons:
        screen.note(f"left: {reason}")
    if more := report.left - len(report.reasons):
        screen.note(f"left: {more:,} more")
    if report.left:
        raise typer.Exit(Exit.FAILED)


def _spec(screen: Screen, store: str | None, name: str) -> "SourceSpec":
    from pitboss import config

    known = {one.name: one for one in config.source_specs(settings(screen, store=store).settings.sources)}
    if name not in known:
        raise NotFound(
            f'there is no source "{name}"',
            why=f"the settings have {listed(list(known))}" if known else "the settings have no [sources.NAME]",
            fix="run this where the settings of the manager are, or correct the name",
        )
    return known[name]
