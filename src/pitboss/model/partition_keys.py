"""The partitions of a queue as people declare them, in code, in a file or in the environment, and checked values."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import msgspec

from pitboss.model.assignment import problems
from pitboss.model.canonical import from_json
from pitboss.model.errors import InvalidInput
from pitboss.model.partition import MODES, ON_MISSING, Partitioning, key_names, key_parts
from pitboss.model.pool_keys import NO_LIMIT, checked_pool_name
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.text import listed

BY, TABLE, WEIGHTS, MOST = "partition_by", "partitions", "weights", "max_per_key"
# Those with one value, and those that are tables.
SINGLE_KEYS = (BY, "mode", "on_missing", MOST, "keys", "pool")
TABLES = (TABLE, WEIGHTS)
KEYS = (*SINGLE_KEYS, *TABLES)
_OF_A_TABLE = (TABLE, "keys", WEIGHTS, "on_missing", "pool")
_STATIC = "static"


def checked(key: str, value: Any) -> Any:
    """One value as plain data. Those of tables are of one slot or key: "partitions.0", "weights.CA"."""
    name, _, place = key.partition(".")
    if name == TABLE:
        _check_slot(place)
    return _READ[name](value)


def checked_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every value as plain data; None is "not said"."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        if key not in TABLES:
            found[key] = checked(key, value)
        elif not isinstance(value, Mapping):
            raise InvalidInput(
                f"{key}={value!r:.60} is not a table",
                why="it has a list of keys for each slot" if key == TABLE else "it has a number for each key",
                fix='write partitions={0: ["CA", "MT"], 1: ["TX"]}' if key == TABLE else 'write weights={"CA": 2.5}',
            )
        else:
            found[key] = {name: checked(f"{key}.{name}", one) for name, one in value.items()}
    return found


def overridden(code: QueueSettings, said: Mapping[str, Any]) -> dict[str, Any]:
    """What code says of a queue's partitions, overridden key by key. A table of the code is replaced as a whole, by
    another table or another mode."""
    spec = code.partitions
    found: dict[str, Any] = {MOST: code.max_per_key}
    if spec is not None:
        found |= {BY: spec.by, "mode": spec.mode}
        if spec.mode == _STATIC and said.get("mode", _STATIC) == _STATIC:
            found |= {TABLE: spec.table, "on_missing": spec.on_missing, "pool": spec.pool}
            found |= {"keys": spec.keys or None, WEIGHTS: spec.weights or None}
        elif TABLE in said and "mode" not in said:
            del found["mode"]
    return found | dict(said)


def with_partitions(queue: str, settings: QueueSettings, said: Mapping[str, Any]) -> QueueSettings:
    """The settings with the partitions that these checked keys describe; refuses keys that do not belong together."""
    given = {key: value for key, value in said.items() if value is not None}
    by, most = given.pop(BY, None), given.pop(MOST, None)
    if by is None:
        if given or most is not None:
            raise _without_key(queue, [*given, *([MOST] if most is not None else [])])
        return msgspec.structs.replace(settings, partitions=None, max_per_key=None)
    mode = given.pop("mode", _STATIC if TABLE in given else Partitioning(by=by).mode)
    spec = Partitioning(
        by=by,
        mode=mode,
        table={
            int(slot): tuple(keys) for slot, keys in sorted(given.get(TABLE, {}).items(), key=lambda one: int(one[0]))
        },
        keys=given.get("keys", ()),
        weights=dict(given.get(WEIGHTS, {})),
        on_missing=given.get("on_missing", "hold"),
        pool=given.get("pool"),
    )
    _refuse_mixed(queue, spec, given)
    return msgspec.structs.replace(settings, partitions=spec, max_per_key=most)


def refuse_keyless(queues: Mapping[str, QueueSettings], handlers: Iterable[HandlerInfo]) -> None:
    """Every handler of a queue with partitions must have the parameters that make the key."""
    for handler in handlers:
        spec = queues.get(handler.queue, QueueSettings()).partitions
        schema = from_json(handler.schema)
        if spec is None or schema.get("additionalProperties", True) is not False:
            continue
        known = schema.get("properties", {})
        lacking = [name for name in key_names(spec.by) if name not in known]
        if lacking:
            close = difflib.get_close_matches(lacking[0], known, n=1)
            raise InvalidInput(
                f'task "{handler.name}" has no parameter {listed(lacking)}, which the key of its queue needs',
                why=f'queue "{handler.queue}" divides its tasks by {spec.by!r}; '
                f"the parameters of {handler.name} are {listed(sorted(known)) or 'none'}",
                fix=f'write partition_by="{{{close[0]}}}"' if close else "add the parameter, or use another queue",
            )


class BrokenTable(InvalidInput):
    """The table of a queue has a key twice, none, or not at all, or other faults."""

    code = "broken-table"


def refuse_problems(queue: str, spec: Partitioning) -> None:
    """Refuse a table with anything wrong in it; the error has all of that."""
    found = problems(spec) if spec.mode == _STATIC else []
    if found:
        raise BrokenTable(
            f'the partitions of queue "{queue}" are not valid',
            why="; ".join(map(str, found)),
            fix="correct the table: each key in one slot, slots numbered from 0 without a gap",
        )


def key_list(value: Any) -> tuple[str, ...]:
    """Keys as a list, or as text with commas."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    wrong = not isinstance(parts, list | tuple)
    if wrong or any(isinstance(one, bool) or not isinstance(one, str | int) for one in parts):
        raise InvalidInput(
            f"{value!r:.60} is not a list of keys",
            why="keys are texts; numbers are allowed too",
            fix='write it like ["CA", "MT"]',
        )
    return tuple(str(one) for one in parts)


