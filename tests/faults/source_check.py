"""What became of messages: by the producer's journal, the handler's file, the ledger and the dead-letter queue."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pitboss.model.duration import Moment
from pitboss.model.meta import read_meta
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task
from tests.faults.source_producer import BAD, MALFORMED, Journal, Prepared
from tests.faults.source_shop import ATTEMPTS

# Redelivers what was stored and not acknowledged: at most what the source held.
SOURCE_FAULTS = ("source killed", "manager killed", "cut", "closed by the broker", "source stopped")
BROKER_FAULT = "broker killed"
_SHOWN = 5


class Fault(NamedTuple):
    """One whose effect was observed; `at` is the store's time just before it."""

    kind: str
    at: Moment


class Far(NamedTuple):
    """What is left when everything has ended. `traces`: the handler's lines. `dead`: the sendings in the dead-letter
    queue. `attempts`: of the tasks that were claimed more than once."""

    messages: list[Prepared]
    journal: Journal
    traces: list[list[str]]
    tasks: list[Task]
    attempts: Mapping[str, list[Attempt]]
    dead: list[int]


class Verdict(NamedTuple):
    told: str
    faults: list[str]
    duplicates: Counter[str]


def judged(far: Far, faults: list[Fault], prefetch: int) -> Verdict:
    keys = Keys(far.messages, far.journal.sent)
    tasks = defaultdict[str, list[Task]](list)
    for task in far.tasks:
        tasks[keys.of(sending_of(task))].append(task)
    duplicates, wrong = _duplicates(tasks, keys, faults, prefetch)
    wrong += _lost(far, keys, tasks) + _not_once(far, keys, tasks)
    dead, dead_wrong = _dead_letters(far, keys, tasks)
    runs = Counter(line[0] for line in far.traces)
    told = (
        f"{len(far.messages)} messages in {len(far.journal.sent)} sendings, {len(far.journal.confirmed)} confirmed; "
        f"{len(far.tasks)} tasks, {sum(runs.values())} runs; {_text(Counter(one.kind for one in faults))}; "
        f"duplicates without an id: {_text(duplicates)}; dead letters: {dead}"
    )
    return Verdict(told, wrong + dead_wrong, duplicates)


class Keys:
    """What counts as one message: its id, or without one, each sending."""

    def __init__(self, messages: list[Prepared], sent: Mapping[int, int]) -> None:
        self._messages, self._sent = messages, sent

    def message(self, sending: int) -> Prepared:
        return self._messages[self._sent[sending]]

    def of(self, sending: int) -> str:
        return self.message(sending).id or f"sending {sending}"

    def all(self, sendings: Iterable[int], *kinds: str) -> set[str]:
        return {self.of(one) for one in sendings if not kinds or self.message(one).kind in kinds}


def sending_of(task: Task) -> int:
    mark = read_meta(task.meta).message
    assert mark is not None
    return int(mark.headers["sending"])


def _lost(far: Far, keys: Keys, tasks: Mapping[str, list[Task]]) -> list[str]:
    """What the broker confirmed has an outcome that the handler itself wrote, and a task; or it is malformed."""
    malformed = keys.all(far.journal.confirmed, MALFORMED)
    confirmed = keys.all(far.journal.confirmed) - malformed
    done = {keys.of(int(line[1])) for line in far.traces if line[0] in ("ended", "failed")}
    return [
        *_some("confirmed, and never handled", confirmed - done),
        *_some("confirmed, and not stored", confirmed - tasks.keys()),
        *_some("malformed, and stored", malformed & tasks.keys()),
        *_some("never confirmed", {str(one.number) for one in far.messages} - _confirmed_numbers(far)),
    ]


def _confirmed_numbers(far: Far) -> set[str]:
    return {str(far.journal.sent[one]) for one in far.journal.confirmed}


