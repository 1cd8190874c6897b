"""How far managers are with what was wished of them, read from what they tell."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pitboss.model.fleet import Managed, Place, doing
from pitboss.model.snapshot import WorkerFigures

_SHOWN = 3


class RolloutProgress(NamedTuple):
    """So much `of` it is `done`. `left` says what is waited for; `trouble`, that it will not come about by itself."""

    done: int
    of: int
    left: str = ""
    trouble: str = ""

    @property
    def over(self) -> bool:
        return self.done >= self.of


def next_generation(places: Iterable[Place], wished: Iterable[int]) -> int:
    """A generation that nobody has yet, here or anywhere: above what runs and above what was asked for."""
    running = [number for place in places for number in (place.pool.generation, *_generations(place))]
    return max([0, *running, *wished]) + 1


def restarted(places: Sequence[Place], generation: int) -> RolloutProgress:
    """Until every worker is of this generation, and ready. A manager that has not heard yet counts as one more.

    Those that had been given up are tried again, too: one that is crashed when all others are new will stay so.
    """
    done = of = 0
    left, trouble = [], []
    for place in places:
        heard = place.pool.generation >= generation
        fresh = [worker for worker in place.ready if worker.generation >= generation]
        total = len(place.live) + (len(place.crashed) if heard else 1)
        done, of = done + len(fresh), of + total
        if len(fresh) < total:
            left.append(f"{place.manager.host}: {len(fresh)} of {len(place.live) + len(place.crashed)} workers are new")
        if heard and len(fresh) == len(place.live):
            trouble += [_given_up(place, worker) for worker in place.crashed]
    return RolloutProgress(done, of, _joined(left), "; ".join(trouble))


def scaled(places: Sequence[Place], size: int) -> RolloutProgress:
    """Until each manager has so many workers that are ready, and none beyond."""
    left, trouble = [], []
    for place in places:
        if place.pool.wanted == size == len(place.ready) == len(place.live):
            continue
        left.append(f"{place.manager.host}: {len(place.ready)} of {size} workers")
        if place.pool.wanted == size <= len(place.ready) + len(place.crashed):
            trouble += [_given_up(place, worker) for worker in place.crashed]
    return RolloutProgress(len(places) - len(left), len(places), _joined(left), "; ".join(trouble))


def paused(places: Sequence[Place]) -> RolloutProgress:
    """Until each manager has paused the pool and nothing of it runs."""
    left = [
        f"{place.manager.host}: {doing(place.workers) or 'has not heard yet'}"
        for place in places
        if not place.pool.paused or place.running
    ]
    return RolloutProgress(len(places) - len(left), len(places), _joined(left))


def resumed(places: Sequence[Place]) -> RolloutProgress:
    left = [f"{place.manager.host}: has not heard yet" for place in places if place.pool.paused]
    return RolloutProgress(len(places) - len(left), len(places), _joined(left))


def stopped(asked: Sequence[Managed], fleet: Iterable[Managed]) -> RolloutProgress:
    """Until none of these processes has a live session."""
    going = {one.process: one for one in fleet}
    left = [_at(going[one.process], "is there still") for one in asked if one.process in going]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def drained(asked: Sequence[Managed], fleet: Iterable[Managed]) -> RolloutProgress:
    """Until each of them takes no tasks and runs none. One that has ended meanwhile is done, too."""
    going = {one.process: one for one in fleet}
    left = [
        _at(now, "has not heard yet")
        for now in (going[one.process] for one in asked if one.process in going)
        if not now.told.draining or now.running
    ]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def undrained(asked: Sequence[Managed], fleet: Iterable[Managed]) -> RolloutProgress:
    going = {one.process: one for one in fleet}
    left = [one.name for one in asked if one.process in going and going[one.process].told.draining]
    return RolloutProgress(len(asked) - len(left), len(asked), _joined(left))


def _generations(place: Place) -> list[int]:
    return [worker.generation for worker in place.workers]


def _given_up(place: Place, worker: WorkerFigures) -> str:
    why = f" ({worker.why})" if worker.why else ""
    return f"worker {worker.name} on {place.manager.host} was given up{why}"


def _at(manager: Managed, otherwise: str) -> str:
    return f"{manager.name}: {doing(manager.told.workers) or otherwise}"


def _joined(parts: Sequence[str]) -> str:
    shown = "; ".join(parts[:_SHOWN])
    return f"{shown}; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else shown
