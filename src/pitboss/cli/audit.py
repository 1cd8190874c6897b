"""`pitboss audit`: what operators did, on the command line and over HTTP."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import JsonOption, LimitOption, Shown, StoreOption, now, screen_of, show
from pitboss.cli.formatting import ago, when
from pitboss.cli.screen import Column, Screen
from pitboss.model.access import AuditEntry
from pitboss.model.duration import Moment
from pitboss.model.text import counted
from pitboss.operate.audit import MOST_READ, AuditPage, read_audit
from pitboss.operate.documents import audit_document, utc

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_COLUMNS = (
    Column("When", right=True),
    Column("Who"),
    Column("Act"),
    Column("Target", fills=True),
    Column("Details", drop=1),
    Column("Source", drop=2),
)


def audit(
    context: typer.Context,
    limit: LimitOption = 50,
    act: Annotated[str | None, typer.Option("--act", metavar="WORDS", help="Only acts that begin so.")] = None,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Only acts of this key or user.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Only entries older than this.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what operators did.

    \b
    Examples:
      pitboss audit
      pitboss audit --who ann --act queues
      pitboss audit --limit 1000 --json

    The newest acts come first, of the command line and of the HTTP API.
    """

    async def read(opened: "Store") -> Shown:
        found, moment = await read_audit(opened, limit, before, act=act, who=who), now(opened)
        entries = [audit_document(one) for one in found.entries]
        document = {"entries": entries, "next": found.next, "covered": utc(found.covered)}
        return Shown(document, lambda screen: _draw(screen, found, moment))

    show(screen_of(context), store, read, as_json=as_json)


def _draw(screen: Screen, found: AuditPage, moment: Moment) -> None:
    if not found.entries and found.covered is None:
        screen.note("no acts of operators are recorded")
        return
    if found.entries:
        screen.table(_COLUMNS, [_row(one, moment) for one in found.entries])
    if found.covered is not None:
        matching = counted(len(found.entries), "match", "matches")
        screen.note(
            f"looked at {MOST_READ:,} entries: {matching}, the last is of {when(found.covered, moment)}; "
            f"go on with --before {found.next}"
        )


def _row(entry: AuditEntry, moment: Moment) -> list[str]:
    details = "" if entry.details == "{}" else entry.details
    return [ago(entry.at, moment), entry.who, entry.act, entry.target, details, entry.source]
