"""Alerts: rules, and the life of each alert: quiet → pending → firing → resolved. What is told of it: `alert_digest`.

A rule looks at the subjects of its condition (queues, worker pools, members …). It fires when one of them has been
beyond the threshold for long enough, and is resolved when none is.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.text import listed

NOTIFY = "notify"
DEFAULT_WINDOW: Span = 600 * SECOND
# An alert that ends must stay ended for as long as it had to last, but for no longer than this.
_SETTLE: Span = 60 * SECOND
# Since when a subject is beyond the threshold is remembered of at most this number.
_MOST_SUBJECTS = 50
_SHOWN = 3


class Severity(StrEnum):
    """How much it matters."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Phase(StrEnum):
    """Where an alert is. Pending: its condition holds, but not for long enough yet."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """When to tell whom. `lasting` is how long a subject must be beyond the threshold; conditions that count look back
    over `window`. `only` names the subjects that it looks at; empty: all. `channels` empty: all of them."""

    name: str
    condition: str
    threshold: float
    lasting: Span = 0
    severity: Severity = Severity.MEDIUM
    channels: tuple[str, ...] = ()
    action: str = NOTIFY
    only: tuple[str, ...] = ()
    window: Span = DEFAULT_WINDOW
    below: bool = False

    def beyond(self, value: float) -> bool:
        return value < self.threshold if self.below else value > self.threshold


class Subject(msgspec.Struct, frozen=True):
    """One thing that a condition looks at: its value now, a phrase about it, and how often what it counts has happened
    since the last look. `of` is the pool of a worker, by which rules name it."""

    name: str
    value: float
    text: str
    new: int = 0
    of: str = ""


class AlertState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One alert. `above` says since when subjects are beyond the threshold, `clear_at` since when none is, although it
    fires still. `about` is the worst subject in words. Counted while the rule exists: how often it `fired`; and in
    `happened`, while it fires, what its condition counts. `was` is what it was about when it fired last, and `ended`
    when that was over. `size` is what its action wants of a worker pool; it was done for the phase that began at
    `acted`."""

    phase: Phase = Phase.QUIET
    since: Moment = 0
    above: dict[str, Moment] = {}
    clear_at: Moment | None = None
    value: float | None = None
    about: str = ""
    fired: int = 0
    happened: int = 0
    was: str = ""
    ended: Moment = 0
    size: int | None = None
    acted: Moment | None = None


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """An operator wants to hear nothing of a rule until a moment."""

    rule: str
    until: Moment
    at: Moment
    by: str = ""
    reason: str = ""


def stepped(state: AlertState, rule: AlertRule, subjects: Iterable[Subject], now: Moment) -> AlertState:
    """The alert after a look. `since` is the moment of the last change of phase."""
    seen = sorted(
        (one for one in subjects if not rule.only or (one.of or one.name) in rule.only),
        key=lambda one: one.value if rule.below else -one.value,
    )
    over = [one for one in seen if rule.beyond(one.value)]
    above = {one.name: state.above.get(one.name, now) for one in over[:_MOST_SUBJECTS]}
    value = seen[0].value if seen else None
    lasted = [one for one in over if one.name in above and now - above[one.name] >= rule.lasting]
    after = msgspec.structs.replace(state, above=above, value=value)
    if state.phase is Phase.FIRING:
        return _while_firing(after, rule, over, now)
    if lasted:
        return msgspec.structs.replace(
            after,
            phase=Phase.FIRING,
            since=now,
            clear_at=None,
            about=_about(lasted),
            fired=state.fired + 1,
            happened=sum(one.new for one in over),
        )
    phase = Phase.PENDING if over else Phase.QUIET
    since = state.since if phase is state.phase else now
    return msgspec.structs.replace(after, phase=phase, since=since, about=_about(over))


def _while_firing(state: AlertState, rule: AlertRule, over: Sequence[Subject], now: Moment) -> AlertState:
    if over:
        happened = state.happened + sum(one.new for one in over)
        return msgspec.structs.replace(state, clear_at=None, about=_about(over), happened=happened)
    clear_at = now if state.clear_at is None else state.clear_at
    if now - clear_at < min(rule.lasting, _SETTLE):
        return msgspec.structs.replace(state, clear_at=clear_at)
    # For the message that it is over, which may come much later.
    return msgspec.structs.replace(state, phase=Phase.QUIET, since=now, clear_at=None, was=state.about, ended=clear_at)


def _about(subjects: Sequence[Subject]) -> str:
    if not subjects:
        return ""
    others = [one.name for one in subjects[1:]]
    return f"{subjects[0].text}; also {listed(others, _SHOWN)}" if others else subjects[0].text


def silenced(silences: Iterable[Silence], now: Moment) -> set[str]:
    """The rules that are silenced now."""
    return {one.rule for one in silences if one.until > now}
