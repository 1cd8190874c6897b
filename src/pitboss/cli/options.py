"""Options that several commands share, so that they are spelled and explained in one way."""

from typing import Annotated

import typer

from pitboss.cli.screen import Screen

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store, such as sqlite:///pitboss.db. [env: PITBOSS_STORE]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
WatchOption = Annotated[
    str | None, typer.Option("--watch", metavar="TIME", help="Show it again and again, as in --watch 2s.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
FilterArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILTER", help="Such as state:failed queue:mail age:<1h. See: pitboss help filters."),
]
PickArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|FILTER", help="Ids of tasks, or a filter. See: pitboss help filters."),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them: no filter is needed.")]
HostOption = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only on this host.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is done.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Wait no longer.")]


def screen_of(context: typer.Context) -> Screen:
    """The screen that the root command made."""
    found = context.find_root().obj
    return found if isinstance(found, Screen) else Screen()
