"""What is said about a store and about a task that waits."""

import pytest

from pitboss.model import snapshot
from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.queue import Queue
from pitboss.model.session import Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Task, TaskError
from pitboss.model.verdict import Facts, verdict
from pitboss.model.waiting import alive, why

NOW = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("facts", "cause", "said"),
    [
        (Facts(), "no-manager", "No manager is running, and nothing waits."),
        (Facts(queues=[Queue(name="a", counts={State.PENDING: 1})]), "no-manager", "1 task waits"),
        (Facts(managers=1, held={"b": 1, "a": 5}), "held", "6 tasks held because no worker knows the handler: a, b."),
        (Facts(managers=1, held=dict.fromkeys("abcd", 1)), "held", "a, b, c and 1 more"),
        (Facts(managers=1, failed=10, completed=10), "failing", "10 of 20 tasks of the last 1h failed."),
        (Facts(managers=1, failed=9), "failed", "9 tasks of the last 1h failed"),
        (Facts(managers=1, failed=10, completed=11), "failed", "10 tasks"),
        (Facts(managers=1, late=3), "late", "3 tasks waited longer than 5m"),
        (Facts(managers=1), "healthy", "Healthy: 1 manager, 0 running, 0 waiting."),
    ],
)
def test_the_worst_is_told(facts: Facts, cause: str, said: str) -> None:
    found = verdict(facts)
    assert found.cause == cause
    assert said in found.sentence


def test_of_several_paused_queues_the_fullest_is_told() -> None:
    queues = [
        Queue(name="empty", paused=True),
        Queue(name="some", paused=True, counts={State.PENDING: 1}),
        Queue(name="more", paused=True, counts={State.PENDING: 2}),
    ]
    found = verdict(Facts(queues=queues, managers=1))
    assert (found.cause, found.queue) == ("paused", "more")
    assert verdict(Facts(queues=queues[:1], managers=1)).cause == "healthy"


def session(number: int = 1, *, handlers: tuple[str, ...] = ("f",), ended: bool = False, left: int = SECOND) -> Session:
    info = SessionInfo(host="there", handlers=handlers)
    return Session(number=number, info=info, opened_at=NOW - SECOND, expires_at=NOW + left, ended=ended)


def task(state: State, **options: object) -> Task:
    return Task(**{"id": "x", "handler": "f", "queue": "q", "state": state, "params": "{}"} | options)  # type: ignore[arg-type]


def test_only_the_living_count() -> None:
    assert alive([session(1), session(2, ended=True), session(3, left=0)], NOW) == [session(1)]


@pytest.mark.parametrize(
    ("queue", "sessions", "said"),
    [
        (
            Queue(name="q", paused=True, paused_by="me", paused_at=NOW - 60 * SECOND),
            [session()],
            "paused by me since 1m",
        ),
        (Queue(name="q"), [], "no manager is running"),
        (Queue(name="q"), [session(handlers=("g",))], 'knows the handler "f"'),
        (Queue(name="q", rate=rate("2/s")), [session()], "at most 2 per 1s"),
        (None, [session(handlers=())], "waits for a free worker"),
    ],
)
def test_why_a_pending_task_waits(queue: Queue | None, sessions: list[Session], said: str) -> None:
    assert said in why(task(State.PENDING), queue=queue, sessions=sessions, now=NOW)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (task(State.HELD), 'about a handler "f"'),
        (task(State.SCHEDULED, run_at=NOW + 60 * SECOND), "due in 1m"),
        (task(State.SCHEDULED, run_at=NOW, reason="snoozed"), "due now: snoozed"),
        (task(State.SCHEDULED), "it is scheduled"),
        (
            task(State.SCHEDULED, run_at=NOW + SECOND, attempts=2, error=TaskError(category="error", message="no")),
            "attempt 2 failed, and the next one is due in 1s",
        ),
        (task(State.RUNNING, session=1, started_at=NOW - 5 * SECOND), "it runs for 5s on there"),
        (task(State.RUNNING, cancel_asked=True), "asked to stop"),
        (task(State.COMPLETED), "it has ended: completed"),
        (task(State.FAILED, reason="attempts used up"), "it has ended: attempts used up"),
    ],
)
def test_why_any_other_task_is_where_it_is(found: Task, said: str) -> None:
    assert said in why(found, queue=None, sessions=[session()], now=NOW)


def test_a_snapshot_of_another_release_is_no_snapshot() -> None:
    assert snapshot.read(None) is None
    assert snapshot.read("{") is None
    assert snapshot.read('{"workers": 3}') is None
    assert snapshot.read('{"target": "app.py", "later": 1}') == snapshot.Snapshot(target="app.py")
