"""Rules of alerts: those that are on by default, what settings say of them, and what an alert may do."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pitboss.model.alert import DEFAULT_WINDOW, NOTIFY, AlertRule
from pitboss.model.alert_digest import DIGEST
from pitboss.model.alert_facts import CONDITIONS, Condition
from pitboss.model.alert_message import ChannelSpec
from pitboss.model.duration import Span, span
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import size
from pitboss.model.queue import checked_name
from pitboss.model.text import listed

# What a manager without any channel in its settings tells its alerts through.
DEFAULT_CHANNEL = ChannelSpec(name="log", type="log")
# Of a limit, and not of all: a worker can exceed it.
_MAY_EXCEED = "memory_usage"
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z")
_PAUSE = re.compile(r"pause\s+(\S+)\Z")
_SCALE = re.compile(r"scale\s+(\S+)\s+\+\s*([1-9]\d{0,3})\Z")


class AlertsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The table [alerts], complete. `store` is how messages name the store: without a password."""

    rules: tuple[AlertRule, ...] = ()
    channels: tuple[ChannelSpec, ...] = (DEFAULT_CHANNEL,)
    digest: Span = DIGEST
    store: str = ""

    @property
    def outside(self) -> tuple[ChannelSpec, ...]:
        """The channels whose messages the delivery process sends."""
        return tuple(one for one in self.channels if one.outside)

    @property
    def longest(self) -> Span:
        """The longest window over which a rule counts."""
        return max((one.window for one in self.rules), default=DEFAULT_WINDOW)

    def channels_of(self, rule: AlertRule) -> tuple[str, ...]:
        return rule.channels or tuple(one.name for one in self.channels)


class Pause(NamedTuple):
    """Pause this queue when the alert fires. It stays paused until an operator resumes it."""

    queue: str


class Scale(NamedTuple):
    """Give this worker pool more workers while the alert fires."""

    pool: str
    more: int


def action_of(text: str) -> Pause | Scale | None:
    """What the rule's action means; None: it only notifies."""
    if text == NOTIFY:
        return None
    if found := _PAUSE.match(text):
        return Pause(checked_name(found[1], "queue"))
    if found := _SCALE.match(text):
        return Scale(checked_name(found[1], "pool"), int(found[2]))
    raise InvalidInput(
        f"{text!r:.60} is no action of an alert",
        why="an alert notifies, pauses a queue, or gives a worker pool more workers while it fires",
        fix='write "notify", "pause QUEUE" or "scale POOL +2"',
    )


def condition_of(name: str) -> Condition:
    found = CONDITIONS.get(name)
    if found is None:
        raise InvalidInput(
            f'there is no condition "{name:.60}"',
            why=f"the conditions are {', '.join(CONDITIONS)}",
            fix="name one of them",
        )
    return found


def threshold_of(condition: str, value: Any) -> float:
    """The threshold in the unit of its condition."""
    match condition_of(condition).unit:
        case "time":
            return float(span(value, what="threshold"))
        case "size":
            return float(size(value, what="threshold"))
        case "share":
            return _share(value, most=math.inf if condition == _MAY_EXCEED else 1)
        case "times":
            return _times(value)
    return _number(value)


def rules_of(said: Mapping[str, Mapping[str, Any] | None]) -> tuple[AlertRule, ...]:
    """The built-in rules and those of settings, by name. `said` has fields of `AlertRule` by rule; None: it is off."""
    found = {
        name: one.rule(name, name) for name, one in CONDITIONS.items() if name not in said or said[name] is not None
    }
    for name, fields in said.items():
        if fields is not None:
            found[name] = _rule(name, fields)
    return tuple(found.values())


def _rule(name: str, fields: Mapping[str, Any]) -> AlertRule:
    condition = fields.get("condition") or (name if name in CONDITIONS else None)
    if condition is None:
        raise InvalidInput(
            f'the alert "{name}" has no condition',
            why=f"the rules that need none are {listed(list(CONDITIONS), len(CONDITIONS))}",
            fix=f'write condition = "processing_delay" below [alerts.rules.{name}], or another of these',
        )
    plain = condition_of(condition).rule(name, condition)
    given = {key: value for key, value in fields.items() if value is not None and key != "condition"}
    if "threshold" in given:
        given["threshold"] = threshold_of(condition, given["threshold"])
    return msgspec.structs.replace(plain, **given)


def check_channels(rules: Sequence[AlertRule], channels: Sequence[ChannelSpec]) -> None:
    """Refuse a rule that names a channel which is not there."""
    known = {one.name for one in channels}
    for rule in rules:
        if unknown := sorted(set(rule.channels) - known):
            raise InvalidInput(
                f'the alert "{rule.name}" names the channel "{unknown[0]}", which is not there',
                why=f"the channels are {listed(sorted(known))}",
                fix=f"add [alerts.channels.{unknown[0]}], or name another channel",
            )


def _share(value: Any, *, most: float) -> float:
    found = _PERCENT.match(value.strip()) if isinstance(value, str) else None
    if found and float(found[1]) <= most * 100:
        return float(found[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise InvalidInput(
        f"{value!r:.60} is not a share",
        why="it is a part of all, from 0 to 1, or from 0% to 100%",
        fix='write "10%" or 0.1',
    )


def _times(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1:
        return float(value)
    raise InvalidInput(
        f"{value!r:.60} does not say how many times",
        why="this threshold compares with what is usual, and is 1 or more",
        fix="write it like 3 or 2.5",
    )


def _number(value: Any) -> float:
    if isinstance(value, str) and value.strip().isdecimal():
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise InvalidInput(
        f"{value!r:.60} is not a number", why="this threshold is a whole number", fix="write it like 100"
    )
