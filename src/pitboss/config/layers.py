"""Values by dotted key, where they come from, and what a key is called in the environment."""

from collections.abc import Mapping
from typing import Any, NamedTuple

PREFIX = "PITBOSS_"
POOLS = "pools"
RESOURCES = "resources"


class Layer(NamedTuple):
    """Values from one place, by dotted key. `place` and `detail` say where, in words."""

    place: str
    values: dict[str, Any]
    detail: Mapping[str, str] = {}

    def where(self, key: str) -> str:
        detail = self.detail.get(key) or self.detail.get("")
        return f"{self.place} ({detail})" if detail else self.place


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys. An empty table within a table is a value: a pool may say nothing but its name."""
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
            # What a pool's workers find in their environment keeps its capitals: there, they make a difference.
            return f"{variable(f'pools.{pool}.env')}__{name}"
        case parts:
            return PREFIX + "__".join(parts).upper().replace("-", "_")


def is_pool_key(key: str) -> bool:
    return key == POOLS or key.startswith(f"{POOLS}.")
