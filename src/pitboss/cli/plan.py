"""`pitboss plan`: what a launch would do and how long it takes, and the question of `pitboss up --confirm`."""

import asyncio
from collections.abc import Iterator
from math import inf
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pitboss.cli.command import JsonOption, StoreOption, confirm, now, opened, screen_of, settings
from pitboss.cli.doctor import draw_findings, exit_if_problem
from pitboss.cli.formatting import short_key
from pitboss.cli.screen import Column, Screen
from pitboss.cli.up import (
    ConcurrencyOption,
    OnlyOption,
    OnlyPoolsOption,
    PoolOption,
    QueuesOption,
    TargetArgument,
    WorkersOption,
    with_code_store,
)
from pitboss.model.duration import SECOND
from pitboss.model.errors import Refused
from pitboss.model.estimate import Estimate, spoken_range, told
from pitboss.model.finding import Finding, fine, warning
from pitboss.model.text import counted, listed, masked
from pitboss.operate.plan import Launch, LaunchPlan, QueuePlan, plan_document, read_plan

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.manager.plan import Plan
    from pitboss.worker.describe import Description

_SLOTS = (
    Column("Slot"),
    Column("Tasks", right=True),
    Column("Share", right=True),
    Column("Keys", right=True, drop=1),
    Column("Which", fills=True),
)
_KEYS_SHOWN = 8
_WHOLE_FROM = 100
_HOUR, _DAY = 3600, 86_400