def _not_once(far: Far, keys: Keys, tasks: Mapping[str, list[Task]]) -> list[str]:
    """One task per id; each task has ended as it must, with one accepted outcome."""
    twice = {key for key, some in tasks.items() if len(some) > 1 and keys.message(sending_of(some[0])).id}
    wrong = _some("with an id, and more than one task", twice)
    for task in far.tasks:
        bad = keys.message(sending_of(task)).kind == BAD
        if task.state is not (State.FAILED if bad else State.COMPLETED):
            wrong.append(f"task {task.id} is {task.state} ({task.reason})")
        outcomes = Counter(one.outcome for one in far.attempts.get(task.id, ()))
        if outcomes and (outcomes["completed"], outcomes["failed"]) not in _ends(bad):
            wrong.append(f"task {task.id} ended with {dict(outcomes)}")
    return wrong


def _ends(bad: bool) -> tuple[tuple[int, int], ...]:
    """How many attempts complete and fail. A flaky message fails once, if its first attempt was not lost."""
    return ((0, ATTEMPTS),) if bad else tuple((1, failed) for failed in range(ATTEMPTS))


def _duplicates(
    tasks: Mapping[str, list[Task]], keys: Keys, faults: list[Fault], prefetch: int
) -> tuple[Counter[str], list[str]]:
    """Further tasks of one sending without an id, by the fault before them; too many of one fault are wrong."""
    by_fault = Counter[int]()
    for some in tasks.values():
        if keys.message(sending_of(some[0])).id is None:
            by_fault.update(_before(task.created_at, faults) for task in sorted(some, key=_created)[1:])
    wrong = []
    by_kind = Counter[str]()
    for number, count in by_fault.items():
        kind = faults[number].kind if number >= 0 else "no fault"
        by_kind[kind] += count
        if kind != BROKER_FAULT and count > (prefetch if kind in SOURCE_FAULTS else 0):
            wrong.append(f"{count} duplicates after: {kind}")
    return by_kind, wrong


def _before(moment: Moment, faults: list[Fault]) -> int:
    """The last fault before it that can bring a message again; -1: none."""
    kinds = (*SOURCE_FAULTS, BROKER_FAULT)
    return max((at for at, one in enumerate(faults) if one.kind in kinds and one.at <= moment), default=-1)


def _created(task: Task) -> tuple[Moment, str]:
    return task.created_at, task.id


def _dead_letters(far: Far, keys: Keys, tasks: Mapping[str, list[Task]]) -> tuple[str, list[str]]:
    """Exactly what has finally failed or is malformed, repeats apart."""
    found = {keys.of(one) for one in far.dead}
    failed = {key for key, some in tasks.items() if any(one.state is State.FAILED for one in some)}
    malformed = keys.all(far.journal.confirmed, MALFORMED)
    # The broker may or may not have a sending that it did not confirm.
    perhaps = keys.all(far.journal.sent, MALFORMED)
    repeats, refused = len(far.dead) - len(found), len(found) - len(failed)
    told = f"{len(found)} ({len(failed)} failed, {refused} malformed), {repeats} repeats"
    return told, [
        *_some("failed, and not in the dead-letter queue", failed - found),
        *_some("malformed, and not in the dead-letter queue", malformed - found),
        *_some("in the dead-letter queue without a reason", found - failed - perhaps),
    ]


def _some(what: str, keys: set[str]) -> list[str]:
    if not keys:
        return []
    return [f"{len(keys)} messages {what}: {', '.join(sorted(keys)[:_SHOWN])}"]


def _text(counted: Counter[str]) -> str:
    return ", ".join(f"{number} × {name}" for name, number in sorted(counted.items())) or "none"


def sending_in(headers: Mapping[str, object] | None, body: bytes) -> int:
    """Of a dead letter: the headers are those of the message that it was."""
    sending = (headers or {}).get("sending")
    if not isinstance(sending, int):
        raise AssertionError(f"a dead letter has lost its headers: {json.dumps(str(body[:80]))}")
    return sending
