"""Who sets the rules of a resource pool: the code that declares it, and above that an operator, key by key.

Rules are compared as keys. A window of a second, minute, hour or day is the key for that time, however it was written;
`rate` holds the others.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.limits import Window
from pitboss.model.resource import Declaration, KeyValue, Limits, OperatorLimits, PoolRules
from pitboss.model.resource_keys import KEYS, NO_LIMIT, PER, is_time, limits_of, rules_of

_CAPPED = ("cooldown", "blacklist")
_WINDOW_KEYS = (*PER, "rate")


class Difference(NamedTuple):
    """A key with two values."""

    key: str
    one: KeyValue
    other: KeyValue


def keys_of(rules: PoolRules) -> dict[str, KeyValue]:
    """The keys that differ from the defaults. `rules_of` makes the same rules of them."""
    usual, found = PoolRules(), _window_keys(rules.limits.windows)
    for whole, default in ((rules.limits, usual.limits), (rules, usual)):
        for key in (key for key in KEYS if hasattr(whole, key)):
            value = getattr(whole, key)
            if value != getattr(default, key):
                found[key] = NO_LIMIT if value is None else value
    for key in _CAPPED:
        if getattr(rules, f"{key}_cap") == max(getattr(usual, f"{key}_cap"), getattr(rules, key)):
            found.pop(f"{key}_cap", None)
    return {key: found[key] for key in KEYS if key in found}


def plain_keys(values: Mapping[str, KeyValue]) -> dict[str, KeyValue]:
    """Checked keys in the form in which rules are compared; "none" takes a limit away."""
    others = {key: value for key, value in values.items() if key not in _WINDOW_KEYS or value == NO_LIMIT}
    return others | _window_keys(limits_of(values).windows)


def with_keys(rules: PoolRules, values: Mapping[str, KeyValue]) -> PoolRules:
    """The rules with these keys instead. What they contradict gives way: a cap to its time, a time to its cap."""
    own = plain_keys(values)
    merged: dict[str, Any] = keys_of(rules) | own
    for key in _CAPPED:
        cap, time = f"{key}_cap", merged.get(key, getattr(PoolRules(), key))
        if merged.get(cap, time) < time:
            weaker, stronger = (key, cap) if cap in own and key not in own else (cap, key)
            merged[weaker] = merged[stronger]
    return rules_of(merged)


def differences(one: PoolRules, other: PoolRules) -> list[Difference]:
    """The keys in which they differ; None is the default."""
    first, second = keys_of(one), keys_of(other)
    return [
        Difference(key, first.get(key), second.get(key))
        for key in KEYS
        if first.get(key, _usual(key)) != second.get(key, _usual(key))
    ]


def key_text(key: str, value: KeyValue) -> str:
    """A key with its value as people write it."""
    return f"{key}={value_text(key, value)}"


def value_text(key: str, value: KeyValue) -> str:
    value = _usual(key) if value is None else value
    return spoken(value) if is_time(key) and isinstance(value, int) and value else str(value)


def changes_text(changes: list[Difference]) -> str:
    """ "per_hour 50 → 20, strategy …"."""
    return ", ".join(f"{key} {value_text(key, one)} → {value_text(key, other)}" for key, one, other in changes)


def declared(
    known: Declaration | None, rules: PoolRules | None, by: str | None, now: Moment, *, replace: bool
) -> Declaration | None:
    """The declaration of a pool after one more: the first one stands, unless it is replaced by other rules."""
    if rules is None or (known is not None and (not replace or known.rules == rules)):
        return known
    return Declaration(rules=rules, by=by, at=now)


def limited(
    known: OperatorLimits | None, values: Mapping[str, KeyValue], by: str | None, now: Moment, *, reset: bool
) -> OperatorLimits | None:
    """An operator's limits after one more command."""
    kept = {} if known is None or reset else known.values
    merged = kept | plain_keys(values)
    return OperatorLimits(values=merged, by=by, at=now) if merged else None


def effective(declaration: Declaration | None, limits: OperatorLimits | None) -> PoolRules:
    """The rules that hold: what an operator set wins over every declaration."""
    rules = PoolRules() if declaration is None else declaration.rules
    return rules if limits is None else with_keys(rules, limits.values)


def _usual(key: str) -> KeyValue:
    for whole in (Limits(), PoolRules()):
        if hasattr(whole, key):
            value: KeyValue = getattr(whole, key)
            return value
    return NO_LIMIT


def _window_keys(windows: tuple[Window, ...]) -> dict[str, KeyValue]:
    found: dict[str, KeyValue] = {}
    rest: list[str] = []
    names = {per: key for key, per in PER.items()}
    for window in sorted(windows, key=lambda window: (window.per, -window.count)):
        # Of two windows of one length only the tighter one matters: it comes last.
        if window.per in names:
            found[names[window.per]] = window.count
        else:
            rest.append(f"{window.count}/{_exact(window.per)}")
    return found | ({"rate": ", ".join(rest)} if rest else {})


def _exact(per: Span) -> str:
    return f"{per // SECOND}s" if per % SECOND == 0 else f"{per}us"
