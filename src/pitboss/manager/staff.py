"""All pools of a manager: what the plan says, what operators want, and what the load asks for, made workers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from pitboss.manager import host
from pitboss.manager.crew import Crew, Edition
from pitboss.manager.guard import Guard
from pitboss.manager.place import Board
from pitboss.manager.process import Heard, WorkerProcess
from pitboss.manager.watch import Overseer, Watch
from pitboss.model.desired_state import DesiredPool, DesiredState
from pitboss.model.pool import PoolSpec
from pitboss.worker.main import Spec


class Office(Board, Overseer, Protocol):
    """What the staff needs of its manager."""

    def paused(self, pool: str, paused: bool) -> None: ...

    def scaled(self, pool: str, before: int, after: int, why: str) -> None: ...


class Staffing(Protocol):
    """The part of a plan that is about workers."""

    @property
    def pools(self) -> tuple[PoolSpec, ...]: ...

    @property
    def drain_seconds(self) -> float: ...


class Staff:
    """Keeps every pool at its wanted size. One pool's trouble is none of another's."""

    def __init__(
        self,
        office: Office,
        plan: Staffing,
        *,
        make_spec: Callable[[str, PoolSpec], Spec],
        luck: Callable[[], float],
        learn: Callable[[str, int], None],
    ) -> None:
        self._office, self._plan, self._make_spec, self._luck = office, plan, make_spec, luck
        self._learn = learn
        self._guard = Guard()
        self.crews: dict[str, Crew] = {}
        self._gone: list[Crew] = []
        self._wishes = DesiredState()
        self._host = host.name()
        self.scaled: dict[str, tuple[int, str]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._made = 0

    async def start(self, wishes: DesiredState) -> None:
        await self._guard.start()
        self._wishes = wishes
        for spec in self._plan.pools:
            self._add(spec)
        self._watching = asyncio.create_task(Watch(self._office, self.every_crew).run())

    def change(self, plan: Staffing) -> None:
        """Pools come and go and change with the configuration; their workers are replaced for new code in any case."""
        self._plan = plan
        wanted = {spec.name: spec for spec in plan.pools}
        for name in [name for name in self.crews if name not in wanted]:
            crew = self.crews.pop(name)
            crew.drain()
            self._gone.append(crew)
        for name, spec in wanted.items():
            if name in self.crews:
                self.crews[name].change(spec, plan.drain_seconds)
            else:
                self._add(spec)

    async def changed(self) -> bool:
        """Whether every worker has been replaced, once that was tried."""
        return all(await asyncio.gather(*(crew.rolled() for crew in self.crews.values())))

    def wish(self, wishes: DesiredState) -> None:
        """Bring every pool to what operators want of it."""
        self._wishes = wishes
        for crew in self.crews.values():
            self._fit(crew)

    def scale(self, pool: str, size: int, why: str) -> None:
        """What the load asks for; an operator's word counts more."""
        self.scaled[pool] = size, why
        if pool in self.crews:
            self._fit(self.crews[pool])

    def wanted(self, spec: PoolSpec) -> tuple[int, str]:
        """How many workers a pool is to have, and why."""
        if spec.name not in self.crews:
            return 0, "it is no longer configured"
        wish = self._wished(spec.name)
        if wish.size is not None:
            return wish.size, "an operator wants so"
        if spec.scales:
            size, why = self.scaled.get(spec.name, (max(spec.min_workers, 1), "no load was measured yet"))
            return min(max(size, spec.min_workers), spec.max_workers), why
        return spec.max_workers, ""

    def shape(self) -> list[tuple[object, ...]]:
        """What people wait for when they have changed something: which workers there are, of which edition."""
        return [
            (
                place.name,
                worker and worker.pid,
                worker and worker.ready.is_set(),
                place.given_up,
                crew.paused,
                crew.size,
            )
            for crew in self.every_crew()
            for place in crew.every_place()
            for worker in place.workers or (None,)
        ]

    def every_crew(self) -> list[Crew]:
        """Also those of removed pools, until their last worker has ended."""
        self._gone = [crew for crew in self._gone if crew.workers]
        return [*self.crews.values(), *self._gone]

    def at_work(self) -> Iterator[tuple[WorkerProcess, PoolSpec]]:
        """The workers that take tasks now."""
        for crew in self.crews.values():
            for place in crew.places.values():
                worker = place.current
                if worker is not None and worker.ready.is_set() and not worker.draining and not worker.gone.is_set():
                    yield worker, crew.spec

    def rest(self, spec: PoolSpec) -> Callable[[], float] | None:
        """How long workers of this pool pause after each task; None if they do not."""
        crew = self.crews.get(spec.name)
        return crew.rest if crew is not None and spec.delay[1] else None

    def quiet(self) -> None:
        self._stopping = True
        for crew in self.every_crew():
            crew.quiet()

    def drain(self) -> None:
        for crew in self.every_crew():
            crew.drain()

    def kill(self) -> None:
        for crew in self.every_crew():
            crew.kill()

    async def end(self, *, grace: float) -> None:
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await asyncio.gather(*(crew.end(grace) for crew in self.every_crew()))
        await self._guard.stop()

    def _add(self, spec: PoolSpec) -> None:
        crew = self.crews[spec.name] = Crew(self._office, self._guard, spec, self._make, self._luck)
        crew.edition = (self._wished(spec.name).generation or 0, 0)
        self._fit(crew)

    def _fit(self, crew: Crew) -> None:
        if self._stopping:
            return
        wish = self._wished(crew.spec.name)
        if bool(wish.paused) != crew.paused:
            crew.paused = bool(wish.paused)
            self._office.say(f"pool {crew.spec.name} is {'paused' if crew.paused else 'no longer paused'}")
            self._office.paused(crew.spec.name, crew.paused)
        if (wish.generation or 0) > crew.edition[0]:
            self._office.say(f"pool {crew.spec.name} is restarted, one worker after the other")
            crew.renew((wish.generation or 0, crew.edition[1]), self._plan.drain_seconds)
        size, why = self.wanted(crew.spec)
        if size != crew.size:
            self._office.scaled(crew.spec.name, crew.size, size, why)
            crew.resize(size)

    def _wished(self, pool: str) -> DesiredPool:
        return self._wishes.pool(pool, self._host)

    def _make(self, name: str, spec: PoolSpec, edition: Edition, heard: Heard) -> WorkerProcess:
        # Counted over all pools: one that was removed may still be leaving when another of its name begins.
        self._made += 1
        worker = WorkerProcess(self._make_spec(name, spec), self._made, edition, spec.env, heard)
        worker.learned = self._learn
        return worker
