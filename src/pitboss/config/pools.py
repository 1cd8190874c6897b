"""The worker pools and resource pools of an app, merged from code, file and environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from pitboss.config.settings import Settings
from pitboss.model.errors import InvalidInput
from pitboss.model.log_settings import MANAGER_FILE, log_file_name
from pitboss.model.pool import PoolSpec
from pitboss.model.pool_keys import DeclaredPool, checked, checked_env, consistent, fields, named_fields, same_pool
from pitboss.model.resource import KeyValue, PoolRules
from pitboss.model.resource_keys import DeclaredResources, rules_of

Refuse = Callable[[str, Any, InvalidInput], NoReturn]


def pools(settings: Settings, declared: Sequence[DeclaredPool] = ()) -> tuple[PoolSpec, ...]:
    """Every worker pool, those of the code first. `declared` is from the code; settings override it key by key.

    Without any pool there is one, with the top-level `workers`, `concurrency` and `only_queues`. Otherwise these are
    the defaults of the pools, and a pool without a number of workers has one.
    """
    if not settings.pools and not declared:
        one = {"min_workers": settings.workers, "max_workers": settings.workers}
        return (PoolSpec(**_shared(settings) | one),)
    outside = {same_pool(name): (name, keys) for name, keys in settings.pools.items()}
    code = {same_pool(pool.name): pool for pool in declared}
    found = tuple(_joined(settings, code.get(key), outside.get(key)) for key in {**code, **outside})
    _refuse_shared_files(found)
    return found


def _refuse_shared_files(found: Sequence[PoolSpec]) -> None:
    """Each log file belongs to one worker, and none to the manager."""
    owners = {MANAGER_FILE: "the manager"}
    for pool in found:
        for place in range(pool.max_workers if pool.log_file is not None else 0):
            name = log_file_name(pool.log_file or "", pool.name, place)
            if name in owners:
                raise InvalidInput(
                    f'log_file of pool "{pool.name}" makes the name {name}',
                    why=f"that file belongs to {owners[name]}",
                    fix=f'add {{pool}}, as in "{{pool}}_{pool.log_file}"',
                )
            owners[name] = f'a worker of pool "{pool.name}"'


def _joined(settings: Settings, code: DeclaredPool | None, outside: tuple[str, Mapping[str, Any]] | None) -> PoolSpec:
    name, said = outside or ("", {})
    values = _shared(settings) | (named_fields(code) if code else {}) | fields(said)
    values["env"] = (code.env if code else {}) | said.get("env", {})
    return consistent(PoolSpec(name=code.name if code else name, **values))


def _shared(settings: Settings) -> dict[str, Any]:
    """The defaults of all pools."""
    shared: dict[str, Any] = {"concurrency": settings.concurrency, "queues": settings.only_queues or None}
    if "workers" in settings.model_fields_set:
        shared["min_workers"] = shared["max_workers"] = settings.workers
    return shared


def pool_tables(values: Mapping[str, Any], refuse: Refuse) -> dict[str, dict[str, Any]]:
    """Checked values by pool and key, from values by dotted key. `refuse` raises an error with a value's origin."""
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
                why="a pool is a table of keys",
                fix="write [pools.NAME], and its keys below it",
            )


def resource_keys(settings: Settings, declared: DeclaredResources) -> dict[str, KeyValue]:
    """The keys of a pool from the code, overridden by the settings."""
    said = dict(declared.values)
    for name, keys in settings.resources.items():
        if same_pool(name) == same_pool(declared.name):
            said |= keys
    return said


def resource_rules(settings: Settings, declared: DeclaredResources) -> PoolRules:
    """The rules of these keys."""
    return rules_of(resource_keys(settings, declared))


def all_resource_rules(settings: Settings, declared: Sequence[DeclaredResources]) -> tuple[tuple[str, PoolRules], ...]:
    """The rules of every pool that the code declares. Settings for an unknown pool are an error."""
    known = {same_pool(pool.name) for pool in declared}
    strange = [name for name in settings.resources if same_pool(name) not in known]
    if strange:
        raise InvalidInput(
            f"the settings name {', '.join(f'resources.{name}' for name in strange)}, which the app does not have",
            why=f"its resource pools are {', '.join(pool.name for pool in declared) or 'none'}",
            fix="correct the name, or declare the pool with app.resources(…)",
        )
    return tuple((pool.name, resource_rules(settings, pool)) for pool in declared)
