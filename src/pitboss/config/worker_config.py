"""The table `worker_config`, which other worker managers have: four keys, understood as settings of ours."""

import difflib
from collections.abc import Mapping
from typing import Any

from pitboss.config.layers import Layer
from pitboss.model.errors import InvalidInput

WORKER_CONFIG = "worker_config"
KEYS = ("max_concurrent_tasks", "retry_limit", "timeout", "queue_size")


def worker_config_layer(table: Any, place: str, above: Mapping[str, Any]) -> Layer:
    """Its settings. `above` is what sources of higher rank say, unchecked; `place` is the file."""
    if not isinstance(table, Mapping):
        raise InvalidInput(
            f"{WORKER_CONFIG} = {table!r:.60} cannot be used; it comes from the file ({place})",
            why="it is a table of keys",
            fix=f"write these keys below it: {', '.join(KEYS)}",
        )
    _check_keys(table, place)
    values: dict[str, Any] = {}
    detail: dict[str, str] = {}

    def put(source: str, **settings: Any) -> None:
        for key, value in settings.items():
            key = key.replace("__", ".")
            values[key], detail[key] = value, f"{WORKER_CONFIG}.{source} in {place}"

    if "max_concurrent_tasks" in table:
        put("max_concurrent_tasks", **_slots(_whole(table, "max_concurrent_tasks", 1, place), above))
    if "retry_limit" in table:
        put("retry_limit", defaults__max_attempts=_whole(table, "retry_limit", 0, place) + 1)
    if "timeout" in table:
        put("timeout", defaults__timeout=table["timeout"])
    if "queue_size" in table:
        put("queue_size", defaults__queue_capacity=table["queue_size"])
    return Layer("file", values, detail)


def _slots(total: int, above: Mapping[str, Any]) -> dict[str, int]:
    """One worker with this concurrency. If one of the two is set elsewhere, the other one makes up the total."""
    workers, concurrency = (_number(above.get(key)) for key in ("workers", "concurrency"))
    if workers is None and concurrency is not None:
        return {"workers": -(-total // concurrency), "concurrency": concurrency}
    return {"workers": workers or 1, "concurrency": -(-total // (workers or 1))}


def _number(value: Any) -> int | None:
    """A number above 0; anything else is refused when the settings are checked."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def _whole(table: Mapping[str, Any], key: str, least: int, place: str) -> int:
    value = table[key]
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InvalidInput(
        f"{WORKER_CONFIG}.{key} = {value!r:.60} cannot be used; it comes from the file ({place})",
        why=f"it is a whole number, at least {least}",
        fix="correct it there, or remove it",
    )


def _check_keys(table: Mapping[str, Any], place: str) -> None:
    for key in table:
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            raise InvalidInput(
                f'there is no setting "{WORKER_CONFIG}.{key}" (file ({place}))',
                why=f"the keys of {WORKER_CONFIG} are {', '.join(KEYS)}",
                fix=f'write "{WORKER_CONFIG}.{close[0]}"' if close else "remove it",
            )
