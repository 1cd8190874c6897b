"""Settings by dotted key, with their origin, and the names of keys in the environment."""

from collections.abc import Mapping
from typing import Any, NamedTuple

PREFIX = "PITBOSS_"
POOLS = "pools"
QUEUES = "queues"
RESOURCES = "resources"


class Layer(NamedTuple):
    """Values from one source, by dotted key. `place` and `detail` describe the source for people."""

    place: str
    values: dict[str, Any]
    detail: Mapping[str, str] = {}

    def where(self, key: str) -> str:
        detail = self.detail.get(key) or self.detail.get("")
        return f"{self.place} ({detail})" if detail else self.place


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys. An empty nested table is a value: a pool may have a name only."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        is_table = isinstance(value, Mapping) and (value or not prefix)
        found.update(flat(value, f"{prefix}{key}.") if is_table else {f"{prefix}{key}": value})
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested tables."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        place = tables
        for table in path:
            place = place.setdefault(table, {})
        place[last] = value
    return tables


def variable(key: str) -> str:
    """The environment's name of a dotted key."""
    match key.split("."):
        case ["pools", pool, "env", name]:
            # The names of a pool's own environment variables are case-sensitive.
            return f"{variable(f'pools.{pool}.env')}__{name}"
        case parts:
            return PREFIX + "__".join(parts).upper().replace("-", "_")


def is_in(table: str, key: str) -> bool:
    """Whether a dotted key is this table, or in it."""
    return key == table or key.startswith(f"{table}.")