def plan(
    context: typer.Context,
    target: TargetArgument = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    pool: PoolOption = None,
    only_pools: OnlyPoolsOption = None,
    only: OnlyOption = None,
    test: Annotated[
        bool, typer.Option("--test-resources", help="Test the members of resource pools now, as resources test does.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a launch would do and how long it takes.

    \b
    Examples:
      pitboss plan app.py
      pitboss plan app.py --workers 5
      pitboss plan app.py --test-resources

    Nothing is started. Checks settings, store, resources and partitions; shows who gets which keys, and an estimate
    with its reason. While managers run, their workers count. Exits with 6 if there is a problem.
    """
    from pitboss.cli.up_pools import chosen_pools
    from pitboss.cli.up_run import with_settings

    screen = screen_of(context)
    asked = {"app": target, "store": store, "workers": workers, "concurrency": concurrency}
    asked |= {"only_queues": queues, "only_pools": only_pools}
    found = settings(screen, **asked)
    description, launch = _described(found), Launch()
    checks = [
        fine("settings", f"settings in {found.folder}" if found.folder else "no settings here: the defaults apply")
    ]
    if description is not None:
        found = with_code_store(found, asked, description)
        pools = chosen_pools(found, description, pool or (), only)
        declared = with_settings(found.settings, description).queues
        launch = Launch(host=gethostname(), pools=pools, queues=declared, handlers=description.handlers)
        checks.append(fine("app", f"{found.settings.app} has {counted(len(description.handlers), 'task')}"))
    read, about = asyncio.run(_read(found.settings.store, launch))
    if description is None:
        checks.append(_without_app(read))
    checks += [about, *read.findings, *(_tested(screen, found.settings.store, read) if test else ())]
    read = msgspec.structs.replace(read, findings=tuple(checks))
    if as_json:
        screen.document(plan_document(read))
    else:
        draw_plan(screen, read)
    exit_if_problem(checks)


def confirm_launch(screen: Screen, url: str, plan: "Plan", description: "Description", *, sure: bool) -> None:
    """Show the plan of this launch, and go on only if a person says yes. `sure`: do not ask."""
    if not sure and not screen.interactive:
        raise Refused(
            "confirmation required",
            why="--confirm asks a person, and stdin is not a terminal",
            fix="repeat with --yes, or leave --confirm out",
        )
    queues = {} if plan.declared is None else plan.declared.queues
    launch = Launch(host=gethostname(), pools=plan.pools, queues=queues, handlers=description.handlers, joins=True)
    read, about = asyncio.run(_read(url, launch))
    draw_plan(screen, msgspec.structs.replace(read, findings=(about, *read.findings)))
    if not sure:
        confirm(screen, f"Start {counted(read.starts, 'worker')}?", otherwise="repeat with --yes")


def draw_plan(screen: Screen, found: LaunchPlan) -> None:
    """The checks, and a page for each queue."""
    for one in found.queues:
        _draw_queue(screen, one)
    draw_findings(screen, found.findings)


def _described(found: "Loaded") -> "Description | None":
    from pitboss.cli.app_description import described

    if found.settings.app is None:
        return None
    return described(found.settings.app, folder=found.folder if found.origins["app"].startswith("file") else None)


def _without_app(read: LaunchPlan) -> Finding:
    if any(one.workers for one in read.queues):
        return fine("app", "no app was named: this is what the managers that run do")
    return warning(
        "app",
        "no app was named, so this shows only what the store has",
        why="no TARGET was given, and no settings name an app",
        fix="pitboss plan app.py",
    )


async def _read(url: str, launch: Launch) -> tuple[LaunchPlan, Finding]:
    """The plan, and whether there is a store. Without one, an empty store stands for it: nothing is created."""
    from pitboss import wiring

    absent = wiring.absent_file(url) is not None or url.startswith("memory:")
    engine = await opened("memory://" if absent else url, create=absent)
    try:
        read = await read_plan(engine, launch, now(engine))
    finally:
        await engine.close()
    about = f"{masked(url)} does not exist yet: pitboss up creates it" if absent else f"{masked(url)} opens"
    return read, fine("store", about)


def _tested(screen: Screen, url: str, read: LaunchPlan) -> Iterator[Finding]:
    """A live test of each resource pool."""
    from pitboss.cli.resource_testing import member_results

    for pool in sorted({one.resource.pool for one in read.queues if one.resource is not None}):
        results = member_results(screen, url, pool)
        failed = [one.name for one in results if one.ok is False]
        said = f"{len(results) - len(failed):,} of {counted(len(results), 'member')} of {pool} answer"
        if failed:
            why = f"{failed[0]}: {next(one.error for one in results if one.ok is False)}"
            fix = f"pitboss resources test {pool} has all of them; {listed(failed)}"
            yield warning("test", said, why=why, fix=fix)
        else:
            yield fine("test", said)


def _draw_queue(screen: Screen, one: QueuePlan) -> None:
    screen.fields([("queue", one.queue.name), ("workers", "\n".join(_crews(one)) or "none")])
    screen.fields([("resources", _resources(one)), ("work", _work(one)), ("progress", _progress(one))])
    screen.fields([("duration", _duration(one)), ("rate", _rate(one.estimate))])
    screen.fields([("estimate", "\n".join(_estimates(one)))])
    if one.slots:
        screen.line()
        screen.table(_SLOTS, list(_rows(one)))
    screen.line()


def _crews(one: QueuePlan) -> Iterator[str]:
    for crew in one.crews:
        pause = f", {crew.delay / SECOND:g} s pause" if crew.delay else ""
        where = f" on {crew.host}" if crew.host else ""
        yield f"{crew.pool}: {counted(crew.workers, 'worker')} × {counted(crew.concurrency, 'task')}{pause}{where}"


def _resources(one: QueuePlan) -> str | None:
    found = one.resource
    if found is None:
        return None
    each = f", {found.usable / one.workers:.1f} per worker" if one.workers else ""
    pace = "" if found.per_hour is None else f", {found.per_hour:,.0f} uses/h"
    return f"{found.pool}: {found.usable:,} of {found.members:,} usable{each}{pace}"


def _work(one: QueuePlan) -> str:
    """How many tasks are left; if some cannot start, how many can end, and what the others wait for."""
    able, said = one.left - one.waiting, f"{counted(one.left, 'task')} left"
    each = f", {able / one.workers:,.0f} per worker" if one.workers and able else ""
    if not one.waiting:
        return f"{said}{each}"
    slots, keys = sum(one.stranded.values()), sum(one.unlisted.values())
    said += f": {able:,} can end{each}"
    said += f"; {slots:,} wait for slots that no worker has" if slots else ""
    said += f"; {keys:,} have a key that is not in the table" if keys else ""
    return said + (f"; {one.paused:,} wait for paused batches" if one.paused else "")


def _progress(one: QueuePlan) -> str:
    return f"{one.progress:.1%} ({one.done:,} of {one.done + one.left:,})"


def _duration(one: QueuePlan) -> str | None:
    if one.timing is None:
        return None
    said = "declared" if not one.timing.samples else f"measured in {counted(one.timing.samples, 'task')}"
    runs = f", {one.timing.runs:.2f} runs per task" if one.timing.runs > 1 else ""
    return f"{one.timing.mean / SECOND:,.3g} s per task ({said}{runs})"


def _rate(found: Estimate) -> str | None:
    if found.rate is None:
        return None
    return f"{_figure(found.rate * 60)}/min, {found.rate * _HOUR:,.0f}/h, {found.rate * _DAY:,.0f}/day"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


def _estimates(one: QueuePlan) -> Iterator[str]:
    yield told(one.estimate)
    for name, other in one.otherwise.items():
        if other.time is not None and other.bound is not None and other.time.middle != inf:
            more = other.left - one.estimate.left
            rest = f"; {counted(-more, 'task')} would wait" if more < 0 else ""
            rest = f"; {counted(more, 'more task')} could end" if more > 0 else rest
            yield f"{name}: {spoken_range(other.time)}, bound by {other.bound.name}{rest}"


def _rows(one: QueuePlan) -> Iterator[list[str]]:
    total = sum(slot.tasks for slot in one.slots)
    for slot in one.slots:
        name = slot.slot if slot.manned else f"{slot.slot} (no worker)"
        share = f"{slot.tasks / total:.0%}" if total else ""
        yield [
            name,
            f"{slot.tasks:,}",
            share,
            f"{len(slot.keys):,}",
            listed([short_key(key) for key in slot.keys], _KEYS_SHOWN),
        ]
