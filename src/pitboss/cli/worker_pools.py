"""`pitboss pools`: list worker pools on every host; scale, restart, pause and resume them, and set their pauses."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    HostOption,
    JsonOption,
    ReasonOption,
    Shown,
    StoreOption,
    TimeoutOption,
    WaitOption,
    WatchOption,
    ask,
    now,
    operator,
    screen_of,
    show,
)
from pitboss.cli.progress import rollout
from pitboss.cli.screen import Column, Screen
from pitboss.model import rollout_progress
from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.fleet import WorkerPoolView
from pitboss.model.pool import Range, range_text
from pitboss.model.pool_keys import MOST_WORKERS, checked
from pitboss.model.rollout_progress import RolloutProgress
from pitboss.model.text import counted
from pitboss.operate.desired_state import (
    PoolChange,
    StoredState,
    delay_pool,
    pause_pool,
    read_desired_state,
    restart_pool,
    scale_pool,
)
from pitboss.operate.documents import worker_pools_document
from pitboss.operate.workers import list_worker_pools, read_worker_pools

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="List, scale, set, restart, pause and resume worker pools.", no_args_is_help=True, rich_markup_mode=None
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The worker pool.")]
_AUTO = "auto"
_TIMEOUT = "5m"
_COLUMNS = (
    Column("Pool", fills=True),
    Column("Host"),
    Column("State"),
    Column("Workers", right=True),
    Column("Range", right=True, drop=4),
    Column("Seats", right=True, drop=6),
    Column("Running", right=True),
    Column("Generation", right=True, drop=7),
    Column("Ordered", drop=3),
    Column("Queues", drop=5),
    Column("Why", drop=2),
)
ProgressOf = Callable[[Sequence[WorkerPoolView]], RolloutProgress]


@app.command("list")
def list_pools(
    context: typer.Context,
    host: HostOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List the worker pools of every manager: how many workers they have and should have, and why.

    \b
    Examples:
      pitboss pools list
      pitboss pools list --host box1 --json
    """

    async def read(opened: "Store") -> Shown:
        pools = await list_worker_pools(opened, now(opened), host)
        stored = await read_desired_state(opened)
        return Shown(worker_pools_document(pools, stored), lambda screen: _draw(screen, pools, stored))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("scale")
