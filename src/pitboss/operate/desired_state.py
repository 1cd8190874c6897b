"""Writes what operators want of worker pools and managers, and waits until managers have done it.

A value is read, changed in part and written back: fields that others set, and fields of releases that we do not know,
stay. The store has no compare-and-set for it. Of two changes to one pool at the same moment the later one wins, and may
write back what the other one changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.desired_state import DesiredPool, DesiredState, manager_key, pool_key
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.errors import NotDone, NotFound, Refused, TimedOutWaiting
from pitboss.model.fleet import ManagerView, WorkerPoolView, live_managers, manager_view, worker_pools
from pitboss.model.pool import Range
from pitboss.model.queue import checked_name
from pitboss.model.rollout_progress import RolloutProgress, next_generation
from pitboss.model.session import Session
from pitboss.model.text import listed, ranges
from pitboss.operate.lookup import closest
from pitboss.operate.workers import node_given, node_host

_LOOK_SECONDS = 0.5
# What a worker pool remembers of its pause.
_WHY = ("paused_by", "paused_at", "paused_reason")
_POOL = "pool/"
_MANAGER = "manager/"


class StoredState(msgspec.Struct, frozen=True):
    """The desired state: `values` as written, by key; `state` as it applies to a pool on a host."""

    values: dict[str, dict[str, Any]]
    state: DesiredState

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """What is wanted of worker pools, by pool or pool@host."""
        return {key.removeprefix(_POOL): value for key, value in self.values.items() if key.startswith(_POOL)}


class ChangedPool(msgspec.Struct, frozen=True):
    """A worker pool in one manager, and what was wanted of it before the change."""

    view: WorkerPoolView
    before: DesiredPool


class PoolChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a worker pool, on one host or (None) on all.

    `everywhere` is the size wanted on all hosts, `generation` the one to restart to, `overruled` the hosts whose own
    value the change for all hosts has replaced.
    """

    name: str
    host: str | None
    pools: tuple[ChangedPool, ...]
    everywhere: int | None = None
    generation: int | None = None
    overruled: tuple[str, ...] = ()


async def read_desired_state(store: Store) -> StoredState:
    found = await store.wishes()
    state = DesiredState()
    state.take(found)
    return StoredState({wish.key: _object(wish.value) for wish in found if wish.value is not None}, state)


async def scale_pool(
    store: Store, now: Moment, name: str, size: int | None, *, host: str | None = None, by: str
) -> PoolChange:
    """Give the pool this many workers in each manager; None returns to configuration and load. Refused for managers
    that were started for certain workers (`only`); they may still be scaled to 0 and back."""
    target = await _target(store, now, name, host)
    if size:
        _refuse_chosen(target)
    overruled = await target.change(store, by, size=size)
    return msgspec.structs.replace(target.changed(), overruled=tuple(overruled))


async def restart_pool(store: Store, now: Moment, name: str, *, host: str | None = None, by: str) -> PoolChange:
    """Replace the pool's workers one by one."""
    target = await _target(store, now, name, host)
    asked = [value.get("generation") for value in target.values.values()]
    generation = next_generation(target.pools, [number for number in asked if isinstance(number, int)])
    await _write(store, target.key, target.values.get(target.key, {}), by, generation=generation)
    return msgspec.structs.replace(target.changed(), generation=generation)


async def pause_pool(
    store: Store, now: Moment, name: str, *, paused: bool, host: str | None = None, by: str, reason: str = ""
) -> PoolChange:
    """Give the pool's workers no more tasks, or (`paused` False) give them tasks again."""
    target = await _target(store, now, name, host)
    # "Not paused" must be stored only for a host that differs from the others.
    differs = host is not None and bool(target.everywhere.get("paused"))
    why = {"paused_by": by, "paused_at": now, "paused_reason": reason or None} if paused else dict.fromkeys(_WHY)
    overruled = await target.change(store, by, paused=True if paused else False if differs else None, **why)
    return msgspec.structs.replace(target.changed(), overruled=tuple(overruled))


