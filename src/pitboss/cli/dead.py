"""`pitboss dead`: tasks that failed for good, by cause."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import bulk
from pitboss.cli.documents import attempt_document, task_document
from pitboss.cli.exits import Exit
from pitboss.cli.groups import LOOKED_AT, Group, group_of, groups
from pitboss.cli.options import (
    AllOption,
    DryRunOption,
    FilterArgument,
    JsonOption,
    StoreOption,
    WatchOption,
    YesOption,
    screen_of,
)
from pitboss.cli.picking import filter_of, found, picked
from pitboss.cli.screen import Column, Screen
from pitboss.cli.store import Shown, ask, show
from pitboss.cli.task_page import draw_task
from pitboss.cli.words import ago, local
from pitboss.model.filter import Filter, by
from pitboss.model.queue import Changed
from pitboss.model.states import State
from pitboss.model.waiting import why

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(help="Look after tasks that failed for good.", no_args_is_help=True, rich_markup_mode=None)
_COLUMNS = (
    Column("Group"),
    Column("Count", right=True),
    Column("Task", fills=True),
    Column("Error"),
    Column("Last", right=True),
    Column("First", right=True, drop=3),
    Column("Message", drop=4),
    Column("Sample", drop=5),
)
_FINGERPRINT = re.compile(r"[0-9a-f]{4,12}\Z")
PicksArgument = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP|ID|FILTER", help="Groups of dead list, ids, or a filter.")
]


@app.command("list")
def list_groups(
    context: typer.Context,
    terms: FilterArgument = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List failed tasks by cause, the most frequent first.

    \b
    Examples:
      pitboss dead list
      pitboss dead list queue:mail 'age:<1d'
    """
    wanted = filter_of(terms)

    async def read(opened: "Store") -> Shown:
        listed, more = await groups(opened, wanted)
        document = {"groups": [group.document() for group in listed], "more": more}
        return Shown(document, lambda screen: _draw(screen, listed, more=more))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="As in dead list; its beginning is enough.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one cause: how often, since when, and its newest task with the traceback.

    \b
    Examples:
      pitboss dead show 9f86d081884c
    """

    async def read(opened: "Store") -> Shown:
        return await _group_page(opened, group)

    show(screen_of(context), store, read, as_json=as_json)


@app.command("retry")
def retry(
    context: typer.Context,
    picks: PicksArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
) -> None:
    """Run failed tasks again.

    \b
    Examples:
      pitboss dead retry 9f86d081884c
      pitboss dead retry queue:mail --dry-run
      pitboss dead retry --all --yes
    """

    async def step(opened: "Store", chosen: Filter, limit: int) -> Changed:
        return await opened.retry(chosen, limit=limit)

    act = bulk.Act("Retry", "set to run again", (State.FAILED,), step)
    _act(context, store, act, _picked(picks, everything=everything), sure=sure, dry=dry)


@app.command("discard")
def discard(
    context: typer.Context,
    picks: PicksArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
) -> None:
    """Delete failed tasks with their history. This cannot be undone.

    \b
    Examples:
      pitboss dead discard 9f86d081884c --dry-run
      pitboss dead discard queue:mail 'age:>7d' --yes
    """

    async def step(opened: "Store", chosen: Filter, limit: int) -> Changed:
        return await opened.prune(chosen, limit=limit)

    act = bulk.Act("Delete", "deleted", (State.FAILED,), step)
    _act(context, store, act, _picked(picks, everything=everything), sure=sure, dry=dry)


def _act(context: typer.Context, store: str | None, act: bulk.Act, wanted: Filter, *, sure: bool, dry: bool) -> None:
    screen = screen_of(context)
    total = ask(screen, store, lambda opened: bulk.run(screen, opened, act, wanted, sure=sure, dry=dry))
    if not total.matched:
        screen.note("no failed task matches; nothing was changed")
        raise typer.Exit(Exit.NOT_FOUND)
    bulk.tell(screen, act, total, dry=dry)
    if total.refused:
        raise typer.Exit(Exit.REFUSED)


def _picked(picks: Sequence[str] | None, *, everything: bool) -> Filter:
    if picks and all(_FINGERPRINT.match(word) for word in picks):
        return by(fingerprint=[f"{word}*" for word in picks])
    return picked(picks, everything=everything)


def _draw(screen: Screen, listed: list[Group], *, more: bool) -> None:
    from pitboss import wiring

    now = wiring.SystemClock().now()
    if not listed:
        screen.note("no failed tasks")
        return
    rows = [
        [
            group.fingerprint or "-",
            f"{group.count:,}",
            group.handler,
            group.error,
            ago(group.last, now),
            ago(group.first, now),
            group.message,
            group.sample,
        ]
        for group in listed
    ]
    screen.table(_COLUMNS, rows)
    if more:
        screen.note(f"there are more failures; these are the newest {LOOKED_AT:,}")


async def _group_page(store: "Store", name: str) -> Shown:
    from pitboss import wiring

    group = await group_of(store, name)
    task = await found(store, group.sample)
    attempts = await store.attempts(task.id)
    now = wiring.SystemClock().now()
    document = {
        "group": group.document(),
        "task": task_document(task),
        "attempts": [attempt_document(attempt) for attempt in attempts],
    }

    def draw(screen: Screen) -> None:
        screen.facts([("group", group.fingerprint), ("count", f"{group.count:,}")])
        screen.facts([("first", f"{local(group.first)} ({ago(group.first, now)})")])
        screen.facts([("last", f"{local(group.last)} ({ago(group.last, now)})")])
        screen.facts([("next", f"pitboss dead retry {group.fingerprint}")])
        screen.heading("The newest of them")
        draw_task(screen, task, attempts, why(task, queue=None, sessions=(), now=now), now)

    return Shown(document, draw)
