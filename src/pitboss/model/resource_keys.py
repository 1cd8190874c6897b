"""The keys of a resource pool as people write them in code, in a file or in the environment, and checked values."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, TypedDict

import msgspec

from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window
from pitboss.model.limits import rate as windows_of
from pitboss.model.pool_keys import checked_pool_name, same_pool
from pitboss.model.resource import HOUR, MINUTE, KeyValue, Limits, PoolRules, Strategy

NO_LIMIT = "none"
_MANY = 1_000_000_000
PER: dict[str, Span] = {"per_second": SECOND, "per_minute": MINUTE, "per_hour": HOUR, "per_day": 24 * HOUR}


class LimitKeys(TypedDict, total=False):
    """How often and how many at a time: of a pool for each member, or of one member."""

    per_second: int
    per_minute: int
    per_hour: int
    per_day: int
    rate: str
    min_delay: Time
    jitter: Time
    delay_from: Literal["start", "end"]
    concurrency: int | None
    guard: Time
    use_within: Time


class ResourceKeys(LimitKeys, total=False):
    """The keys of a resource pool; all are optional."""

    strategy: Strategy | str
    away: Literal["wait", "rebind"]
    bound_for: Time
    max_failures: int
    cooldown: Time
    cooldown_cap: Time
    blacklist: Time
    blacklist_cap: Time
    max_ejected: float


class DeclaredResources(msgspec.Struct, frozen=True, kw_only=True):
    """A resource pool as code declares it. `values` are the checked values of the keys that code sets."""

    name: str
    values: dict[str, KeyValue] = {}

    @property
    def rules(self) -> PoolRules:
        return rules_of(self.values)


def declared_resources(name: str, keys: Mapping[str, Any], others: Iterable[str]) -> DeclaredResources:
    """The pool that code declares with these keys; `others` are declared already."""
    if any(same_pool(checked_pool_name(name)) == same_pool(other) for other in others):
        raise InvalidInput(
            f'there are two resource pools named "{name}"',
            why="names that differ only in capitals, or in - and _, are the same in the environment",
            fix="declare it once, with all its keys",
        )
    pool = DeclaredResources(name=name, values=checked_keys(keys))
    rules_of(pool.values)
    return pool


def checked_keys(values: Mapping[str, Any], *, whose: str = "a resource pool") -> dict[str, KeyValue]:
    """Every value as plain data; `InvalidInput` says what is wrong with one."""
    return {key: checked(key, value, whose=whose) for key, value in values.items()}


def checked(key: str, value: Any, *, whose: str = "a resource pool") -> KeyValue:
    """The checked value of a key: times in microseconds, no limit as "none"."""
    known = LIMIT_KEYS if whose == "a member" else KEYS
    if key not in known:
        close = difflib.get_close_matches(key, known, n=1)
        raise InvalidInput(
            f'{whose} has no key "{key}"',
            why=f"the keys are {', '.join(known)}",
            fix=f'write "{close[0]}"' if close else "remove it",
        )
    return _READERS[key](key, value)


def rules_of(values: Mapping[str, KeyValue]) -> PoolRules:
    """The rules of checked keys; a cap that is not set is never below its time."""
    own: dict[str, Any] = {key: value for key, value in values.items() if key not in LIMIT_KEYS}
    usual = PoolRules()
    for key, cap in (("cooldown", usual.cooldown_cap), ("blacklist", usual.blacklist_cap)):
        own.setdefault(f"{key}_cap", max(cap, own.get(key, 0)))
    if "strategy" in own:
        own["strategy"] = Strategy(own["strategy"])
    return PoolRules(limits=limits_of(values), **own)


def limits_of(values: Mapping[str, KeyValue]) -> Limits:
    """The limits among checked keys."""
    windows = [Window(int(count), PER[key]) for key, count in values.items() if key in PER and isinstance(count, int)]
    rate = values.get("rate")
    if isinstance(rate, str) and rate != NO_LIMIT:
        windows += windows_of(rate)
    others: dict[str, Any] = {
        key: values[key] for key in ("min_delay", "jitter", "delay_from", "guard", "use_within") if key in values
    }
    if "concurrency" in values:
        others["concurrency"] = None if values["concurrency"] == NO_LIMIT else values["concurrency"]
    unique = sorted(set(windows), key=lambda window: (window.per, window.count))
    return Limits(windows=tuple(unique), **others)


def is_time(key: str) -> bool:
    """Whether the values of this key are times."""
    return _READERS[key] is _time


def _count(key: str, value: Any) -> KeyValue:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _MANY:
        raise InvalidInput(
            f"{key}={value!r:.60} cannot be used",
            why=f"it is a whole number from 1 to {_MANY}",
            fix=f"write it like {key}=50, or leave it out for no limit",
        )
    return number


def _window(key: str, value: Any) -> KeyValue:
    return NO_LIMIT if value is None or value == NO_LIMIT else _count(key, value)


def _rate(key: str, value: Any) -> KeyValue:
    if value is None or value == NO_LIMIT:
        return NO_LIMIT
    if not isinstance(value, str):
        raise InvalidInput(
            f"{key}={value!r:.60} is not a rate", why="it is text with one or more limits", fix='write "50/h, 6/min"'
        )
    windows_of(value)
    return value


def _time(key: str, value: Any) -> KeyValue:
    # The environment has only text: there, too, a bare number is a number of seconds.
    bare = isinstance(value, str) and value.strip().replace(".", "", 1).isdigit()
    return span(float(value) if bare else value, what=key)


def _share(key: str, value: Any) -> KeyValue:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise InvalidInput(
            f"{key}={value!r:.60} is not a share",
            why="it is the part of the members that may be on the blacklist at a time",
            fix="write a number from 0 to 1, such as 0.5",
        )
    return share


def _one_of(words: type[StrEnum] | tuple[str, ...]) -> Callable[[str, Any], KeyValue]:
    known = tuple(str(word) for word in words)

    def read(key: str, value: Any) -> KeyValue:
        if value not in known:
            raise InvalidInput(
                f"{key}={value!r:.60} cannot be used", why=f"it is one of {', '.join(known)}", fix="write one of them"
            )
        return str(value)

    return read


_READERS: dict[str, Callable[[str, Any], KeyValue]] = {
    **dict.fromkeys(PER, _window),
    "rate": _rate,
    "min_delay": _time,
    "jitter": _time,
    "delay_from": _one_of(("start", "end")),
    "concurrency": _window,
    "guard": _time,
    "use_within": _time,
    "strategy": _one_of(Strategy),
    "away": _one_of(("wait", "rebind")),
    "bound_for": _time,
    "max_failures": _count,
    "cooldown": _time,
    "cooldown_cap": _time,
    "blacklist": _time,
    "blacklist_cap": _time,
    "max_ejected": _share,
}
KEYS = tuple(_READERS)
LIMIT_KEYS = KEYS[: KEYS.index("use_within") + 1]
