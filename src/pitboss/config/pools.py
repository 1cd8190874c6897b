"""The worker pools of a manager, from what code, file and environment say of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from pitboss.config.settings import Settings
from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_keys import DeclaredPool, checked, checked_env, consistent, fields, named_fields, same_pool

Refuse = Callable[[str, Any, InvalidInput], NoReturn]


def pools(settings: Settings, declared: Sequence[DeclaredPool] = ()) -> tuple[PoolSpec, ...]:
    """Every pool, those of the code first. `declared` is what the code says; settings override it key by key.

    Without any, there is one that has all that the top-level `workers`, `concurrency` and `queues` say. Otherwise these
    hold for the pools that do not say otherwise, and a pool has one worker if nobody says how many.
    """
    if not settings.pools and not declared:
        one = {"min_workers": settings.workers, "max_workers": settings.workers}
        return (PoolSpec(**_shared(settings) | one),)
    outside = {same_pool(name): (name, keys) for name, keys in settings.pools.items()}
    code = {same_pool(pool.name): pool for pool in declared}
    return tuple(_joined(settings, code.get(key), outside.get(key)) for key in {**code, **outside})


def _joined(settings: Settings, code: DeclaredPool | None, outside: tuple[str, Mapping[str, Any]] | None) -> PoolSpec:
    name, said = outside or ("", {})
    values = _shared(settings) | (named_fields(code) if code else {}) | fields(said)
    values["env"] = (code.env if code else {}) | said.get("env", {})
    return consistent(PoolSpec(name=code.name if code else name, **values))


def _shared(settings: Settings) -> dict[str, Any]:
    """What holds for pools that do not say otherwise."""
    shared: dict[str, Any] = {"concurrency": settings.concurrency, "queues": settings.queues or None}
    if "workers" in settings.model_fields_set:
        shared["min_workers"] = shared["max_workers"] = settings.workers
    return shared


def pool_tables(values: Mapping[str, Any], refuse: Refuse) -> dict[str, dict[str, Any]]:
    """Checked values by pool and key, of values by dotted key. `refuse` knows where each came from."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        try:
            _take(found, key.split("."), value)
        except InvalidInput as error:
            refuse(key, value, error)
    return found


def _take(found: dict[str, dict[str, Any]], path: list[str], value: Any) -> None:
    match path:
        case [_, pool, "env", *name] if name:
            variable = ".".join(name)
            found.setdefault(pool, {}).setdefault("env", {})[variable] = checked_env(variable, value)
        case [_, pool, *rest] if rest:
            key = ".".join(rest)
            found.setdefault(pool, {})[key] = checked(key, value)
        case [_, pool] if value == {}:
            found.setdefault(pool, {})
        case _:
            raise InvalidInput(
                "this is not a table",
                why="a pool is a table with keys of its own",
                fix="write [pools.NAME], and its keys below",
            )
