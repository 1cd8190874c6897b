"""The keys of a worker pool as people write them in code, in a file or in the environment, and their checked values."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from pitboss.model.duration import Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.log_settings import checked_log_file, numbers_files
from pitboss.model.pool import PoolSpec, RestartPolicy, size, span_range
from pitboss.model.queue import checked_name

ALL_QUEUES = "*"
NO_LIMIT = "none"
MOST_WORKERS = 1000
MOST_CONCURRENCY = 10_000
_MANY = 1_000_000_000
_WORKERS = ("min_workers", "max_workers")
_LONGEST_NAME = 64
# Single - and _ only: in a variable, two underscores end the name.
_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NUMBER = re.compile(r"\d+(?:\.\d+)?\Z")
_BETWEEN = re.compile(r"(\d+)\s*-\s*(\d+)\Z")

Count = int | str
Amount = int | str | None
TimeRange = Time | tuple[Time, Time]
P = TypeVar("P", bound=PoolSpec)


class PoolKeys(TypedDict, total=False):
    """The keys of a pool; all are optional."""

    queues: Sequence[str] | str | None
    workers: Count | tuple[int, int] | Mapping[str, int]
    concurrency: Count
    memory: Amount
    memory_soft: Amount
    cpu: float | str | None
    restart: RestartPolicy | str
    restart_delay: Time
    max_restarts: Count
    restart_window: Time
    stagger: TimeRange
    max_tasks_per_worker: Amount
    max_age: Time | None
    delay: TimeRange
    unresponsive: Time
    target_wait: Time
    log_file: str | None
    env: Mapping[str, str]


class DeclaredPool(PoolSpec, frozen=True, kw_only=True):
    """A pool as code declares it. `named` are the keys that code sets; the operator may set the others."""

    named: tuple[str, ...] = ()


def declared(name: str, keys: Mapping[str, Any]) -> DeclaredPool:
    """The pool that code declares with these keys."""
    checked_pool_name(name)
    values = {}
    for key, value in keys.items():
        try:
            values[key] = checked(key, value)
        except InvalidInput as error:
            raise InvalidInput(f'pool "{name}", {key}: {error.what}', why=error.why, fix=error.fix) from error
    return consistent(DeclaredPool(name=name, **fields(values), named=tuple(values)))


def checked_pool_name(name: Any) -> str:
    """The name itself; refuses one that cannot name a pool."""
    if not isinstance(name, str) or not _NAME.match(name) or len(name) > _LONGEST_NAME:
        raise InvalidInput(
            f"{name!r:.80} cannot name a pool",
            why=f"such names are up to {_LONGEST_NAME} letters and digits, with single - or _ between them",
            fix='choose a name of that form, such as "video-preview"',
        )
    return name


def same_pool(name: str) -> str:
    """Equal for two spellings of one pool: names in the environment have no small letters and no hyphen."""
    return name.lower().replace("-", "_")


def checked(key: str, value: Any) -> Any:
    """The checked value of a key; `InvalidInput` says what is wrong with it."""
    reader = _READERS.get(key)
    if reader is None:
        close = difflib.get_close_matches(key, KEYS, n=1)
        raise InvalidInput(
            f'a pool has no key "{key}"',
            why=f"the keys are {', '.join(KEYS)}",
            fix=f'write "{close[0]}"' if close else "remove it",
        )
    return reader(value)


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values under the names of `PoolSpec`."""
    found = dict(values)
    if "workers" in found:
        found["min_workers"], found["max_workers"] = found.pop("workers")
    return found


def named_fields(pool: DeclaredPool) -> dict[str, Any]:
    """The values that code sets, under the names of `PoolSpec`."""
    names = (name for key in pool.named for name in (_WORKERS if key == "workers" else (key,)))
    return {name: getattr(pool, name) for name in names}


def consistent(pool: P) -> P:
    """The pool itself; refuses keys that contradict each other."""
    if pool.memory is not None and pool.memory_soft is not None and pool.memory_soft > pool.memory:
        raise InvalidInput(
            f'memory_soft of pool "{pool.name}" is more than its memory',
            why="a worker is killed at memory before it could be replaced at memory_soft",
            fix="make memory_soft smaller, or leave it out: it is 80 % of memory then",
        )
    if pool.log_file is not None and pool.max_workers > 1 and not numbers_files(pool.log_file):
        raise InvalidInput(
            f'log_file of pool "{pool.name}" is one file for {pool.max_workers} workers',
            why=f'"{pool.log_file}" has neither {{slot0}} nor {{slot}} nor {{worker}}',
            fix='write it like "state_worker_{slot0}.log"',
        )
    return pool


