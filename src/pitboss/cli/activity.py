"""`pitboss activity`: what happened and what operators did, as one list."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import JsonOption, LimitOption, Shown, StoreOption, ask, now, screen_of, show
from pitboss.cli.formatting import local
from pitboss.cli.screen import Screen
from pitboss.model.access import AuditEntry
from pitboss.model.duration import Moment, span
from pitboss.model.happening import Severity
from pitboss.operate.activity import ACT, Activity, act_text, activity_document, read_activity

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_PAUSE_SECONDS = 1.0
# Late entries are found among the newest 500: a manager writes what happened while the store was away when it is back.
_LOOKED_AT = 500
_STYLES = {Severity.INFO: None, Severity.WARNING: "yellow", Severity.ERROR: "red"}


def activity(
    context: typer.Context,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only the last 2h, 30m and so on.")
    ] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this kind; may be repeated.")] = None,
    limit: LimitOption = 50,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Continue an earlier list.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing what is new.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened and what operators did.

    \b
    Examples:
      pitboss activity --since 2h
      pitboss activity --kind worker_crashed --kind act
      pitboss activity --follow

    The newest come first, with --follow last. The kinds are worker_crashed, worker_given_up, pool_scaled, lead_changed,
    limits_changed, store_away, store_back, manager_started, manager_stopped, manager_lost, release_changed, alert and
    operation_stopped, and act for the audit log.
    """
    screen, kinds = screen_of(context), kind or []
    past = None if since is None else span(since, what="--since")

    async def page(opened: "Store") -> Shown:
        moment = None if past is None else now(opened) - past
        found = await read_activity(opened, limit=limit, before=before, since=moment, kinds=kinds)
        following = found[-1].id if len(found) == limit else None
        document = {"activity": [activity_document(one) for one in found], "next": following}
        return Shown(document, lambda screen: _draw(screen, found, following))

    async def watch(opened: "Store") -> None:
        moment = None if past is None else now(opened) - past
        await _follow(screen, opened, kinds, moment, limit, as_json=as_json)

    if not follow:
        show(screen, store, page, as_json=as_json)
        return
    # Ctrl-C is the usual end, not a failure.
    with suppress(KeyboardInterrupt):
        ask(screen, store, watch)


async def _follow(
    screen: Screen, store: "Store", kinds: list[str], since: Moment | None, limit: int, *, as_json: bool
) -> None:
    """Show the newest, and from then on what is new, until Ctrl-C."""
    seen: set[str] | None = None
    while True:
        found = await read_activity(store, limit=_LOOKED_AT, since=since, kinds=kinds)
        new = found[:limit] if seen is None else [one for one in found if one.id not in seen]
        for one in reversed(new):
            if as_json:
                screen.document(activity_document(one), compact=True)
            else:
                _put(screen, one)
        seen = {one.id for one in found}
        await asyncio.sleep(_PAUSE_SECONDS)


def _draw(screen: Screen, found: list[Activity], following: str | None) -> None:
    if not found:
        screen.note("nothing has happened")
    for one in found:
        _put(screen, one)
    if following is not None:
        screen.note(f"there may be more: repeat with --before {following}")


def _put(screen: Screen, one: Activity) -> None:
    if isinstance(one, AuditEntry):
        screen.line(f"{local(one.at)[:19]}  {ACT:<16} {act_text(one)} ({one.source})")
    else:
        screen.line(f"{local(one.at)[:19]}  {one.kind.value:<16} {one.text}", _STYLES[one.severity])
