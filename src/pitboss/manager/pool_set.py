"""All pools of a manager, kept at the size that the plan, the operators and the load ask for."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from pitboss.manager import host
from pitboss.manager.worker_pool import WorkerPool
from pitboss.manager.worker_process import Edition, WorkerProcess
from pitboss.manager.worker_slot import Services, WorkerSlot
from pitboss.model.desired_state import DesiredPool, DesiredState
from pitboss.model.pool import PoolSpec, range_text
from pitboss.model.task import Claim
from pitboss.worker.main import WorkerSpec


class PoolPlan(Protocol):
    """The part of a manager's plan that is about pools."""

    @property
    def pools(self) -> tuple[PoolSpec, ...]: ...

    @property
    def drain_seconds(self) -> float: ...


class PoolSet:
    """Keeps every pool at its wanted size. Trouble in one pool does not affect another."""

    def __init__(
        self,
        services: Services,
        plan: PoolPlan,
        *,
        make_spec: Callable[[str, PoolSpec], WorkerSpec],
        luck: Callable[[], float],
        learn: Callable[[Claim, int], None],
    ) -> None:
        self._services, self._plan, self._make_spec, self._luck = services, plan, make_spec, luck
        self._learn = learn
        self.pools: dict[str, WorkerPool] = {}
        self._configured: dict[str, PoolSpec] = {}
        self._removed: list[WorkerPool] = []
        self._desired = DesiredState()
        self._host = host.name()
        self.scaled: dict[str, tuple[int, str]] = {}
        self._stopping = False
        self._made = 0

    async def start(self, desired: DesiredState) -> None:
        await self._services.reaper.start()
        self._desired = desired
        for spec in self._plan.pools:
            self._add(spec)

    def change(self, plan: PoolPlan) -> None:
        """Add, remove and change pools as configured; replace all workers, because the code may be new."""
        self._plan = plan
        wanted = {spec.name: spec for spec in plan.pools}
        for name in [name for name in self.pools if name not in wanted]:
            pool = self.pools.pop(name)
            pool.drain()
            self._removed.append(pool)
        for name, spec in wanted.items():
            if name in self.pools:
                self._configured[name] = spec
                self.pools[name].change(self._with_orders(spec), plan.drain_seconds)
            else:
                self._add(spec)

    async def changed(self) -> bool:
        """Wait for the rolling restarts; whether every worker was replaced."""
        return all(await asyncio.gather(*(pool.rolled() for pool in self.pools.values())))

    def follow(self, desired: DesiredState) -> None:
        """Bring every pool to what operators want."""
        self._desired = desired
        for pool in self.pools.values():
            self._fit(pool)

    def scale(self, pool: str, size: int, why: str) -> None:
        """Set the size that the load asks for; an operator's wish overrides it."""
        self.scaled[pool] = size, why
        if pool in self.pools:
            self._fit(self.pools[pool])

    def wanted(self, spec: PoolSpec) -> tuple[int, str]:
        """How many workers a pool should have, and why."""
        if spec.name not in self.pools:
            return 0, "it is no longer configured"
        wish = self.desired_pool(spec.name)
        # A manager with chosen workers runs these or none: a number would choose the first ones of the pool instead.
        if wish.size is not None and (not spec.only or not wish.size):
            return wish.size, "set by an operator"
        if spec.scales:
            size, why = self.scaled.get(spec.name, (spec.min_workers, "the load is not measured yet"))
            return min(max(size, spec.min_workers), spec.max_workers), why
        return spec.max_workers, ""

    @property
    def starting(self) -> bool:
        """Whether some worker is on its way for the first time."""
        slots = (slot for pool in self.pools.values() for slot in pool.slots.values())
        return any(not slot.alive and not slot.crashes and not slot.given_up for slot in slots)

    def shape(self) -> list[tuple[object, ...]]:
        """What people wait for after a change: which workers exist, and which of them are ready."""
        return [
            (
                slot.name,
                worker and worker.pid,
                worker and worker.ready.is_set(),
                slot.given_up,
                pool.paused,
                pool.size,
            )
            for pool in self.every_pool()
            for slot in pool.every_slot()
            for worker in slot.workers or (None,)
        ]

    def every_pool(self) -> list[WorkerPool]:
        """Including removed pools, until their last worker has exited."""
        self._removed = [pool for pool in self._removed if pool.workers]
        return [*self.pools.values(), *self._removed]

    def places(self) -> dict[str, list[int]]:
        """The places of each pool."""
        return {name: pool.places for name, pool in self.pools.items()}

    def slot_number(self, pool: str, place: int) -> int | None:
        """The number that the worker at this place has over all hosts."""
        return self._services.router.slot_number(pool, place)

    def working(self) -> Iterator[tuple[WorkerPool, WorkerSlot, WorkerProcess]]:
        """The workers that take tasks now."""
        for pool in self.pools.values():
            for slot in pool.slots.values():
                worker = slot.current
                if worker is not None and worker.ready.is_set() and not worker.draining and not worker.gone.is_set():
                    yield pool, slot, worker

    def every_worker(self) -> Iterator[WorkerProcess]:
        """Also those that are draining."""
        return (worker for pool in self.every_pool() for slot in pool.every_slot() for worker in slot.workers)

    def quiet(self) -> None:
        """Stop replacing and resizing."""
        self._stopping = True
        for pool in self.every_pool():
            pool.quiet()

    def drain(self) -> None:
        for pool in self.every_pool():
            pool.drain()

    def kill(self) -> None:
        for pool in self.every_pool():
            pool.kill()

    async def end(self, *, grace: float) -> None:
        self._stopping = True
        await asyncio.gather(*(pool.end(grace) for pool in self.every_pool()))

    def _add(self, spec: PoolSpec) -> None:
        self._configured[spec.name] = spec
        pool = self.pools[spec.name] = WorkerPool(self._services, self._with_orders(spec), self._make, self._luck)
        pool.edition = (self.desired_pool(spec.name).generation or 0, 0)
        self._fit(pool)

    def _fit(self, pool: WorkerPool) -> None:
        if self._stopping:
            return
        name, wish = pool.spec.name, self.desired_pool(pool.spec.name)
        if bool(wish.paused) != pool.paused:
            pool.paused = bool(wish.paused)
            self._services.announcer.say(f"pool {name} is {'paused' if pool.paused else 'no longer paused'}")
            self._services.router.set_paused(name, pool.paused)
        delay = self._configured[name].delay if wish.delay is None else wish.delay
        if delay != pool.spec.delay:
            self._services.announcer.say(f"pool {name} pauses {range_text(delay)} after each task from now on")
            pool.set_delay(delay)
        if (wish.generation or 0) > pool.edition[0]:
            self._services.announcer.say(f"pool {name} is restarted, one worker after the other")
            pool.renew((wish.generation or 0, pool.edition[1]), self._plan.drain_seconds)
        size, why = self.wanted(pool.spec)
        before, after = pool.size, len(pool.spec.places(size))
        if after != before:
            self._services.announcer.scaled(name, before, after, why)
            pool.resize(size)

    def _with_orders(self, spec: PoolSpec) -> PoolSpec:
        """The configured pool with the pauses that operators want."""
        delay = self.desired_pool(spec.name).delay
        return spec if delay is None else msgspec.structs.replace(spec, delay=delay)

    def configured(self, spec: PoolSpec) -> PoolSpec:
        """The pool without what operators want."""
        return self._configured.get(spec.name, spec)

    def desired_pool(self, pool: str) -> DesiredPool:
        """What operators want of it on this host."""
        return self._desired.pool(pool, self._host)

    def _make(self, name: str, spec: PoolSpec, edition: Edition) -> WorkerProcess:
        # Counted over all pools: workers of a removed pool may still be draining when another pool of its name begins.
        self._made += 1
        heard = self._services.router.hear
        worker = WorkerProcess(self._make_spec(name, spec), self._made, edition, spec.env, heard)
        worker.learned = self._learn
        return worker