def checked_env(name: Any, value: Any) -> str:
    """The value of one variable for a pool's workers."""
    if not isinstance(name, str) or not _VARIABLE.match(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name a variable of the environment",
            why="such names are letters, digits and _",
            fix="correct the name",
        )
    if not isinstance(value, str) or "\0" in value:
        raise InvalidInput(
            f"the variable {name} is not text",
            why="the environment of a process holds text only",
            fix=f'write the value in quotes: {name} = "…"',
        )
    return value


def _queues(value: Any) -> tuple[str, ...] | None:
    if value is None or value == ALL_QUEUES:
        return None
    names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidInput(
            f"{value!r:.60} does not name queues",
            why="the queues of a pool are a list of names, or text with commas",
            fix='write ["mail", "reports"] or "mail,reports"; leave it out, or write "*", for all queues',
        )
    return tuple(dict.fromkeys(checked_name(name, "queue") for name in names))


def _workers(value: Any) -> tuple[int, int]:
    text = _BETWEEN.match(value.strip()) if isinstance(value, str) else None
    match text.groups() if text else value:
        case [low, high]:
            pair = low, high
        case {"max": high, **rest} if set(rest) <= {"min"}:
            pair = rest.get("min", 1), high
        case one:
            pair = one, one
    least, most = (_number_of_workers(one, value) for one in pair)
    if least > most:
        raise _not_workers(value, "the least is more than the most")
    return least, most


def _number_of_workers(one: Any, value: Any) -> int:
    number = _as_whole(one)
    if number is None or not 0 <= number <= MOST_WORKERS:
        raise _not_workers(value, f"workers are a whole number from 0 to {MOST_WORKERS}, or the least and the most")
    return number


def _not_workers(value: Any, why: str) -> InvalidInput:
    return InvalidInput(
        f"{value!r:.60} is not a number of workers",
        why=why,
        fix='write 2, or "1-8" or {min = 1, max = 8} for a number that follows the load',
    )


def _as_whole(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = _as_whole(value)
        if number is None or not least <= number <= most:
            raise InvalidInput(
                f"{value!r:.60} is out of range or no whole number",
                why=f"it must be a whole number from {least} to {most}",
                fix=f"write a number, such as {max(least, 5)}",
            )
        return number

    return read


def _cores(value: Any) -> float:
    try:
        cores = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        cores = math.nan
    if not 0 < cores <= MOST_WORKERS:
        raise InvalidInput(
            f"{value!r:.60} is not a number of cores",
            why="cpu is how many cores one worker is expected to use",
            fix="write it like 0.5 or 2",
        )
    return cores


def _restart(value: Any) -> RestartPolicy:
    try:
        return RestartPolicy(value)
    except ValueError as error:
        raise InvalidInput(
            f"{value!r:.60} does not say when to restart",
            why=f"restart is one of {', '.join(RestartPolicy)}",
            fix='write one of them in quotes; "always" is the default',
        ) from error


def _time(value: Any) -> Span:
    # The environment has only text: there, too, a bare number is a number of seconds.
    bare = isinstance(value, str) and _NUMBER.match(value.strip())
    return span(float(value) if bare else value, what="time")


def _some_time(value: Any) -> Span:
    time = _time(value)
    if time == 0:
        raise InvalidInput(f"{value!r:.60} is no time", why="it must be more than 0", fix='write it like "90s"')
    return time


def _times(value: Any) -> tuple[Span, Span]:
    match value:
        case [_, _]:
            pass
        case [*_]:
            raise InvalidInput(
                f"{value!r:.60} is not a time or two",
                why="two times are the least and the most",
                fix='write it like "8-20s"',
            )
    return span_range(value)


def _limit(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A limit that can also be removed, so that a file can lift a limit that code sets."""
    return lambda value: None if value is None or value == NO_LIMIT else read(value)


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(
            "env is not a table",
            why="it holds names and values for the environment of the pool's workers",
            fix='write {NAME = "value"}',
        )
    return {name: checked_env(name, one) for name, one in value.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "queues": _queues,
    "workers": _workers,
    "concurrency": _whole(1, MOST_CONCURRENCY),
    "memory": _limit(size),
    "memory_soft": _limit(size),
    "cpu": _limit(_cores),
    "restart": _restart,
    "restart_delay": _time,
    "max_restarts": _whole(0, _MANY),
    "restart_window": _some_time,
    "stagger": _times,
    "max_tasks_per_worker": _limit(_whole(1, _MANY)),
    "max_age": _limit(_some_time),
    "delay": _times,
    "unresponsive": _some_time,
    "target_wait": _some_time,
    "log_file": _limit(checked_log_file),
    "env": _env,
}
KEYS = tuple(_READERS)