def _refuse_mixed(queue: str, spec: Partitioning, given: Mapping[str, Any]) -> None:
    strange = [key for key in _OF_A_TABLE if key in given]
    if spec.mode != _STATIC and strange:
        raise InvalidInput(
            f'queue "{queue}" has mode {spec.mode!r} and {listed(strange)}',
            why=f"only a table of keys has {listed(strange)}; in mode {spec.mode} the leader divides the keys",
            fix=f'write mode="{_STATIC}", or leave {listed(strange)} out',
        )
    refuse_problems(queue, spec)


def _without_key(queue: str, said: list[str]) -> InvalidInput:
    return InvalidInput(
        f'queue "{queue}" has {listed(said)}, but no {BY}',
        why="its tasks have no keys",
        fix=f'write {BY}="{{state}}" with the name of a parameter',
    )


def _template(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(
            f"{value!r:.60} is not a partition key",
            why="it is text with names of parameters in braces",
            fix='write it like "{state}"',
        )
    key_parts(value)
    return value


def _one_of(value: Any, known: tuple[str, ...], what: str) -> str:
    if value in known:
        return str(value)
    close = difflib.get_close_matches(str(value), known, n=1)
    raise InvalidInput(
        f"{value!r:.60} is not a {what}" if what == "mode" else f"{what} cannot be {value!r:.60}",
        why=f"it is one of {', '.join(known)}",
        fix=f'write "{close[0]}"' if close else f'write "{known[0]}"',
    )


def _check_slot(text: str) -> None:
    if not text.removeprefix("-").isdecimal():
        raise InvalidInput(
            f"{text!r:.40} is not the number of a slot",
            why="the slots of a worker pool are numbered from 0",
            fix='write it like 0 = ["CA", "MT"]',
        )


def _weight(value: Any) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or not -inf < number < inf:
        raise InvalidInput(
            f"{value!r:.60} is not a weight", why="it is a key's share of the work, a number above 0", fix="write 2.5"
        )
    return float(number)


def _most(value: Any) -> int | None:
    if value == NO_LIMIT:
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidInput(
            f"{value!r:.60} cannot be {MOST}",
            why="it is how many tasks of one key may run at once, a whole number above 0",
            fix='write it like 5, or "none" for no limit',
        )
    return number


_READ: dict[str, Callable[[Any], Any]] = {
    BY: _template,
    "mode": lambda value: _one_of(value, MODES, "mode"),
    "on_missing": lambda value: _one_of(value, ON_MISSING, "on_missing"),
    "pool": checked_pool_name,
    "keys": key_list,
    TABLE: key_list,
    WEIGHTS: _weight,
    MOST: _most,
}
