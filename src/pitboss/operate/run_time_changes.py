"""What operators changed while managers run, above what code and settings declare, and how to withdraw it."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.declared_protocol import every_schedule
from pitboss.engines.protocol import Store
from pitboss.model.desired_state import manager_key
from pitboss.model.duration import Moment, spoken
from pitboss.model.fleet import ManagerView, live_managers, worker_pools
from pitboss.model.pool import range_text
from pitboss.model.pool_rules import value_text
from pitboss.model.queue import Queue
from pitboss.model.resource import ResourcePool
from pitboss.model.schedule import Schedule
from pitboss.operate.desired_state import StoredState, read_desired_state
from pitboss.operate.pool_rules import rule_readings
from pitboss.operate.queues import limit_readings

_NOTHING = "-"


class RunTimeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change: what it is about, named like a setting, and the command that withdraws it."""

    key: str
    value: str
    declared: str
    withdraw: str


async def read_run_time_changes(store: Store, now: Moment, sizes: Mapping[str, str]) -> list[RunTimeChange]:
    """All changes that still apply. `sizes` are the configured numbers of workers of worker pools, by name; live
    managers know better."""
    resources, schedules = capabilities(store).resources, capabilities(store).schedules
    managers = live_managers(await store.sessions(), now)
    stored = await read_desired_state(store)
    return [
        *_of_queues(await store.queues()),
        *_of_resource_pools(await resources.resource_pools() if resources else ()),
        *_of_worker_pools(stored, {**sizes, **_running_sizes(managers)}, _running_delays(managers)),
        *_of_schedules(await every_schedule(schedules) if schedules else ()),
        *_of_managers(stored, managers),
    ]


def _of_queues(queues: Sequence[Queue]) -> Iterator[RunTimeChange]:
    for queue in queues:
        if queue.paused:
            yield _change(f"queues.{queue.name}.paused", "true", "false", f"queues resume {queue.name}")
        for one in limit_readings(queue):
            if one.source == "operator":
                key = f"queues.{queue.name}.{one.key}"
                yield _change(key, one.value, one.declared, f"queues limit {queue.name} --reset")


def _of_resource_pools(pools: Sequence[ResourcePool]) -> Iterator[RunTimeChange]:
    for pool in pools:
        for rule in rule_readings(pool):
            if rule.source == "operator":
                value, declared = value_text(rule.key, rule.value), value_text(rule.key, rule.declared)
                yield _change(
                    f"resources.{pool.name}.{rule.key}", value, declared, f"resources limit {pool.name} --reset"
                )


def _of_worker_pools(
    stored: StoredState, sizes: Mapping[str, str], delays: Mapping[str, str]
) -> Iterator[RunTimeChange]:
    for key, value in sorted(stored.pools.items()):
        name, _, host = key.partition("@")
        where = f" --host {host}" if host else ""
        if value.get("size") is not None:
            declared = sizes.get(name, _NOTHING)
            yield _change(f"pools.{key}.workers", str(value["size"]), declared, f"pools scale {name} auto{where}")
        delay = stored.state.pool(name, host).delay if value.get("delay") else None
        if delay is not None:
            declared = delays.get(name, _NOTHING)
            yield _change(f"pools.{key}.delay", range_text(delay), declared, f"pools set {name} --reset{where}")
        if value.get("paused"):
            yield _change(f"pools.{key}.paused", "true", "false", f"pools resume {name}{where}")


def _of_schedules(schedules: Sequence[Schedule]) -> Iterator[RunTimeChange]:
    for schedule in schedules:
        name = schedule.name
        if schedule.paused:
            yield _change(f"schedules.{name}.paused", "true", "false", f"schedules resume {name}")
        for key, value in schedule.changes.items() if schedule.app is not None else ():
            before = getattr(schedule.declared, key)
            shown = _NOTHING if before is None else _shown(key, before)
            yield _change(f"schedules.{name}.{key}", _shown(key, value), shown, f"schedules reset {name}")


def _shown(key: str, value: object) -> str:
    return spoken(value) if key in ("every", "jitter", "timeout") and isinstance(value, int) else str(value)


def _of_managers(stored: StoredState, managers: Sequence[ManagerView]) -> Iterator[RunTimeChange]:
    for manager in managers:
        if stored.values.get(manager_key(manager.number), {}).get("drain"):
            command = f"drain --undo --manager {manager.number}"
            yield _change(f"manager {manager.number} on {manager.host}", "drained", _NOTHING, command)


def _running_sizes(managers: Sequence[ManagerView]) -> dict[str, str]:
    pools = [view.pool for view in worker_pools(managers)]
    return {one.name: str(one.least) if one.least == one.most else f"{one.least}-{one.most}" for one in pools}


def _running_delays(managers: Sequence[ManagerView]) -> dict[str, str]:
    return {view.pool.name: range_text(view.pool.delay) for view in worker_pools(managers)}


def _change(key: str, value: str, declared: str, command: str) -> RunTimeChange:
    return RunTimeChange(key=key, value=value, declared=declared, withdraw=f"pitboss {command}")
