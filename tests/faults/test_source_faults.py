"""Source process, worker, broker and connections die while a foreign producer feeds the queue: nothing is lost."""

from pathlib import Path

import pytest

from pitboss.model.states import State
from pitboss.model.task import Attempt, Task
from tests.faults.source_check import BROKER_FAULT, Far, Fault, judged
from tests.faults.source_kills import PREFETCH, troubled
from tests.faults.source_producer import BAD, GOOD, MALFORMED, Journal, Pace, Prepared
from tests.faults.stores import MakeUrl

# `make soak ARGS=sources` has 40,000 messages and 15 faults on each store.
PACE = Pace(total=2400, burst=200, period=1.5)
KINDS = {
    "sqlite": ("source killed", "worker killed", BROKER_FAULT),
    "postgres": ("cut", "manager killed", "source killed"),
}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_the_broker_confirmed_has_one_outcome(engine: str, make_url: MakeUrl, disk: Path) -> None:
    verdict, faults = troubled(make_url(engine), disk / "scene", PACE, KINDS[engine], seed=1)
    assert verdict.faults == []
    assert [one.kind for one in faults] == list(KINDS[engine])


MESSAGES = [
    Prepared(0, None, GOOD, "{}"),
    Prepared(1, "one", GOOD, "{}"),
    Prepared(2, None, BAD, "{}"),
    Prepared(3, "three", MALFORMED, "["),
]


def task(sending: int, name: str = "", *, created: int = 0, state: State = State.COMPLETED, claim: int = 1) -> Task:
    meta = f'{{"message":{{"source":"s","queue":"q","headers":{{"sending":{sending}}}}}}}'
    return Task(
        id=name or f"t{sending}",
        handler="work",
        queue="work",
        state=state,
        params="{}",
        created_at=created,
        claim=claim,
        meta=meta,
    )


def far() -> Far:
    """Everything as it must be."""
    return Far(
        MESSAGES,
        Journal(1, {1: 0, 2: 1, 3: 2, 4: 3}, {1, 2, 3, 4}),
        [["ended", "1"], ["ended", "2"], ["failed", "3"]],
        [task(1), task(2), task(3, state=State.FAILED)],
        {},
        [3, 4],
    )


def attempt(outcome: str) -> Attempt:
    return Attempt(claim=1, attempt=1, outcome=outcome, started_at=0, ended_at=0)


def test_what_is_as_it_must_be() -> None:
    assert judged(far(), [], PREFETCH).faults == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"traces": [["ended", "1"], ["failed", "3"]]}, "never handled: one"),
        ({"tasks": [task(2), task(3, state=State.FAILED)]}, "not stored: sending 1"),
        ({"tasks": [task(1), task(2), task(2, "again"), task(3, state=State.FAILED)]}, "more than one task: one"),
        ({"tasks": [task(1), task(1, "again"), task(2), task(3, state=State.FAILED)]}, "1 duplicates after: no fault"),
        ({"tasks": [task(1), task(2, state=State.PENDING), task(3, state=State.FAILED)]}, "is pending"),
        ({"attempts": {"t1": [attempt("completed"), attempt("completed")]}}, "ended with"),
        ({"dead": [4]}, "failed, and not in the dead-letter queue: sending 3"),
        ({"dead": [3]}, "malformed, and not in the dead-letter queue: three"),
        ({"dead": [2, 3, 4]}, "without a reason: one"),
        ({"journal": Journal(1, {1: 0, 2: 1, 3: 2, 4: 3}, {1, 3, 4})}, "never confirmed: 1"),
    ],
)
def test_what_is_wrong_is_seen(changed: dict[str, object], said: str) -> None:
    found = judged(far()._replace(**changed), [], PREFETCH).faults  # type: ignore[arg-type]
    assert any(said in one for one in found), found


def test_duplicates_count_for_the_fault_before_them() -> None:
    twice = [*far().tasks, task(1, "again", created=15)]
    seen = far()._replace(tasks=twice)
    cut, worker, broker = Fault("cut", 10), Fault("worker killed", 12), Fault(BROKER_FAULT, 14)
    assert judged(seen, [cut, worker], prefetch=1).duplicates == {"cut": 1}
    assert judged(seen, [cut, worker], prefetch=1).faults == []
    assert judged(seen, [cut, worker], prefetch=0).faults == ["1 duplicates after: cut"]
    assert judged(seen, [cut, worker, broker], prefetch=0).duplicates == {BROKER_FAULT: 1}
    assert judged(seen, [cut, worker, broker], prefetch=0).faults == []
