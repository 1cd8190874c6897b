"""`pitboss alerts`: which alerts fire, how every rule is; test channels, and silence rules."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.auditing import acting
from pitboss.cli.command import (
    JsonOption,
    Shown,
    StoreOption,
    TimeoutOption,
    WatchOption,
    ask,
    id_maker,
    operator,
    screen_of,
    show,
)
from pitboss.cli.formatting import ago
from pitboss.cli.screen import Column, Screen
from pitboss.model.alert import Phase
from pitboss.model.duration import SECOND, span, spoken
from pitboss.operate.alerts import (
    AlertReading,
    AlertsReading,
    alerts_document,
    end_silence,
    read_alerts,
    send_test,
    silence_document,
    silence_rule,
)

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store
    from pitboss.model.alert import Silence

app = typer.Typer(
    help="List alerts and their rules, test channels, silence rules.", no_args_is_help=True, rich_markup_mode=None
)
_COLUMNS = (
    Column("Rule"),
    Column("State"),
    Column("Severity", drop=3),
    Column("Since", right=True, drop=2),
    Column("Now", right=True),
    Column("Fires if", right=True),
    Column("For", right=True, drop=5),
    Column("Channels", drop=4),
    Column("Action", drop=1),
)
RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="A rule, as pitboss alerts list names it.")]


@app.command("list")
def list_all(
    context: typer.Context, store: StoreOption = None, as_json: JsonOption = False, watch: WatchOption = None
) -> None:
    """List what fires, and every rule with its present value.

    \b
    Examples:
      pitboss alerts list
      pitboss alerts list --watch 10s
    """

    async def read(opened: "Store") -> Shown:
        found = await read_alerts(opened)
        return Shown(alerts_document(found), lambda screen: _draw(screen, found))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


@app.command("test")
def try_channel(
    context: typer.Context,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel of the settings.")],
    timeout: TimeoutOption = "30s",
    store: StoreOption = None,
) -> None:
    """Send a test message through a channel, and wait until it is taken.

    \b
    Examples:
      pitboss alerts test ops
      pitboss alerts test mail --timeout 1m

    The exit code is 0 if the other side has taken it.
    """
    screen = screen_of(context)

    async def work(opened: "Store") -> None:
        await send_test(opened, channel, id_maker(), span(timeout, what="--timeout"))

    ask(screen, store, work, audit=acting(context))
    screen.line(f'the channel "{channel}" has taken a test message')


@app.command("silence")
def silence_one(
    context: typer.Context,
    rule: RuleArgument,
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, as in 2h.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; others see it.")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send nothing about a rule for a while. It is judged all the same.

    \b
    Examples:
      pitboss alerts silence disk --for 2h --reason "a new disk comes"
    """
    screen, time = screen_of(context), span(lasts, what="--for")

    async def work(opened: "Store") -> "tuple[Silence, int]":
        made = await silence_rule(opened, rule, time, by=operator(), reason=reason)
        return made, opened.clock.wall() - opened.clock.now()

    made, ahead = ask(screen, store, work, audit=acting(context))
    if as_json:
        screen.document(silence_document(made, ahead))
    else:
        screen.line(f"alert {rule} is silenced for {spoken(time)}")


@app.command("unsilence")
def unsilence_one(context: typer.Context, rule: RuleArgument, store: StoreOption = None) -> None:
    """End a silence.

    \b
    Examples:
      pitboss alerts unsilence disk
    """
    screen = screen_of(context)
    ask(screen, store, lambda opened: end_silence(opened, rule), audit=acting(context))
    screen.line(f"alert {rule} is no longer silenced")


def _draw(screen: Screen, found: AlertsReading) -> None:
    if not found.alerts:
        screen.note("no manager has looked at alerts yet; start one with pitboss up")
        return
    screen.table(_COLUMNS, [_row(one, found) for one in found.alerts])
    for one in found.alerts:
        if one.state.phase is not Phase.QUIET:
            screen.note(f"{one.rule.name}: {one.state.about}")
        if one.silence is not None:
            left = spoken(max(SECOND, one.silence.until - found.now))
            why = f": {one.silence.reason}" if one.silence.reason else ""
            screen.note(f"{one.rule.name}: silenced by {one.silence.by or 'an operator'} for {left} more{why}")
    if found.stale and found.looked_at is not None:
        screen.note(f"no manager has looked at alerts since {ago(found.looked_at, found.now)}; these are old")


def _row(one: AlertReading, found: AlertsReading) -> list[str]:
    state, rule = one.state, one.rule
    shown = f"{state.phase} (silenced)" if one.silence is not None else state.phase.value
    return [
        rule.name,
        shown,
        rule.severity.value,
        ago(state.since, found.now) if state.phase is not Phase.QUIET else "-",
        one.shown_value,
        one.shown_threshold,
        spoken(rule.lasting) if rule.lasting else "-",
        ", ".join(rule.channels) or "all",
        rule.action,
    ]
