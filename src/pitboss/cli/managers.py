"""`pitboss stop` and `pitboss drain`: for managers on any host."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    HostOption,
    StoreOption,
    TimeoutOption,
    YesOption,
    ask,
    confirm,
    now,
    operator,
    screen_of,
)
from pitboss.cli.progress import rollout
from pitboss.cli.screen import Screen
from pitboss.model import rollout_progress
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.model.fleet import ManagerView, doing
from pitboss.model.rollout_progress import RolloutProgress
from pitboss.model.text import counted
from pitboss.operate.desired_state import drain_managers, stop_managers
from pitboss.operate.workers import find_managers, read_managers

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

ManagerOption = Annotated[
    int | None, typer.Option("--manager", metavar="N", help="Only this manager, by its number in pitboss ps.")
]
PatienceOption = Annotated[
    bool | None, typer.Option("--wait/--no-wait", help="Wait until it is done; the default on a terminal.")
]
_TIMEOUT = "5m"


class _Act(NamedTuple):
    """An act on managers in the words that are shown, how to do it, and how to see that it is done."""

    verb: str
    asked: str
    doing: str
    run: "Callable[[Store, list[ManagerView]], Awaitable[None]]"
    progress: Callable[[Sequence[ManagerView], Iterable[ManagerView]], RolloutProgress]


def stop(
    context: typer.Context,
    host: HostOption = None,
    manager: ManagerOption = None,
    at_once: Annotated[
        bool, typer.Option("--now", help="Do not wait for running tasks; they go back to the queue.")
    ] = False,
    wait: PatienceOption = None,
    timeout: TimeoutOption = _TIMEOUT,
    sure: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Stop managers; running tasks finish first.

    \b
    Examples:
      pitboss stop
      pitboss stop --host box1 --no-wait
      pitboss stop --manager 7 --now

    No task is lost: those that do not finish within the drain time go back to their queue without losing an attempt.
    """
    act = _Act(
        "stop",
        "to stop",
        "stopping",
        lambda opened, chosen: stop_managers(opened, chosen, at_once=at_once, by=operator()),
        rollout_progress.stopped,
    )
    _run(context, store, act, host, manager, sure=sure, wait=wait, timeout=timeout)


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
    """Let managers take no more tasks. Running tasks finish; managers and workers stay.

    \b
    Examples:
      pitboss drain --host box1
      pitboss drain --undo --host box1
    """

    async def change(opened: "Store", chosen: list[ManagerView]) -> None:
        await drain_managers(opened, chosen, undo=undo, by=operator())

    act = (
        _Act("undo the drain of", "to take tasks again", "undoing the drain", change, rollout_progress.undrained)
        if undo
        else _Act("drain", "to take no more tasks", "draining", change, rollout_progress.drained)
    )
    _run(context, store, act, host, manager, sure=sure, wait=wait, timeout=timeout)


def _run(
    context: typer.Context,
    store: str | None,
    act: _Act,
    host: str | None,
    manager: int | None,
    *,
    sure: bool,
    wait: bool | None,
    timeout: str,
) -> None:
    screen, limit = screen_of(context), span(timeout, what="--timeout")
    if host is not None and manager is not None:
        raise InvalidInput(
            "--host and --manager cannot be given together",
            why="a manager's number is unique on all hosts",
            fix="give one of them",
        )

    async def work(opened: "Store") -> None:
        chosen = await find_managers(opened, now(opened), host=host, number=manager)
        if len(chosen) > 1 and host is None and not sure:
            _confirm(screen, act, chosen)
        await act.run(opened, chosen)
        for one in chosen:
            tasks = doing(one.snapshot.workers)
            screen.note(f"asked {one.name} {act.asked}" + (f"; it runs {tasks}" if tasks else ""))
        if screen.err.is_terminal if wait is None else wait:
            await rollout(screen, act.doing, lambda: _progress(opened, act, chosen), limit)
            screen.note(f"{act.doing}: done ({counted(len(chosen), 'manager')})")

    ask(screen, store, work, audit=acting(context))


def _confirm(screen: Screen, act: _Act, chosen: list[ManagerView]) -> None:
    what = f"{act.verb.capitalize()} {counted(len(chosen), 'manager')}"
    screen.note(f"{what}:")
    for one in chosen:
        screen.note(f"  {one.name}, {counted(len(one.live), 'worker')}, {one.running} running")
    confirm(screen, f"{what}?", otherwise="choose with --host or --manager, or repeat with --yes for all of them")


async def _progress(store: "Store", act: _Act, chosen: list[ManagerView]) -> RolloutProgress:
    return act.progress(chosen, (await read_managers(store, now(store))).living)
