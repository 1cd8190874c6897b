"""The alert that no leader can tell: a manager does not reach its store. It goes past the store to the channels."""

from collections.abc import Callable, Sequence

from pitboss.engines.protocol import Clock
from pitboss.manager import host
from pitboss.model.alert import AlertRule
from pitboss.model.alert_facts import STORE_AWAY
from pitboss.model.alert_message import AlertLine, AlertMessage, Kind
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.duration import SECOND, Moment, spoken

Send = Callable[[tuple[str, ...], AlertMessage], None]


class StoreAlert:
    """`away` and `back` hear how long the store has not answered. Each rule tells the begin and the end of an outage,
    and of several outages within a digest period only the first."""

    def __init__(self, spec: Callable[[], AlertsSpec | None], send: Send, clock: Clock) -> None:
        self._spec, self._send, self._clock = spec, send, clock
        # By rule: when it was told last, and the rules of which the end is not told yet.
        self._told_at: dict[str, Moment] = {}
        self._open: dict[str, AlertRule] = {}
        self._number = 0

    def away(self, seconds: float, cause: str) -> None:
        spec, now = self._spec(), self._clock.now()
        for rule in spec.rules if spec is not None else ():
            known = self._told_at.get(rule.name)
            due = rule.condition == STORE_AWAY and rule.beyond(seconds * SECOND) and rule.name not in self._open
            if spec is not None and due and (known is None or now - known >= spec.digest):
                self._told_at[rule.name], self._open[rule.name] = now, rule
                self._tell(spec, rule, f"has not answered for {_spoken(seconds)}: {cause}", firing=True)

    def back(self, seconds: float) -> None:
        spec, rules = self._spec(), list(self._open.values())
        self._open = {}
        for rule in rules if spec is not None else ():
            if spec is not None:
                self._tell(spec, rule, f"did not answer for {_spoken(seconds)}", firing=False)

    def _tell(self, spec: AlertsSpec, rule: AlertRule, what: str, *, firing: bool) -> None:
        wall, names = self._clock.wall(), {one.name for one in spec.outside}
        channels = _among(spec.channels_of(rule), names)
        line = AlertLine(
            rule=rule.name,
            condition=rule.condition,
            severity=rule.severity,
            firing=firing,
            about=f"the store of the manager on {host.name()} {what}",
            since=wall,
        )
        self._number += 1
        if channels:
            message = AlertMessage(kind=Kind.STORE, at=wall, number=self._number, lines=(line,), store=spec.store)
            self._send(channels, message)


def _among(wanted: Sequence[str], known: set[str]) -> tuple[str, ...]:
    return tuple(one for one in wanted if one in known)


def _spoken(seconds: float) -> str:
    return spoken(max(1, round(seconds)) * SECOND)