async def pool_values(store: Store, name: str, field: str) -> dict[str, Any]:
    """A field of what is wanted of a pool, by host; of all hosts it is under ""."""
    pools = (await read_desired_state(store)).pools
    found = {key.partition("@")[2]: value.get(field) for key, value in pools.items() if key.partition("@")[0] == name}
    return {host: value for host, value in found.items() if value is not None}


async def restore_pool(store: Store, name: str, field: str, before: Mapping[str, Any], *, by: str) -> None:
    """Bring a field of a pool back to what it was, on each host."""
    values = (await read_desired_state(store)).values
    for host in {*before, *await pool_values(store, name, field)}:
        key = pool_key(name, host or None)
        why = dict.fromkeys(_WHY) if field == "paused" and not before.get(host) else {}
        await _write(store, key, values.get(key, {}), by, **{field: before.get(host)}, **why)


async def delay_pool(
    store: Store, now: Moment, name: str, delay: Range | None, *, host: str | None = None, by: str
) -> PoolChange:
    """Let the pool's workers pause that long after each task; None returns to what is configured."""
    target = await _target(store, now, name, host)
    overruled = await target.change(store, by, delay=None if delay is None else list(delay))
    return msgspec.structs.replace(target.changed(), overruled=tuple(overruled))


async def stop_managers(store: Store, managers: Sequence[ManagerView], *, at_once: bool = False, by: str) -> None:
    """Let managers end; `at_once` does not wait for running tasks."""
    values = (await read_desired_state(store)).values
    for key in (manager_key(one.number) for one in managers):
        await _write(store, key, values.get(key, {}), by, stop=True, **({"now": True} if at_once else {}))


async def drain_managers(store: Store, managers: Sequence[ManagerView], *, undo: bool = False, by: str) -> None:
    """Let managers take no more tasks, or (`undo`) take tasks again. Refused for a manager that is stopping."""
    values = (await read_desired_state(store)).values
    sessions = await store.sessions()
    keys = {one.number: _keys(one, sessions, values) for one in managers}
    stopping = [one.name for one in managers if any(values.get(key, {}).get("stop") for key in keys[one.number])]
    if stopping:
        raise Refused(
            f"{', '.join(stopping)} was asked to stop already",
            why="a stop cannot be undone, and it drains anyway",
            fix="choose another manager; nothing was changed",
        )
    for one in managers:
        for key in keys[one.number] if undo else [manager_key(one.number)]:
            await _write(store, key, values.get(key, {}), by, drain=None if undo else True)


async def wait_for_rollout(
    what: str,
    look: Callable[[], Awaitable[RolloutProgress]],
    timeout: Span,
    show: Callable[[RolloutProgress], None] = lambda _: None,
) -> None:
    """Until it is over; `TimedOutWaiting` if that takes longer, `NotDone` if it cannot finish by itself."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout / SECOND
    while not (progress := await look()).over:
        show(progress)
        if progress.trouble:
            raise NotDone(
                f"{what}: it cannot finish",
                why=progress.trouble,
                fix="fix the cause and repeat the command; pitboss ps shows the workers, pitboss logs their last lines",
            )
        left = ends - loop.time()
        if left <= 0:
            raise TimedOutWaiting(
                f"{what}: {progress.done} of {progress.of} after {spoken(timeout)}",
                why=f"still waiting for {progress.left}",
                fix="the change stays in force; repeat with a longer --timeout, or look at pitboss ps",
            )
        await asyncio.sleep(min(_LOOK_SECONDS, left))


class _Target(msgspec.Struct, frozen=True):
    """A worker pool by name, on one host or (None) on all; `values` are those of this pool, as written, by key."""

    name: str
    host: str | None
    pools: tuple[WorkerPoolView, ...]
    values: dict[str, dict[str, Any]]
    state: DesiredState

    @property
    def key(self) -> str:
        return pool_key(self.name, self.host)

    @property
    def everywhere(self) -> dict[str, Any]:
        return self.values.get(pool_key(self.name), {})

    def changed(self) -> PoolChange:
        return PoolChange(
            name=self.name,
            host=self.host,
            pools=tuple(ChangedPool(view, self._before(view)) for view in self.pools),
            everywhere=self.everywhere.get("size"),
        )

    async def change(self, store: Store, by: str, **changes: Any) -> list[str]:
        """Write it. A change for all hosts replaces the values of single ones; returns the hosts that lost theirs."""
        await _write(store, self.key, self.values.get(self.key, {}), by, **changes)
        single = [] if self.host is not None else sorted(self.values.keys() - {self.key})
        overruled = [key for key in single if changes.keys() & self.values[key].keys()]
        for key in overruled:
            await _write(store, key, self.values[key], by, **dict.fromkeys(changes))
        return [key.partition("@")[2] for key in overruled]

    def _before(self, view: WorkerPoolView) -> DesiredPool:
        """What was wanted last, or else what the manager's snapshot says, which may be seconds old."""
        wanted = self.state.pool(self.name, view.manager.host)
        return DesiredPool(
            size=view.pool.wanted if wanted.size is None else wanted.size,
            generation=max(view.pool.generation, wanted.generation or 0),
            paused=view.pool.paused if wanted.paused is None else wanted.paused,
            delay=view.pool.delay if wanted.delay is None else wanted.delay,
        )


