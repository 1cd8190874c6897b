"""What a channel is told: the first of each alert at once, then at most one digest per period, and one message when all
is over. An alert that comes and goes again and again is in the digest, and does not flood."""

from collections.abc import Mapping

import msgspec

from pitboss.model.alert import AlertRule, AlertState, Phase
from pitboss.model.alert_message import AlertLine, AlertMessage, Kind
from pitboss.model.duration import SECOND, Moment, Span

DIGEST: Span = 900 * SECOND
# At most this number of messages goes out at once within one period, however many alerts there are.
MOST_AT_ONCE = 5


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What a channel was told of an alert: how often it had fired, and how much had happened, by then."""

    fired: int
    happened: int


class ChannelState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a channel knows. `told` are alerts that it believes to fire; `fired` is how often each had fired when it was
    told last, at the moment `at`. The period began at `began`; `at_once` counts its messages that were no digest."""

    told: dict[str, Told] = {}
    fired: dict[str, int] = {}
    at: dict[str, Moment] = {}
    began: Moment | None = None
    at_once: int = 0
    sent: Moment | None = None
    ended: Moment | None = None
    number: int = 0


class Alert(msgspec.Struct, frozen=True):
    """A rule, how its alert is, and whether an operator has silenced it."""

    rule: AlertRule
    state: AlertState
    silenced: bool = False

    @property
    def firing(self) -> bool:
        return self.state.phase is Phase.FIRING


def next_message(
    channel: ChannelState, alerts: Mapping[str, Alert], now: Moment, *, digest: Span = DIGEST
) -> tuple[ChannelState, AlertMessage | None]:
    """What to send now, and what the channel knows after that. `alerts` are those of the rules that have this channel,
    by name: a rule that is gone, or silenced, is not told to be resolved."""
    channel = _without_silenced(channel, alerts)
    firing = {name: one for name, one in alerts.items() if one.firing and not one.silenced}
    new = firing.keys() - channel.told.keys()
    over = channel.told.keys() - firing.keys()
    fresh = any(_long_ago(channel.at.get(name), now, digest) for name in new)
    began = channel.began is not None and now - channel.began < digest
    if fresh and (not began or channel.at_once < MOST_AT_ONCE):
        return _sent(channel, alerts, Kind.ALERT, now, digest)
    if over and not firing and _long_ago(channel.ended, now, digest):
        return _sent(channel, alerts, Kind.RESOLVED, now, digest)
    if _long_ago(channel.sent, now, digest) and (new or over or _more(channel, alerts)):
        return _sent(channel, alerts, Kind.DIGEST, now, digest)
    return channel, None


def not_told(channel: ChannelState, alerts: Mapping[str, Alert]) -> ChannelState:
    """What a channel knows that cannot be told now. Alerts that come and go meanwhile are new to it."""
    channel = _without_silenced(channel, alerts)
    since = {name: one.state.fired - one.firing for name, one in alerts.items()}
    return msgspec.structs.replace(channel, fired=since | channel.fired)


def _without_silenced(channel: ChannelState, alerts: Mapping[str, Alert]) -> ChannelState:
    """A silenced alert has nothing to tell, also not later what happened meanwhile."""
    quiet = {name for name, one in alerts.items() if one.silenced}
    told = {name: one for name, one in channel.told.items() if name in alerts and name not in quiet}
    fired = {name: alerts[name].state.fired if name in quiet else n for name, n in channel.fired.items()}
    fired = {name: n for name, n in fired.items() if name in alerts}
    fired |= {name: alerts[name].state.fired for name in quiet}
    at = {name: moment for name, moment in channel.at.items() if name in alerts}
    return msgspec.structs.replace(channel, told=told, fired=fired, at=at)


def _long_ago(moment: Moment | None, now: Moment, digest: Span) -> bool:
    return moment is None or now - moment >= digest


def _more(channel: ChannelState, alerts: Mapping[str, Alert]) -> bool:
    """Whether there is more to tell of alerts that the channel knows of, or that came and went since."""
    return any(_times(channel, name, one) or _happened(channel, name, one) for name, one in alerts.items())


def _times(channel: ChannelState, name: str, one: Alert) -> int:
    """How often it has fired since the channel was told of it. A new channel is not told of the past."""
    return one.state.fired - channel.fired.get(name, one.state.fired - one.firing)


def _happened(channel: ChannelState, name: str, one: Alert) -> int:
    """How much more has happened since."""
    told = channel.told.get(name)
    return one.state.happened - told.happened if told is not None and told.fired == one.state.fired else 0


def _sent(
    channel: ChannelState, alerts: Mapping[str, Alert], kind: Kind, now: Moment, digest: Span
) -> tuple[ChannelState, AlertMessage]:
    lines = [line for name, one in alerts.items() if (line := _line(channel, name, one)) is not None]
    since = channel.sent if kind is not Kind.ALERT else None
    message = AlertMessage(
        kind=kind, number=channel.number + 1, at=now, lines=tuple(lines), within=0 if since is None else now - since
    )
    shown = {line.rule for line in lines}
    firing = {name: one for name, one in alerts.items() if one.firing and not one.silenced}
    began = channel.began is not None and now - channel.began < digest
    return (
        msgspec.structs.replace(
            channel,
            told={name: Told(one.state.fired, one.state.happened) for name, one in firing.items()},
            fired={name: one.state.fired for name, one in alerts.items()},
            at=channel.at | dict.fromkeys(shown, now),
            began=channel.began if began else now,
            at_once=(channel.at_once if began else 0) + (kind is Kind.ALERT),
            sent=now,
            ended=now if kind is Kind.RESOLVED else channel.ended,
            number=channel.number + 1,
        ),
        message,
    )


def _line(channel: ChannelState, name: str, one: Alert) -> AlertLine | None:
    """What is new of an alert; None if nothing is."""
    if one.silenced:
        return None
    known, times = name in channel.told, _times(channel, name, one)
    more = _happened(channel, name, one)
    if known == one.firing and not times and not more:
        return None
    return AlertLine(
        rule=name,
        condition=one.rule.condition,
        severity=one.rule.severity,
        firing=one.firing,
        since=one.state.since if one.firing else one.state.ended,
        about=one.state.about if one.firing else one.state.was,
        again=times - (one.firing and not known),
        more=more,
    )
