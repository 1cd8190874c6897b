"""One task per unique key at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pitboss.model.ids import TaskId
from pitboss.model.task import Task, Unique
from pitboss.testing.checker.evidence import Creation, Evidence
from pitboss.testing.checker.violation import Violation, story
from pitboss.testing.history import FOREVER

UNIQUE = "at most one task has a unique key at a time"


class Taken(NamedTuple):
    """A span, of store time or of the history's order, in which a task surely had the key."""

    begin: int
    end: int
    task: TaskId


def check_keys(seen: Evidence) -> Iterator[Violation]:
    for key, creations in _by_key(seen).items():
        by_order = [_held_in_order(seen, creation) for creation in creations if creation.created]
        by_time = [taken for creation in creations for taken in _held_in_time(seen, creation)]
        for one, other in {**_overlaps(by_order), **_overlaps(by_time)}.values():
            yield Violation(
                invariant=UNIQUE,
                what=f"key {key!r}: task {other.task} was created while {one.task} had the key",
                task=other.task,
                lines=story(seen.calls, one.task) + story(seen.calls, other.task),
            )
    yield from _check_met(seen)


def _by_key(seen: Evidence) -> dict[str, list[Creation]]:
    keys: dict[str, dict[TaskId, Creation]] = defaultdict(dict)
    for creations in seen.creations.values():
        for creation in creations:
            if creation.new.unique is not None and (creation.created or creation.follows is not None):
                keys[creation.new.unique.key].setdefault(creation.new.id, creation)
    return {key: list(creations.values()) for key, creations in keys.items()}


def _held_in_order(seen: Evidence, creation: Creation) -> Taken:
    """From the put's answer until the first call that may have ended the task."""
    task, begin = creation.new.id, creation.call.ended
    unique = creation.new.unique
    if seen.may_expire(task) or (unique is not None and unique.period is not None):
        return Taken(begin, begin, task)
    ended = (one.call.begun for one in seen.written.get(task, ()) if not one.is_progress and not one.refused)
    swept = [seen.reclaims.first(begin)] if seen.may_run_out(task) else []
    return Taken(begin, max(begin, min([*ended, *swept, seen.cancels.first(task, begin)])), task)


def _held_in_time(seen: Evidence, creation: Creation) -> Iterable[Taken]:
    known, unique = seen.tasks.get(creation.new.id), creation.new.unique
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
    """A put that was answered with another task must have met it by a key that the other task had."""
    for creation in seen.met:
        met = creation.placed.id if creation.placed else ""
        fault = _wrongly_met(seen, creation, met)
        if fault:
            yield Violation(
                invariant=UNIQUE,
                what=f"task {creation.new.id} was answered with task {met}: {fault}",
                task=met,
                lines=story(seen.calls, met),
            )


def _wrongly_met(seen: Evidence, creation: Creation, met: TaskId) -> str | None:
    unique = creation.new.unique
    others = [other.new.unique for other in seen.creations.get(met, ()) if other.new.unique]
    if creation.new.id in seen.tasks and not seen.creations.get(creation.new.id):
        return "it is in the ledger all the same"
    if unique is None or unique.key not in {other.key for other in others}:
        return "they have no key in common"
    known, asked = seen.tasks.get(met), creation.call.asked_at
    if known is None or asked is None or seen.retries.may_have(met, 0):
        return None
    return None if asked <= _free_at(known, others[0]) else "its key was free by then"


def _free_at(known: Task, unique: Unique) -> int:
    return _end(known) if unique.period is None else known.created_at + unique.period
