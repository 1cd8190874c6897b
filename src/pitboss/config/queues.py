"""The queues of an app, merged from code, file and environment."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pitboss.config.layers import QUEUES
from pitboss.config.pools import Refuse
from pitboss.config.settings import Settings
from pitboss.config.values import age
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import rate
from pitboss.model.partition_keys import SINGLE_KEYS, TABLES, overridden, with_partitions
from pitboss.model.partition_keys import checked as checked_partitions
from pitboss.model.pool_keys import NO_LIMIT
from pitboss.model.queue import QueueSettings, checked_name
from pitboss.model.retention import FOREVER
from pitboss.model.states import State

RETENTION = "retention"
_KEPT = (State.COMPLETED, State.CANCELLED, State.FAILED)
KEYS = ("capacity", "rate", RETENTION, *(f"{RETENTION}.{state}" for state in _KEPT), *SINGLE_KEYS)
# The name of a queue may have dots, and so may a partition key.
_PATH = re.compile(rf"(?P<queue>.+?)\.(?P<key>{RETENTION}\.[^.]+|(?:{'|'.join(TABLES)})\..+|[^.]+)\Z")


def queue_settings(settings: Settings, declared: Mapping[str, QueueSettings]) -> dict[str, QueueSettings]:
    """The settings of every queue. `declared` is from the code; settings override it key by key.

    A queue that is used but declares nothing has an empty `QueueSettings` there: so it gets the default capacity, and
    the environment can name it.
    """
    outside: dict[str, dict[str, Any]] = {}
    for name, said in settings.queues.items():
        outside.setdefault(spelled_queue(name, declared), {}).update(said)
    names = {**declared, **outside}
    return {name: _joined(settings, name, declared.get(name, QueueSettings()), outside.get(name, {})) for name in names}


def declared_queues(
    settings: Settings, declared: Mapping[str, QueueSettings], used: Iterable[str]
) -> dict[str, QueueSettings]:
    """As `queue_settings`, for the queues that are declared and used, by name; those without any limit are left out."""
    found = queue_settings(settings, dict.fromkeys(used, QueueSettings()) | dict(declared))
    return {name: found[name] for name in sorted(found) if found[name] != QueueSettings()}


def _joined(settings: Settings, name: str, code: QueueSettings, said: Mapping[str, Any]) -> QueueSettings:
    default = settings.defaults.queue_capacity if code.capacity is None else code.capacity
    ages = {State(state): FOREVER if age is None else age for state, age in said.get(RETENTION, {}).items()}
    windows = said.get("rate")
    joined = QueueSettings(
        capacity=said.get("capacity", default),
        rate=code.rate if "rate" not in said else () if windows is None else rate(windows),
        retention=code.retention | ages,
    )
    divided = {key: said[key] for key in (*SINGLE_KEYS, *TABLES) if key in said}
    return with_partitions(name, joined, overridden(code, divided))


def same_queue(name: str) -> str:
    """A queue's name as the environment can have it: without small letters, and without - . and :"""
    return re.sub("[-.:]", "_", name).lower()


def spelled_queue(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The known queue that the environment means by this name; without one, the name itself."""
    alike = [one for one in known if same_queue(one) == same_queue(name)]
    if name in known or not alike:
        return name
    if len(alike) > 1:
        raise InvalidInput(
            f'the queue "{name}" of the settings can be any of {", ".join(alike)}',
            why="in the environment, names that differ only in capitals, or in - . : and _, are the same",
            fix="set its keys in the file, under the exact name",
        )
    return alike[0]


def queue_values(queues: Any) -> Iterator[tuple[str, Any]]:
    """The dotted keys of the tables in a file."""
    if not isinstance(queues, Mapping):
        yield QUEUES, queues
        return
    for name, keys in queues.items():
        if isinstance(keys, Mapping) and keys:
            for key, value in keys.items():
                yield from queue_value(name, key, value)
        else:
            yield f"{QUEUES}.{name}", keys


def queue_value(name: str, key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """One key as dotted keys. Retention is by state, so that a source can override that of one state; a table of
    partitions by slot, so that an error names the slot."""
    if key in TABLES and isinstance(value, Mapping) and value:
        yield from ((f"{QUEUES}.{name}.{key}.{place}", one) for place, one in value.items())
    elif key == RETENTION:
        ages = value if isinstance(value, Mapping) else dict.fromkeys(_KEPT, value)
        yield from ((f"{QUEUES}.{name}.{RETENTION}.{state}", one) for state, one in ages.items())
    else:
        yield f"{QUEUES}.{name}.{key}", value


def queue_tables(values: Mapping[str, Any], refuse: Refuse) -> dict[str, dict[str, Any]]:
    """Checked values by queue and key, from values by dotted key. `refuse` raises an error with a value's origin."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        try:
            _take(found, key.removeprefix(QUEUES).removeprefix("."), value)
        except InvalidInput as error:
            refuse(key, value, error)
    return found


def _take(found: dict[str, dict[str, Any]], path: str, value: Any) -> None:
    if not path:
        raise InvalidInput(
            "this is not a table",
            why="queues are tables with their limits; which queues a manager serves is called only_queues now",
            fix='write only_queues = ["mail", "reports"], or PITBOSS_ONLY_QUEUES in the environment',
        )
    match = _PATH.match(path) if value != {} or path.endswith(tuple(f".{key}" for key in TABLES)) else None
    table = found.setdefault(checked_name(match["queue"] if match else path, "queue"), {})
    if match:
        outer, dot, inner = match["key"].partition(".")
        place = table.setdefault(outer, {}) if dot else table
        place[inner or outer] = _checked(match["key"], value)
    elif value != {}:
        raise InvalidInput(
            "this is not a table", why="a queue is a table of keys", fix="write [queues.NAME], and its keys below it"
        )


def _checked(key: str, value: Any) -> Any:
    """The checked value of a key; None is no limit, or for ever."""
    match key:
        case "capacity":
            return _capacity(value)
        case "rate":
            return _rate(value)
        case _ if key in TABLES:
            raise _not_a_table(key)
        case _ if key in SINGLE_KEYS or key.startswith(tuple(f"{table}." for table in TABLES)):
            return checked_partitions(key, value)
        case _ if key in KEYS:
            return age(value)
    close = difflib.get_close_matches(key, KEYS, n=1)
    raise InvalidInput(
        f'a queue has no key "{key}"',
        why=f"the keys are {', '.join(KEYS)}",
        fix=f'write "{close[0]}"' if close else "remove it",
    )


def _not_a_table(key: str) -> InvalidInput:
    entry = '0 = ["CA", "MT"]' if key == TABLES[0] else "CA = 2.5"
    return InvalidInput(
        "this is not a table, or an empty one",
        why="it has an entry for each slot" if key == TABLES[0] else "it has an entry for each key",
        fix=f"write [queues.NAME.{key}], and below it {entry}",
    )


def _capacity(value: Any) -> int | None:
    if value == NO_LIMIT:
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidInput(
            f"{value!r:.60} is not a capacity",
            why="it is how many tasks may wait, a whole number above 0",
            fix='write it like 1000, or "none" for no limit',
        )
    return number


def _rate(value: Any) -> str | None:
    if value == NO_LIMIT:
        return None
    if not isinstance(value, str):
        raise InvalidInput(
            f"{value!r:.60} is not a rate", why="it is text with a number of starts per time", fix='write "20/min"'
        )
    rate(value)
    return value
