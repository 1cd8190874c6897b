"""`pitboss stop` and `pitboss drain`: what is wanted of managers, on whatever host they are."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pitboss.cli.awaiting import until
from pitboss.cli.bulk import confirm
from pitboss.cli.exits import Refused
from pitboss.cli.options import HostOption, StoreOption, TimeoutOption, YesOption, screen_of
from pitboss.cli.orders import order, wished
from pitboss.cli.ps import unknown_host
from pitboss.cli.scope import fleet_of
from pitboss.cli.screen import Screen
from pitboss.cli.store import ask
from pitboss.cli.words import counted
from pitboss.model import rollout_progress
from pitboss.model.desired_state import manager_key
from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.fleet import Managed, doing, managed
from pitboss.model.session import Session

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

ManagerOption = Annotated[
    int | None, typer.Option("--manager", metavar="N", help="Only this one, by its number in pitboss ps.")
]
PatienceOption = Annotated[
    bool | None, typer.Option("--wait/--no-wait", help="Wait until it is done; on a terminal that is the default.")
]
_TIMEOUT = "5m"
_MANAGER = "manager/"
Arrival = Callable[[Sequence[Managed], Iterable[Managed]], rollout_progress.RolloutProgress]


class _Order(NamedTuple):
    """What is wished of managers, in the words that are shown, and how to see that it has come about."""

    verb: str
    asked: str
    doing: str
    wish: dict[str, Any]
    arrival: Arrival


def stop(
    context: typer.Context,
    host: HostOption = None,
    manager: ManagerOption = None,
    now: Annotated[
        bool, typer.Option("--now", help="Do not let running tasks end; they go back to the queue.")
    ] = False,
    wait: PatienceOption = None,
    timeout: TimeoutOption = _TIMEOUT,
    sure: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Stop managers; running tasks end first.

    \b
    Examples:
      pitboss stop
      pitboss stop --host box1 --no-wait
      pitboss stop --manager 7 --now

    No task is lost: what does not end within the manager's drain time goes back to its queue, at no attempt's cost.
    """
    wish = {"stop": True, "now": True} if now else {"stop": True}
    what = _Order("stop", "to stop", "stopping", wish, rollout_progress.stopped)
    _give(context, store, what, host, manager, sure=sure, wait=wait, limit=span(timeout, what="--timeout"))


def drain(
    context: typer.Context,
    host: HostOption = None,
    manager: ManagerOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let them take tasks again.")] = False,
    wait: PatienceOption = None,
    timeout: TimeoutOption = _TIMEOUT,
    sure: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Let managers take no more tasks. What runs goes on; managers and workers stay.

    \b
    Examples:
      pitboss drain --host box1
      pitboss drain --undo --host box1
    """
    what = (
        _Order(
            "undo the drain of", "to take tasks again", "undoing the drain", {"drain": None}, rollout_progress.undrained
        )
        if undo
        else _Order("drain", "to take no more tasks", "draining", {"drain": True}, rollout_progress.drained)
    )
    _give(context, store, what, host, manager, sure=sure, wait=wait, limit=span(timeout, what="--timeout"))


def _give(
    context: typer.Context,
    store: str | None,
    what: _Order,
    host: str | None,
    manager: int | None,
    *,
    sure: bool,
    wait: bool | None,
    limit: Span,
) -> None:
    screen = screen_of(context)
    patient = screen.err.is_terminal if wait is None else wait
    if host is not None and manager is not None:
        raise InvalidInput(
            "--host and --manager cannot be given together",
            why="a manager's number names it on whatever host it is",
            fix="give one of them",
        )

    async def work(opened: "Store") -> None:
        chosen = _chosen(await fleet_of(opened), host, manager)
        if len(chosen) > 1 and host is None and not sure:
            _ask(screen, what, chosen)
        await _write(opened, what, chosen)
        for one in chosen:
            tasks = doing(one.told.workers)
            screen.note(f"asked {one.name} {what.asked}" + (f"; it runs {tasks}" if tasks else ""))
        if patient:
            await _arrived(screen, opened, what, chosen, limit)

    ask(screen, store, work)


def _chosen(fleet: list[Managed], host: str | None, manager: int | None) -> list[Managed]:
    if not fleet:
        raise NotFound(
            "no manager is running on this store",
            why="none has a live session; one that was killed is forgotten within seconds",
            fix="pitboss ps --all shows those of the last hour",
        )
    found = [one for one in fleet if host in (None, one.host) and manager in (None, one.number)]
    if found:
        return found
    if host is not None:
        raise unknown_host(host, fleet)
    raise NotFound(
        f"there is no running manager {manager}",
        why=f"running are {', '.join(f'{one.number} ({one.host})' for one in fleet)}",
        fix="pitboss ps shows the numbers; a manager that starts again gets a new one",
    )


def _ask(screen: Screen, what: _Order, chosen: list[Managed]) -> None:
    screen.note(f"{what.verb.capitalize()} {counted(len(chosen), 'manager')}:")
    for one in chosen:
        screen.note(f"  {one.name}, {counted(len(one.live), 'worker')}, {one.running} running")
    confirm(
        screen,
        f"{what.verb.capitalize()} {counted(len(chosen), 'manager')}?",
        otherwise="choose with --host or --manager, or repeat with --yes for all of them",
    )


async def _write(store: "Store", what: _Order, chosen: list[Managed]) -> None:
    written = (await wished(store)).written
    sessions = await store.sessions()
    keys = {one.number: _keys(one, sessions, written) for one in chosen}
    stopping = [one.name for one in chosen if any(written.get(key, {}).get("stop") for key in keys[one.number])]
    if stopping and "stop" not in what.wish:
        raise Refused(
            f"{', '.join(stopping)} was asked to stop already",
            why="a stop cannot be taken back, and it drains by itself",
            fix="choose another manager; nothing was changed",
        )
    for one in chosen:
        withdrawing = not any(what.wish.values())
        for key in keys[one.number] if withdrawing else [manager_key(one.number)]:
            await order(store, key, written.get(key, {}), **what.wish)


def _keys(manager: Managed, sessions: Sequence[Session], written: Iterable[str]) -> list[str]:
    """Where something may be wished of a manager: it obeys what was asked of any of its sessions so far. Those that the
    store has forgotten may have been its own."""
    others = {manager_key(one.number) for one in sessions if managed(one).process != manager.process}
    mine = {key for key in written if key.startswith(_MANAGER) and key not in others}
    return sorted(mine | {manager_key(manager.number)})


async def _arrived(screen: Screen, store: "Store", what: _Order, chosen: list[Managed], limit: Span) -> None:
    async def look() -> rollout_progress.RolloutProgress:
        return what.arrival(chosen, await fleet_of(store))

    await until(screen, what.doing, look, limit)
    screen.note(f"{what.doing}: done ({counted(len(chosen), 'manager')})")
