"""Managers, worker pools and workers on all hosts, as their sessions describe them."""

from collections.abc import Sequence

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Store
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.fleet import ManagerView, WorkerPoolView, alive, live_managers, manager_view, worker_pools
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.text import listed
from pitboss.operate.lookup import did_you_mean


class ManagersReading(msgspec.Struct, frozen=True, kw_only=True):
    """`gone` are managers that ended within the last hour. `pool` is the worker pool that was asked for."""

    living: tuple[ManagerView, ...]
    gone: tuple[ManagerView, ...] = ()
    pool: str | None = None


class WorkerReading(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a live manager, and its worker pool there."""

    manager: ManagerView
    worker: WorkerFigures
    pool: WorkerPoolView


async def read_worker(store: Store, now: Moment, number: int, name: str) -> WorkerReading:
    (manager,) = await find_managers(store, now, number=number)
    for view in worker_pools([manager]):
        for worker in view.workers:
            if worker.name == name:
                return WorkerReading(manager=manager, worker=worker, pool=view)
    names = [one.name for one in manager.snapshot.workers]
    raise NotFound(
        f'{manager.name} has no worker "{name:.80}"',
        why=f"its workers are {listed(names)}" if names else "it has no workers",
        fix=did_you_mean(name, names, "pitboss ps lists the workers"),
    )


async def read_managers(
    store: Store, now: Moment, *, host: str | None = None, pool: str | None = None, with_gone: bool = False
) -> ManagersReading:
    sessions = [one for one in await store.sessions() if one.info.kind == "manager"]
    chosen = [one for one in sessions if host in (None, one.info.host)]
    living = live_managers(chosen, now)
    gone = [manager_view(one) for one in chosen if not alive([one], now)] if with_gone else []
    if host is not None and not living and not gone:
        raise await _unknown_host(store, host, live_managers(sessions, now))
    if pool is not None and not any(worker.pool == pool for one in living for worker in one.snapshot.workers):
        raise _unknown_pool(pool, living)
    return ManagersReading(living=tuple(living), gone=tuple(gone), pool=pool)


async def find_managers(
    store: Store, now: Moment, *, host: str | None = None, number: int | None = None
) -> list[ManagerView]:
    """The live managers, those of a host, or the one with this number; `NotFound` if there is none."""
    managers = live_managers(await store.sessions(), now)
    if not managers:
        raise NotFound(
            "no manager is running on this store",
            why="none has a live session; a manager that was killed is forgotten within seconds",
            fix="pitboss ps --all shows those of the last hour",
        )
    found = [one for one in managers if host in (None, one.host) and number in (None, one.number)]
    if found:
        return found
    if host is not None:
        raise await _unknown_host(store, host, managers)
    raise NotFound(
        f"there is no running manager {number}",
        why=f"running are {', '.join(f'{one.number} ({one.host})' for one in managers)}",
        fix="pitboss ps shows the numbers; a manager that starts again gets a new one",
    )


async def read_worker_pools(
    store: Store, now: Moment, name: str | None = None, host: str | None = None
) -> list[WorkerPoolView]:
    """Each worker pool of each live manager; none is no error."""
    return worker_pools(live_managers(await store.sessions(), now), name, host)


async def find_worker_pool(store: Store, now: Moment, name: str) -> list[WorkerPoolView]:
    """This worker pool in each live manager that has it; `NotFound` if none has."""
    managers = live_managers(await store.sessions(), now)
    found = worker_pools(managers, name)
    if not found:
        raise _unknown_pool(name, managers)
    return found


async def list_worker_pools(store: Store, now: Moment, host: str | None = None) -> list[WorkerPoolView]:
    """As `read_worker_pools`, but a host without a manager is an error."""
    managers = live_managers(await store.sessions(), now)
    if host is not None and all(one.host != host for one in managers):
        raise await _unknown_host(store, host, managers)
    return worker_pools(managers, host=host)


async def log_folders(store: Store, now: Moment) -> list[str]:
    """The hosts of live managers with their log folders: "box2 (in /srv/shop/logs)"."""
    managers = [manager_view(one) for one in alive(await store.sessions(), now) if one.info.kind == "manager"]
    return sorted({f"{one.host} (in {one.snapshot.logs})" if one.snapshot.logs else one.host for one in managers})


def node_given(what: str, node: str, host: str) -> NotFound:
    return NotFound(
        what,
        why=f"{node} is a node: the name of one manager, for its slots in queues with partitions; it runs on {host}",
        fix=f"--host {host} means all managers of that host; pitboss ps lists the hosts",
    )


async def node_host(store: Store, host: str, managers: Sequence[ManagerView]) -> str | None:
    """The host of the manager whose node, as `partitions show` names it, was given instead of a host."""
    verbs = capabilities(store).partitions
    sessions = {slot.session for slot in (await verbs.slots() if verbs is not None else ()) if slot.node == host}
    return next((one.host for one in managers if one.number in sessions), None)


async def _unknown_host(store: Store, host: str, managers: Sequence[ManagerView]) -> NotFound:
    hosts = sorted({one.host for one in managers})
    if (there := await node_host(store, host, managers)) is not None:
        return node_given(f'no manager is running on "{host}"', host, there)
    return NotFound(
        f'no manager is running on "{host}"',
        why=f"managers are running on {', '.join(hosts)}" if hosts else "no manager is running on this store",
        fix=did_you_mean(host, hosts, "pitboss ps lists the hosts"),
    )


def _unknown_pool(pool: str, managers: Sequence[ManagerView]) -> NotFound:
    known = {worker.pool for one in managers for worker in one.snapshot.workers}
    names = sorted(known | {figures.name for one in managers for figures in one.snapshot.pools})
    return NotFound(
        f'no manager runs a worker pool "{pool}"',
        why=f"the worker pools are {', '.join(names)}" if names else "no manager is running",
        fix=did_you_mean(pool, names, "pitboss pools list shows the worker pools"),
    )