async def _target(store: Store, now: Moment, name: str, host: str | None) -> _Target:
    """`NotFound` if no manager runs the pool and nothing was ever wanted of it."""
    checked_name(name, "pool")
    managers = live_managers(await store.sessions(), now)
    stored = await read_desired_state(store)
    # No pool name contains an @, so the host begins there.
    values = {key: value for key, value in stored.values.items() if key.partition("@")[0] == pool_key(name)}
    target = _Target(name, host, tuple(worker_pools(managers, name, host)), values, stored.state)
    if not target.pools and not (target.key in values or (host is None and values)):
        if host is not None and (there := await node_host(store, host, managers)) is not None:
            raise node_given(f'worker pool "{name}" does not run on a host "{host}"', host, there)
        raise _not_running(target, managers)
    return target


def _refuse_chosen(target: _Target) -> None:
    chosen = [view for view in target.pools if view.pool.only]
    if not chosen:
        return
    numbers = ranges({number for view in chosen for number in view.pool.only})
    raise Refused(
        f'worker pool "{target.name}" cannot be scaled: {listed([view.manager.name for view in chosen])} '
        f"was started with --only {numbers.replace(' ', '')}",
        why="such a manager runs the workers with these numbers, and a number of workers does not say which",
        fix="start a manager for other workers: pitboss up --only N, or one without --only; 0 and auto are allowed",
    )


def _not_running(target: _Target, managers: Iterable[ManagerView]) -> NotFound:
    running = worker_pools(managers)
    hosts = sorted({view.manager.host for view in running if view.pool.name == target.name})
    names = sorted({view.pool.name for view in running})
    if hosts:
        close = closest(target.host or "", hosts)
        return NotFound(
            f'worker pool "{target.name}" does not run on "{target.host}"',
            why=f"it runs on {', '.join(hosts)}",
            fix=f"did you mean --host {close}?" if close else "check the host; nothing was changed",
        )
    close = closest(target.name, names)
    return NotFound(
        f'no manager runs a worker pool "{target.name}"',
        why=f"the worker pools are {', '.join(names)}" if names else "no manager is running on this store",
        fix=f"did you mean {close}? Nothing was changed" if close else "start its manager with pitboss up, then repeat",
    )


def _keys(manager: ManagerView, sessions: Sequence[Session], values: Iterable[str]) -> list[str]:
    """The keys that apply to a manager: those of all its sessions so far, and those of sessions that the store has
    forgotten, which may have been its own."""
    others = {manager_key(one.number) for one in sessions if manager_view(one).process != manager.process}
    own = {key for key in values if key.startswith(_MANAGER) and key not in others}
    return sorted(own | {manager_key(manager.number)})


async def _write(store: Store, key: str, value: Mapping[str, Any], by: str, **changes: Any) -> None:
    """Change some fields of a value; None removes a field, and a value without fields is withdrawn."""
    after = {name: field for name, field in {**value, **changes}.items() if field is not None}
    if after != dict(value):
        await store.wish(key, msgspec.json.encode(after).decode() if after else None, by=by)


def _object(text: str) -> dict[str, Any]:
    """A value that is no object has no fields that we know."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
