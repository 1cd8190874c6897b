"""`pitboss pools`: look at worker pools on every host; size, restart, pause and resume them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.awaiting import until
from pitboss.cli.options import (
    HostOption,
    JsonOption,
    StoreOption,
    TimeoutOption,
    WaitOption,
    WatchOption,
    screen_of,
)
from pitboss.cli.orders import order, wished
from pitboss.cli.pools_page import draw_pools, pools_document
from pitboss.cli.ps import unknown_host
from pitboss.cli.scope import Scope, fleet_of, scope_of
from pitboss.cli.screen import Screen
from pitboss.cli.store import Shown, ask, show
from pitboss.cli.words import counted
from pitboss.model import rollout_progress
from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.fleet import Place, places
from pitboss.model.pool_keys import MOST_WORKERS

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

app = typer.Typer(
    help="Look at worker pools; size, restart, pause and resume them.", no_args_is_help=True, rich_markup_mode=None
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pool.")]
_AUTO = "auto"

_TIMEOUT = "5m"
Arrival = Callable[[Sequence[Place]], rollout_progress.RolloutProgress]


@app.command("list")
def list_pools(
    context: typer.Context,
    host: HostOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List the pools of every manager: how many workers there are and should be, and why.

    \b
    Examples:
      pitboss pools list
      pitboss pools list --host box1 --json
    """

    async def read(opened: "Store") -> Shown:
        fleet = await fleet_of(opened)
        if host is not None and all(one.host != host for one in fleet):
            raise unknown_host(host, fleet)
        found = places(fleet, host=host)
        known = await wished(opened)
        return Shown(pools_document(found, known), lambda screen: draw_pools(screen, found, known))

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
    """Give a pool another number of workers in each manager, until it is told otherwise.

    \b
    Examples:
      pitboss pools scale download 4
      pitboss pools scale download 0 --host box1 --wait
      pitboss pools scale download auto

    The number holds over restarts of managers, before what configuration and load say; auto withdraws it.
    """
    screen, limit, wanted = screen_of(context), span(timeout, what="--timeout"), _size(size)
    if wanted is None and wait:
        raise InvalidInput(
            "--wait needs a number",
            why="with auto, configuration and load decide how many workers there will be",
            fix="leave out --wait, and look at pitboss pools list",
        )

    async def work(opened: "Store") -> None:
        scope = await scope_of(opened, name, host)
        overruled = await scope.order(opened, size=wanted)
        for place in scope.places:
            _tell(screen, place, counted(scope.before(place).size or 0, "worker"), *_aim(place, wanted, scope))
        _tell_rest(screen, scope, "as configured" if wanted is None else counted(wanted, "worker"), overruled)
        if wait and wanted is not None:
            await _arrived(
                screen, opened, scope, f"scaling {name}", partial(rollout_progress.scaled, size=wanted), limit
            )

    ask(screen, store, work)


@app.command("restart")
def restart(
    context: typer.Context,
    name: NameArgument,
    host: HostOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Replace a pool's workers one by one; each ends its tasks first.

    \b
    Examples:
      pitboss pools restart download
      pitboss pools restart download --wait --timeout 10m
    """
    screen, limit = screen_of(context), span(timeout, what="--timeout")

    async def work(opened: "Store") -> None:
        scope = await scope_of(opened, name, host)
        generation = rollout_progress.next_generation(scope.places, scope.generations())
        await order(opened, scope.key, scope.written(scope.key), generation=generation)
        for place in scope.places:
            was = f"{counted(len(place.live), 'worker')} of generation {scope.before(place).generation}"
            _tell(screen, place, was, f"generation {generation}")
        _tell_rest(screen, scope, f"generation {generation}")
        if wait:
            arrival = partial(rollout_progress.restarted, generation=generation)
            await _arrived(screen, opened, scope, f"restarting {name}", arrival, limit)

    ask(screen, store, work)


@app.command("pause")
def pause(
    context: typer.Context,
    name: NameArgument,
    host: HostOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until none of its tasks runs.")] = False,
    timeout: TimeoutOption = _TIMEOUT,
    store: StoreOption = None,
) -> None:
    """Give a pool's workers no more tasks. What runs goes on, and the workers stay.

    \b
    Examples:
      pitboss pools pause download
      pitboss pools pause download --host box1 --wait
    """
    _set_paused(context, name, host, store, paused=True, limit=span(timeout, what="--timeout") if wait else None)


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
    context: typer.Context, name: str, host: str | None, store: str | None, *, paused: bool, limit: Span | None
) -> None:
    screen = screen_of(context)
    aim = "paused" if paused else "running"

    async def work(opened: "Store") -> None:
        scope = await scope_of(opened, name, host)
        # "Not paused" has to be said only on a host that is to differ from the others.
        differs = host is not None and bool(scope.everywhere.get("paused"))
        overruled = await scope.order(opened, paused=True if paused else False if differs else None)
        for place in scope.places:
            rest = f"; {counted(place.running, 'task')} still running" if paused and place.running else ""
            _tell(screen, place, "paused" if scope.before(place).paused else "running", aim, rest)
        _tell_rest(screen, scope, aim, overruled)
        if limit is not None:
            what, arrival = ("pausing", rollout_progress.paused) if paused else ("resuming", rollout_progress.resumed)
            await _arrived(screen, opened, scope, f"{what} {name}", arrival, limit)

    ask(screen, store, work)


async def _arrived(screen: Screen, store: "Store", scope: Scope, what: str, arrival: Arrival, timeout: Span) -> None:
    async def look() -> rollout_progress.RolloutProgress:
        return arrival(places(await fleet_of(store), scope.name, scope.host))

    await until(screen, what, look, timeout)
    screen.note(f"{what}: done")


def _size(text: str) -> int | None:
    if text == _AUTO:
        return None
    number = int(text) if text.isdecimal() and text.isascii() else -1
    if not 0 <= number <= MOST_WORKERS:
        raise InvalidInput(
            f"{text!r:.40} is not a number of workers",
            why=f"it is a whole number from 0 to {MOST_WORKERS:,}, or auto",
            fix="say pitboss pools scale NAME 4, or auto for what is configured",
        )
    return number


def _aim(place: Place, wanted: int | None, scope: Scope) -> tuple[str, str]:
    """What it will be, and what is to be said about that."""
    least, most = place.pool.least, place.pool.most
    configured = str(least) if least == most else f"{least} to {most}, as the load wants"
    if wanted is not None:
        return counted(wanted, "worker"), "" if least <= wanted <= most else f" (configured: {configured})"
    everywhere = scope.everywhere.get("size")
    if scope.host is not None and everywhere is not None:
        return counted(everywhere, "worker"), ", as on every host"
    return (f"{configured}, as configured" if least == most else configured), ""


def _tell(screen: Screen, place: Place, was: str, aim: str, rest: str = "") -> None:
    change = f"{was} already" if was == aim else f"{was} → {aim}"
    screen.note(f'pool "{place.pool.name}" on {place.manager.name}: {change}{rest}')


def _tell_rest(screen: Screen, scope: Scope, aim: str, overruled: Sequence[str] = ()) -> None:
    if not scope.places:
        screen.note(f'pool "{scope.name}": {aim}, as soon as a manager runs it')
    if overruled:
        screen.note(f"this replaces what was ordered for {', '.join(overruled)} alone")