def scale(
    context: typer.Context,
    name: NameArgument,
    size: Annotated[str, typer.Argument(metavar="N|auto", help="Workers in each manager; auto: as configured.")],
    host: HostOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Set the number of workers that a pool has in each manager.

    \b
    Examples:
      pitboss pools scale download 4
      pitboss pools scale download 0 --host box1 --wait
      pitboss pools scale download auto

    The number overrides configuration and load, and survives restarts of managers; auto removes it.
    """
    screen, limit, wanted = screen_of(context), span(timeout, what="--timeout"), _size(size)
    if wanted is None and wait:
        raise InvalidInput(
            "--wait needs a number",
            why="with auto, configuration and load decide how many workers there will be",
            fix="leave out --wait, and look at pitboss pools list",
        )

    async def work(opened: "Store") -> None:
        change = await scale_pool(opened, now(opened), name, wanted, host=host, by=operator())
        for one in change.pools:
            _tell(screen, one.view, counted(one.before.size or 0, "worker"), *_goal(one.view, wanted, change))
        _tell_rest(screen, change, "as configured" if wanted is None else counted(wanted, "worker"))
        if wait and wanted is not None:
            progress = partial(rollout_progress.scaled, size=wanted)
            await _wait(screen, opened, change, f"scaling {name}", progress, limit)

    ask(screen, store, work, audit=acting(context))


@app.command("set")
def set_keys(
    context: typer.Context,
    name: NameArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="delay=12-25s: the pause after each task.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget what operators set before: what is configured holds again.")
    ] = False,
    host: HostOption = None,
    store: StoreOption = None,
) -> None:
    """Set how long the workers of a pool pause after each task, while they run; without a key, show it.

    \b
    Examples:
      pitboss pools set scrapers delay=12-25s
      pitboss pools set scrapers --reset

    It overrides the configuration, and survives restarts of managers, until --reset. A longer pause that has begun is
    shortened.
    """
    screen, wanted = screen_of(context), _delay(name, keys or (), reset=reset)

    async def work(opened: "Store") -> None:
        if wanted is None and not reset:
            stored = await read_desired_state(opened)
            for view in await read_worker_pools(opened, now(opened), name, host):
                ordered = stored.state.pool(name, view.manager.host).delay
                screen.line(f"{view.manager.name}  {''.join(_delay_texts(view, ordered))}")
            return
        change = await delay_pool(opened, now(opened), name, wanted, host=host, by=operator())
        for one in change.pools:
            delay, note = _delay_texts(one.view, wanted)
            _tell(screen, one.view, f"delay {range_text(one.before.delay or (0, 0))}", delay, note)
        _tell_rest(screen, change, "delay as configured" if wanted is None else f"delay {range_text(wanted)}")

    ask(screen, store, work, audit=acting(context) if keys or reset else None)


@app.command("restart")
def restart(
    context: typer.Context,
    name: NameArgument,
    host: HostOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Replace a pool's workers one by one; each finishes its tasks first.

    \b
    Examples:
      pitboss pools restart download
      pitboss pools restart download --wait --timeout 10m
    """
    screen, limit = screen_of(context), span(timeout, what="--timeout")

    async def work(opened: "Store") -> None:
        change = await restart_pool(opened, now(opened), name, host=host, by=operator())
        generation = change.generation or 0
        for one in change.pools:
            was = f"{counted(len(one.view.live), 'worker')} of generation {one.before.generation}"
            _tell(screen, one.view, was, f"generation {generation}")
        _tell_rest(screen, change, f"generation {generation}")
        if wait:
            progress = partial(rollout_progress.restarted, generation=generation)
            await _wait(screen, opened, change, f"restarting {name}", progress, limit)

    ask(screen, store, work, audit=acting(context))


@app.command("pause")
def pause(
    context: typer.Context,
    name: NameArgument,
    host: HostOption = None,
    reason: ReasonOption = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until none of its tasks runs.")] = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Give a pool's workers no more tasks. Running tasks finish, and the workers stay.

    \b
    Examples:
      pitboss pools pause download
      pitboss pools pause download --host box1 --wait
    """
    limit = span(timeout, what="--timeout") if wait else None
    _set_paused(context, name, host, store, paused=True, limit=limit, reason=reason)


@app.command("resume")
def resume(
    context: typer.Context,
    name: NameArgument,
    host: HostOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Give a pool's workers tasks again.

    \b
    Examples:
      pitboss pools resume download
    """
    _set_paused(context, name, host, store, paused=False, limit=span(timeout, what="--timeout") if wait else None)


def _set_paused(
    context: typer.Context,
    name: str,
    host: str | None,
    store: str | None,
    *,
    paused: bool,
    limit: Span | None,
    reason: str = "",
) -> None:
    screen = screen_of(context)
    goal = "paused" if paused else "running"

    async def work(opened: "Store") -> None:
        change = await pause_pool(opened, now(opened), name, paused=paused, host=host, by=operator(), reason=reason)
        for one in change.pools:
            rest = f"; {counted(one.view.running, 'task')} still running" if paused and one.view.running else ""
            _tell(screen, one.view, "paused" if one.before.paused else "running", goal, rest)
        _tell_rest(screen, change, goal)
        if limit is not None:
            what, progress = ("pausing", rollout_progress.paused) if paused else ("resuming", rollout_progress.resumed)
            await _wait(screen, opened, change, f"{what} {name}", progress, limit)

    ask(screen, store, work, audit=acting(context))


async def _wait(
    screen: Screen, store: "Store", change: PoolChange, what: str, progress: ProgressOf, timeout: Span
) -> None:
    async def look() -> RolloutProgress:
        return progress(await read_worker_pools(store, now(store), change.name, change.host))

    await rollout(screen, what, look, timeout)
    screen.note(f"{what}: done")


def _size(text: str) -> int | None:
    if text == _AUTO:
        return None
    number = int(text) if text.isdecimal() and text.isascii() else -1
    if not 0 <= number <= MOST_WORKERS:
        raise InvalidInput(
            f"{text!r:.40} is not a number of workers",
            why=f"it is a whole number from 0 to {MOST_WORKERS:,}, or auto",
            fix="say pitboss pools scale NAME 4, or auto for the configured number",
        )
    return number


def _delay(name: str, keys: Sequence[str], *, reset: bool) -> Range | None:
    """The delay that these keys set; None if there are none."""
    if keys and reset:
        raise InvalidInput(
            "--reset sets no keys", why="it returns to what is configured", fix=f"pitboss pools set {name} --reset"
        )
    found: Range | None = None
    for text in keys:
        key, equals, value = text.partition("=")
        if key != "delay" or not equals:
            others = {"workers": f"pitboss pools scale {name} {value or 'N'} sets the number of workers"}
            raise InvalidInput(
                f"{text!r:.60} cannot be set while the pool runs",
                why=others.get(key, "only its delay can, the pause after each task; the rest is configured"),
                fix=f"pitboss pools set {name} delay=12-25s",
            )
        found = checked(key, value)
    return found


def _delay_texts(view: WorkerPoolView, ordered: Range | None) -> tuple[str, str]:
    """The pause after a task, and a remark on that."""
    configured = range_text(view.pool.delay)
    if ordered is None:
        return f"delay {configured}", ", as configured"
    return f"delay {range_text(ordered)}", "" if ordered == view.pool.delay else f" (configured: {configured})"


def _goal(view: WorkerPoolView, wanted: int | None, change: PoolChange) -> tuple[str, str]:
    """How many workers there will be, and a remark on that."""
    chosen = len(view.pool.only)
    least, most = (chosen, chosen) if chosen else (view.pool.least, view.pool.most)
    configured = str(least) if least == most else f"{least} to {most}, depending on load"
    if wanted is not None:
        return counted(wanted, "worker"), "" if least <= wanted <= most else f" (configured: {configured})"
    if change.host is not None and change.everywhere is not None:
        return counted(change.everywhere, "worker"), ", as on every host"
    return (f"{configured}, as configured" if least == most else configured), ""


def _tell(screen: Screen, view: WorkerPoolView, was: str, goal: str, rest: str = "") -> None:
    change = f"{was} already" if was == goal else f"{was} → {goal}"
    screen.note(f'pool "{view.pool.name}" on {view.manager.name}: {change}{rest}')


def _tell_rest(screen: Screen, change: PoolChange, goal: str) -> None:
    if not change.pools:
        screen.note(f'pool "{change.name}": {goal}, as soon as a manager runs it')
    if change.overruled:
        screen.note(f"this replaces what was ordered for {', '.join(change.overruled)} alone")


def _draw(screen: Screen, pools: Sequence[WorkerPoolView], stored: StoredState) -> None:
    if pools:
        screen.table(_COLUMNS, [_row(view, stored) for view in pools])
    else:
        screen.note("no manager is running on this store; start one with pitboss up")
    running = {view.pool.name for view in pools}
    for key in sorted(stored.pools):
        name, _, host = key.partition("@")
        if name not in running:
            where = f" on {host}" if host else ""
            screen.note(f'note: there is an order for pool "{name}"{where}, which no manager runs now')


def _row(view: WorkerPoolView, stored: StoredState) -> list[str]:
    pool = view.pool
    return [
        pool.name,
        view.manager.host,
        view.state,
        f"{len(view.ready)}/{pool.wanted}",
        str(pool.least) if pool.least == pool.most else f"{pool.least}–{pool.most}",
        str(pool.concurrency),
        str(view.running),
        str(pool.generation),
        _ordered(view, stored),
        "all" if pool.queues is None else ", ".join(pool.queues),
        pool.why or "; ".join(f"{worker.name}: {worker.why or 'crashed'}" for worker in view.crashed),
    ]


def _ordered(view: WorkerPoolView, stored: StoredState) -> str:
    wanted = stored.state.pool(view.pool.name, view.manager.host)
    parts = [
        f"{wanted.size} workers" if wanted.size is not None else "",
        f"delay {range_text(wanted.delay)}" if wanted.delay is not None else "",
        (f"paused: {wanted.paused_reason}" if wanted.paused_reason else "paused") if wanted.paused else "",
    ]
    return ", ".join(part for part in parts if part)
