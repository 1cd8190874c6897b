"""How far managers are with a change of the desired state, read from their snapshots."""

from collections.abc import Iterable, Sequence

import msgspec

from pitboss.model.fleet import ManagerView, WorkerPoolView, doing
from pitboss.model.snapshot import WorkerFigures

_SHOWN = 3
_NOT_READ = "has not read it yet"


class RolloutProgress(msgspec.Struct, frozen=True):
    """`done` of `of` steps. `left` says what is missing; `trouble` says why it will not finish by itself."""

    done: int
    of: int
    left: str = ""
    trouble: str = ""

    @property
    def over(self) -> bool:
        return self.done >= self.of


def next_generation(pools: Iterable[WorkerPoolView], wanted: Iterable[int]) -> int:
    """A new generation: above every one that runs and every one that was ever asked for."""
    running = [number for view in pools for number in (view.pool.generation, *_generations(view))]
    return max([0, *running, *wanted]) + 1


def restarted(pools: Sequence[WorkerPoolView], generation: int) -> RolloutProgress:
    """Until every worker is of this generation and ready. A manager that has not read the change counts as one more.

    Workers that had been given up are tried again too: one that is crashed when all others are new stays crashed.
    """
    done = of = 0
    left, trouble = [], []
    for view in pools:
        read = view.pool.generation >= generation
        fresh = [worker for worker in view.ready if worker.generation >= generation]
        total = len(view.live) + (len(view.crashed) if read else 1)
        done, of = done + len(fresh), of + total
        if len(fresh) < total:
            left.append(f"{view.manager.host}: {len(fresh)} of {len(view.live) + len(view.crashed)} workers are new")
        if read and len(fresh) == len(view.live):
            trouble += [_given_up(view, worker) for worker in view.crashed]
    return RolloutProgress(done, of, _joined(left), "; ".join(trouble))


def scaled(pools: Sequence[WorkerPoolView], size: int) -> RolloutProgress:
    """Until each manager has exactly `size` workers, all of them ready."""
    left, trouble = [], []
    for view in pools:
        if view.pool.wanted == size == len(view.ready) == len(view.live):
            continue
        left.append(f"{view.manager.host}: {len(view.ready)} of {size} workers")
        if view.pool.wanted == size <= len(view.ready) + len(view.crashed):
            trouble += [_given_up(view, worker) for worker in view.crashed]
    return RolloutProgress(len(pools) - len(left), len(pools), _joined(left), "; ".join(trouble))


def paused(pools: Sequence[WorkerPoolView]) -> RolloutProgress:
    """Until each manager has paused the pool and runs none of its tasks."""
    left = [
        f"{view.manager.host}: {doing(view.workers) or _NOT_READ}"
        for view in pools
        if not view.pool.paused or view.running
    ]
    return RolloutProgress(len(pools) - len(left), len(pools), _joined(left))


def resumed(pools: Sequence[WorkerPoolView]) -> RolloutProgress:
    left = [f"{view.manager.host}: {_NOT_READ}" for view in pools if view.pool.paused]
    return RolloutProgress(len(pools) - len(left), len(pools), _joined(left))


def stopped(asked: Sequence[ManagerView], managers: Iterable[ManagerView]) -> RolloutProgress:
    """Until none of these processes has a live session."""
    now = {one.process: one for one in managers}
    left = [_busy_with(now[one.process], "still running") for one in asked if one.process in now]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def drained(asked: Sequence[ManagerView], managers: Iterable[ManagerView]) -> RolloutProgress:
    """Until each of them takes no tasks and runs none. One that has ended meanwhile is done too."""
    now = {one.process: one for one in managers}
    left = [
        _busy_with(view, _NOT_READ)
        for view in (now[one.process] for one in asked if one.process in now)
        if not view.snapshot.draining or view.running
    ]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def undrained(asked: Sequence[ManagerView], managers: Iterable[ManagerView]) -> RolloutProgress:
    now = {one.process: one for one in managers}
    left = [one.name for one in asked if one.process in now and now[one.process].snapshot.draining]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def _generations(view: WorkerPoolView) -> list[int]:
    return [worker.generation for worker in view.workers]


def _given_up(view: WorkerPoolView, worker: WorkerFigures) -> str:
    why = f" ({worker.why})" if worker.why else ""
    return f"worker {worker.name} on {view.manager.host} was given up{why}"


def _busy_with(manager: ManagerView, otherwise: str) -> str:
    return f"{manager.name}: {doing(manager.snapshot.workers) or otherwise}"


def _joined(parts: Sequence[str]) -> str:
    shown = "; ".join(parts[:_SHOWN])
    return f"{shown}; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else shown
