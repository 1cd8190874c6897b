"""The rules of a resource pool: where each comes from, and an operator's limits above what code declares."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from pitboss.engines.capabilities import resources_of
from pitboss.engines.protocol import Store
from pitboss.model.duration import Moment
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.pool_rules import keys_of, plain_keys
from pitboss.model.resource import KeyValue, PoolRules, ResourcePool
from pitboss.model.resource_keys import KEYS, checked_keys
from pitboss.operate.lookup import closest


class RuleReading(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a pool that differs from the default: who set it and when. `declared` is what an operator's limit
    stands above; None: the default."""

    key: str
    value: KeyValue
    source: Literal["declared", "operator"]
    by: str | None = None
    at: Moment = 0
    declared: KeyValue = None


async def find_pool(store: Store, name: str) -> ResourcePool:
    """The resource pool of this name."""
    known = {pool.name: pool for pool in await resources_of(store).resource_pools()}
    if name in known:
        return known[name]
    close = closest(name, known)
    raise NotFound(
        f'there is no resource pool "{name}"',
        why=f"the pools are {', '.join(known)}" if known else "no app has declared one, and no member was added",
        fix=f"did you mean {close}?" if close else "check the name; pitboss resources list shows the pools",
    )


def rule_readings(pool: ResourcePool) -> tuple[RuleReading, ...]:
    """Every rule that code or an operator has set, in the order of the keys."""
    said = keys_of(PoolRules() if pool.declared is None else pool.declared.rules)
    limited = {} if pool.limited is None else plain_keys(pool.limited.values)
    return tuple(_reading(pool, key, said, limited) for key in KEYS if key in said or key in limited)


async def limit_resource_pool(
    store: Store, name: str, words: Sequence[str], *, by: str, reset: bool = False
) -> ResourcePool:
    """Set keys of a pool, given as KEY=VALUE, above every declaration; the pool as it is then."""
    values = checked_keys(dict(_pair(word) for word in words))
    await find_pool(store, name)
    if values or reset:
        await resources_of(store).limit_pool(name, values, by=by, reset=reset)
    return await find_pool(store, name)


def _reading(
    pool: ResourcePool, key: str, said: Mapping[str, KeyValue], limited: Mapping[str, KeyValue]
) -> RuleReading:
    if key in limited and pool.limited is not None:
        by, at = pool.limited.by, pool.limited.at
        return RuleReading(key=key, value=limited[key], source="operator", by=by, at=at, declared=said.get(key))
    by, at = (None, 0) if pool.declared is None else (pool.declared.by, pool.declared.at)
    return RuleReading(key=key, value=said[key], source="declared", by=by, at=at)


def _pair(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not sign or not key or not value:
        raise InvalidInput(
            f"{word!r:.60} is not KEY=VALUE",
            why="a limit is a key of the pool, =, and its value; none takes a limit away",
            fix="say per_hour=20, min_delay=2s or concurrency=none; with --reset alone, what is declared holds again",
        )
    return key, value
