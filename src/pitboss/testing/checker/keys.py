"""One task per unique key at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pitboss.model.ids import TaskId
from pitboss.model.task import Task, Unique
from pitboss.testing.checker.evidence import Birth, Evidence
from pitboss.testing.checker.violation import Violation, story
from pitboss.testing.history import FOREVER

UNIQUE = "at most one task has a unique key at a time"


class Taken(NamedTuple):
    """A stretch, of store time or of the history's order, in which a task surely had the key."""

    begin: int
    end: int
    task: TaskId


def check_keys(seen: Evidence) -> Iterator[Violation]:
    for key, births in _by_key(seen).items():
        by_order = [_held_in_order(seen, birth) for birth in births if birth.created]
        by_time = [taken for birth in births for taken in _held_in_time(seen, birth)]
        for one, other in {**_overlaps(by_order), **_overlaps(by_time)}.values():
            yield Violation(
                invariant=UNIQUE,
                what=f"key {key!r}: task {other.task} was created while {one.task} had the key",
                task=other.task,
                events=story(seen.calls, one.task) + story(seen.calls, other.task),
            )
    yield from _check_met(seen)


def _by_key(seen: Evidence) -> dict[str, list[Birth]]:
    keys: dict[str, dict[TaskId, Birth]] = defaultdict(dict)
    for births in seen.births.values():
        for birth in births:
            if birth.new.unique is not None and (birth.created or birth.follows is not None):
                keys[birth.new.unique.key].setdefault(birth.new.id, birth)
    return {key: list(births.values()) for key, births in keys.items()}


def _held_in_order(seen: Evidence, birth: Birth) -> Taken:
    """From the put's answer until the first call that may have ended the task."""
    task, begin = birth.new.id, birth.call.ended
    unique = birth.new.unique
    if seen.may_expire(task) or (unique is not None and unique.period is not None):
        return Taken(begin, begin, task)
    ended = (one.call.begun for one in seen.written.get(task, ()) if not one.is_progress and not one.refused)
    return Taken(begin, max(begin, min([*ended, seen.cancels.first(task, begin)])), task)


def _held_in_time(seen: Evidence, birth: Birth) -> Iterable[Taken]:
    known, unique = seen.tasks.get(birth.new.id), birth.new.unique
    if known is None or unique is None:
        return
    if unique.period is not None:
        yield Taken(known.created_at, known.created_at + unique.period, known.id)
    elif not seen.retries.may_have(known.id, 0):
        yield Taken(known.created_at, _end(known), known.id)


def _end(known: Task) -> int:
    return FOREVER if known.finished_at is None else known.finished_at


def _overlaps(stretches: Iterable[Taken]) -> dict[tuple[TaskId, TaskId], tuple[Taken, Taken]]:
    found = {}
    last: Taken | None = None
    for taken in sorted(stretches):
        if last is not None and taken.begin < last.end and taken.end > taken.begin and taken.task != last.task:
            found[last.task, taken.task] = (last, taken)
        if last is None or taken.end > last.end:
            last = taken
    return found


def _check_met(seen: Evidence) -> Iterator[Violation]:
    """A put that was answered with another task must have met it by a key that this one had."""
    for birth in seen.met:
        met = birth.placed.id if birth.placed else ""
        fault = _wrongly_met(seen, birth, met)
        if fault:
            yield Violation(
                invariant=UNIQUE,
                what=f"task {birth.new.id} was swallowed by task {met}: {fault}",
                task=met,
                events=story(seen.calls, met),
            )


def _wrongly_met(seen: Evidence, birth: Birth, met: TaskId) -> str | None:
    unique = birth.new.unique
    others = [other.new.unique for other in seen.births.get(met, ()) if other.new.unique]
    if birth.new.id in seen.tasks and not seen.births.get(birth.new.id):
        return "it stands in the ledger all the same"
    if unique is None or unique.key not in {other.key for other in others}:
        return "they have no key in common"
    known, asked = seen.tasks.get(met), birth.call.asked_at
    if known is None or asked is None or seen.retries.may_have(met, 0):
        return None
    return None if asked <= _free_at(known, others[0]) else "its key was free by then"


def _free_at(known: Task, unique: Unique) -> int:
    return _end(known) if unique.period is None else known.created_at + unique.period
