"""`pitboss dead`: tasks that failed for good, by cause."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import bulk
from pitboss.cli.bulk import WaitOption
from pitboss.cli.command import (
    AllOption,
    DryRunOption,
    FilterArgument,
    JsonOption,
    Shown,
    StoreOption,
    WatchOption,
    YesOption,
    now,
    screen_of,
    show,
)
from pitboss.cli.formatting import ago, when
from pitboss.cli.screen import Column, Screen
from pitboss.cli.sources import take_back_dead_letters
from pitboss.cli.task_page import draw_task
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import Filter, by
from pitboss.model.limits import rate as rate_of
from pitboss.model.operation import Verb
from pitboss.model.states import State
from pitboss.operate.documents import failure_group_document, task_page_document
from pitboss.operate.failures import FailureGroup, FailureGroups, failure_groups, find_failure_group
from pitboss.operate.tasks import read_task

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, retry and delete tasks that failed for good.", no_args_is_help=True, rich_markup_mode=None
)
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
FailuresArgument = Annotated[
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
    wanted = bulk.filter_of(terms)

    async def read(opened: "Store") -> Shown:
        found = await failure_groups(opened, wanted)
        document = {"groups": [failure_group_document(group) for group in found.groups], "more": found.more}
        return Shown(document, lambda screen: _draw_groups(screen, found, now(opened)))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("show")
def show_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group of dead list, or the beginning of its name.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one cause: when it happened, and its newest task with the traceback.

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
    failures: FailuresArgument = None,
    everything: AllOption = False,
    rate: Annotated[str | None, typer.Option("--rate", metavar="N/TIME", help="How fast, as in 10/s.")] = None,
    stop_on_failures: Annotated[
        int | None,
        typer.Option("--stop-on-failures", metavar="N", min=1, help="With --rate: stop when N of them failed again."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Take back the dead-letter queue of this source of messages."),
    ] = None,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
    waits: WaitOption = True,
) -> None:
    """Run failed tasks again, at a rate if one is given.

    \b
    Examples:
      pitboss dead retry 9f86d081884c
      pitboss dead retry queue:mail --dry-run
      pitboss dead retry --all --yes
      pitboss dead retry queue:mail --rate 10/s --stop-on-failures 5
      pitboss dead retry --source download

    Each task that had failed before it began is retried once, the oldest first; with a rate, evenly
    spread. Many tasks are an operation, which goes on after Ctrl-C: see pitboss operations. With a
    source, messages go from its dead-letter queue in RabbitMQ back to work: tasks of ours run again,
    messages of others become new tasks.
    """
    if source is not None:
        _refuse_beside_source(failures, everything=everything, rate=rate, stop=stop_on_failures)
        take_back_dead_letters(context, store, source, sure=sure, dry=dry)
        return
    wanted = _selected(failures, everything=everything)
    if stop_on_failures is not None and rate is None:
        raise InvalidInput(
            "--stop-on-failures needs a rate",
            why="without one, all tasks are retried before the first can fail again",
            fix="say --rate 10/s too",
        )
    windows = () if rate is None else rate_of(rate)
    act = bulk.Act(
        Verb.RETRY, "Retry", "set to run again", (State.FAILED,), rate=windows, stop_on_failures=stop_on_failures
    )
    bulk.run(context, store, act, wanted, sure=sure, dry=dry, waits=waits)


@app.command("discard")
def discard(
    context: typer.Context,
    failures: FailuresArgument = None,
    everything: AllOption = False,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
    waits: WaitOption = True,
) -> None:
    """Delete failed tasks with their history. This cannot be undone.

    \b
    Examples:
      pitboss dead discard 9f86d081884c --dry-run
      pitboss dead discard queue:mail 'age:>7d' --yes

    A task that was a message of a source stays while the id of that message is remembered.
    """
    act = bulk.Act(Verb.DISCARD, "Delete", "deleted", (State.FAILED,))
    wanted = _selected(failures, everything=everything)
    bulk.run(context, store, act, wanted, sure=sure, dry=dry, waits=waits)


def _refuse_beside_source(failures: list[str] | None, *, everything: bool, rate: str | None, stop: int | None) -> None:
    if failures or everything or rate is not None or stop is not None:
        raise InvalidInput(
            "--source takes back all messages of the dead-letter queue",
            why="messages in RabbitMQ cannot be chosen, and are taken back one after the other",
            fix="leave out the filter, --all, --rate and --stop-on-failures",
        )


def _selected(words: Sequence[str] | None, *, everything: bool) -> Filter:
    if words and all(_FINGERPRINT.match(word) for word in words):
        return by(fingerprint=[f"{word}*" for word in words])
    return bulk.selected(words, everything=everything)


def _draw_groups(screen: Screen, found: FailureGroups, moment: Moment) -> None:
    if not found.groups:
        screen.note("no failed tasks")
        return
    rows = [
        [
            group.fingerprint or "-",
            _count(group),
            group.handler,
            group.error,
            ago(group.last, moment),
            ago(group.first, moment),
            group.message,
            group.sample,
        ]
        for group in found.groups
    ]
    screen.table(_COLUMNS, rows)
    if found.more:
        screen.note("there are older failures; only the newest ones were read")


def _count(group: FailureGroup) -> str:
    return f"{group.count:,}{'+' * group.more}"


async def _group_page(store: "Store", name: str) -> Shown:
    moment = now(store)
    group = await find_failure_group(store, name)
    page = await read_task(store, group.sample, moment)
    newest = task_page_document(page)
    document = {"group": failure_group_document(group), "task": newest["task"], "attempts": newest["attempts"]}

    def draw(screen: Screen) -> None:
        screen.fields([("group", group.fingerprint), ("count", _count(group))])
        screen.fields([("first", when(group.first, moment)), ("last", when(group.last, moment))])
        screen.fields([("next", f"pitboss dead retry {group.fingerprint}")])
        screen.heading("Newest task")
        draw_task(screen, page, moment)

    return Shown(document, draw)
