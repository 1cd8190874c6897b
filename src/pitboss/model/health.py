"""Whether a worker is healthy: it must answer, begin the tasks that it is given, and stay within its limits."""

from enum import StrEnum

import msgspec

from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.pool import PoolSpec, spoken_size

SILENCE: Span = 5 * SECOND
START_LIMIT: Span = 120 * SECOND
DEAF_BEATS = 4
# Between what a worker used and its limit, in what is told of a worker that was killed for it.
OVER_LIMIT = "of memory, more than its limit of"


class Remedy(StrEnum):
    """What to do with a worker: only report it, replace it after its tasks, or kill it now."""

    TELL = "tell"
    REPLACE = "replace"
    KILL = "kill"


class Vital(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager knows of a worker. `silent` is the time since its last message, `memory` includes its child
    processes, `fresh` is its memory before its first task, `deaf_beats` how often in a row it reported that it is idle
    although it had been given tasks."""

    age: Span
    ready: bool = True
    silent: Span = 0
    deaf_beats: int = 0
    overdue: int = 0
    memory: int = 0
    fresh: int = 0
    processed: int = 0


class Finding(msgspec.Struct, frozen=True):
    """What is wrong with it: one word, and a sentence that begins after its subject."""

    kind: str
    remedy: Remedy
    text: str


def judge(vital: Vital, spec: PoolSpec) -> Finding | None:
    """The worst problem of a worker of this pool; None if it is healthy."""
    if spec.memory is not None and vital.memory > spec.memory:
        limit = f"{spoken_size(vital.memory)} {OVER_LIMIT} {spoken_size(spec.memory)}"
        return Finding("memory", Remedy.KILL, f"used {limit}")
    if not vital.ready:
        return _not_ready(vital)
    if vital.silent >= SILENCE:
        return _silent(vital, spec)
    if vital.deaf_beats >= DEAF_BEATS:
        return Finding("deaf", Remedy.KILL, "answers, but does not begin the tasks that it is given")
    return _worn(vital, spec)


def _not_ready(vital: Vital) -> Finding | None:
    if vital.age < START_LIMIT:
        return None
    return Finding("start", Remedy.KILL, f"did not finish starting within {spoken(START_LIMIT)}")


def _silent(vital: Vital, spec: PoolSpec) -> Finding:
    text = (
        f"has not answered for {spoken(vital.silent // SECOND * SECOND)}: its event loop or its interpreter is blocked"
    )
    if vital.overdue:
        return Finding("timeout", Remedy.KILL, f"{text}, and a task is past its time limit")
    return Finding("blocked", Remedy.KILL if vital.silent >= spec.unresponsive else Remedy.TELL, text)


def _worn(vital: Vital, spec: PoolSpec) -> Finding | None:
    # If a fresh worker exceeds the limit already, its replacement would, too.
    if spec.soft is not None and vital.fresh <= spec.soft < vital.memory:
        return Finding("memory_soft", Remedy.REPLACE, f"uses {spoken_size(vital.memory)} of memory")
    if spec.max_tasks_per_worker is not None and vital.processed >= spec.max_tasks_per_worker:
        return Finding("tasks", Remedy.REPLACE, f"has run {vital.processed} tasks")
    if spec.max_age is not None and vital.age >= spec.max_age:
        return Finding("age", Remedy.REPLACE, f"is {spoken(spec.max_age)} old")
    return None
