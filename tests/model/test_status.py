"""The verdict on a store, and the findings behind it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pitboss.model.duration import SECOND
from pitboss.model.filter import Count
from pitboss.model.finding import Grade
from pitboss.model.queue import HandlerInfo, Queue
from pitboss.model.sealed import MissingKey
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.model.status import assess
from pitboss.model.store_reading import LATELY, Ended, StoreReading
from pitboss.model.verdict import Health, Verdict

NOW = 1_800_000_000 * SECOND


def manager(left: int = 15 * SECOND, **info: Any) -> Session:
    return Session(number=1, info=SessionInfo(host="box1", pid=1, **info), opened_at=0, expires_at=NOW + left)


def verdict(**reading: Any) -> Verdict:
    return assess(StoreReading(**{"sessions": [manager()]} | reading), NOW).verdict


def grades(**reading: Any) -> Mapping[str, Grade]:
    """The findings by check."""
    found = assess(StoreReading(**{"sessions": [manager(handlers=("greet",))]} | reading), NOW).findings
    return {finding.check: finding.grade for finding in found}


@pytest.mark.parametrize(
    ("reading", "cause", "said"),
    [
        ({"sessions": ()}, "no-manager", "No manager is running, and nothing waits."),
        ({"sessions": (), "queues": [Queue(name="a", counts={State.PENDING: 1})]}, "no-manager", "1 task waits"),
        ({"sessions": [manager(left=0)]}, "no-manager", "No manager is running"),
        ({"held": {"b": 1, "a": 5}}, "held", "6 tasks held because no worker knows the handler: a, b."),
        ({"held": dict.fromkeys("abcd", 1)}, "held", "a, b, c and 1 more"),
        ({"ended": Ended(LATELY, 20, 10)}, "failing", "10 of 20 tasks of the last 1h failed."),
        ({"failed": Count(9)}, "failed", "9 tasks of the last 1h failed"),
        ({"failed": Count(10), "ended": Ended(LATELY, 21, 10)}, "failed", "10 tasks"),
        ({"failed": Count(10_000, more=True)}, "failed", "10,000+ tasks of the last 1h failed"),
        ({"ended": Ended(60 * SECOND, 10, 10)}, "failing", "10 of 10 tasks of the last 1m failed."),
        ({"late": Count(3)}, "late", "3 tasks waited longer than 5m"),
        ({"late": Count(1, more=True)}, "late", "1+ tasks waited longer than 5m"),
        ({"held": {"b": 9_999, "a": 1}, "more_held": True}, "held", "10,000+ tasks held because"),
        ({}, "healthy", "Healthy: 1 manager, 0 running, 0 waiting."),
    ],
)
def test_the_verdict_names_the_worst_cause(reading: dict[str, Any], cause: str, said: str) -> None:
    found = verdict(**reading)
    assert found.cause == cause
    assert said in found.sentence


def pool_of(*workers: WorkerFigures, host: str = "box1", number: int = 1, wanted: int = 2) -> Session:
    """A manager with one pool of these workers, for every queue."""
    told = Snapshot(pools=(PoolFigures(name="default", wanted=wanted),), workers=workers)
    info = SessionInfo(host=host, pid=number, handlers=("greet",))
    snapshot = msgspec.json.encode(told).decode()
    return Session(number=number, info=info, opened_at=0, expires_at=NOW + 15 * SECOND, snapshot=snapshot)


IDLE = WorkerFigures(name="default-1", state=WorkerState.IDLE, crashes=3)
STARTING = WorkerFigures(name="default-1", state=WorkerState.STARTING)
AGAIN = WorkerFigures(name="default-1", state=WorkerState.RESTARTING, crashes=1, next_at=NOW + 4 * SECOND, why="oom")
GIVEN_UP = WorkerFigures(name="default-2", state=WorkerState.CRASHED, crashes=6, why="it crashed 6 times")
BACKLOG = [Queue(name="a", counts={State.PENDING: 500})]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ((AGAIN, AGAIN), 'Worker pool "default" has no live worker; next in 4s, and 500 tasks wait.'),
        ((AGAIN, GIVEN_UP), 'Worker pool "default" has no live worker; next in 4s, and 500 tasks wait.'),
        ((GIVEN_UP,), 'Worker pool "default" has no live worker; none will be started, and 500 tasks wait.'),
        ((msgspec.structs.replace(STARTING, crashes=1), GIVEN_UP), "the next one starts now"),
    ],
)
def test_a_dead_pool_is_unhealthy_and_its_handlers_have_no_live_worker(
    workers: tuple[WorkerFigures, ...], said: str
) -> None:
    reading = StoreReading(
        sessions=[pool_of(*workers)], queues=BACKLOG, handlers=[HandlerInfo(name="greet", queue="a")]
    )
    found = assess(reading, NOW)
    assert (found.verdict.health, found.verdict.cause) == (Health.UNHEALTHY, "no-worker")
    assert said in found.verdict.sentence
    findings = [(one.check, one.grade, one.what) for one in found.findings]
    assert ("handlers", Grade.PROBLEM, "1 handler without a live worker: greet") in findings
    assert any(what.startswith("pool default on box1 has no live worker; ") for _, _, what in findings)
    assert not any(grade is Grade.OK and check == "workers" for check, grade, _ in findings)


def test_a_pool_that_starts_or_wants_no_worker_is_not_dead() -> None:
    assert verdict(sessions=[pool_of(STARTING)], queues=BACKLOG).cause == "healthy"
    assert verdict(sessions=[pool_of(wanted=0)]).cause == "healthy"
    assert verdict(sessions=[pool_of(IDLE, AGAIN)]).cause == "healthy"


def test_a_worker_that_was_given_up_and_a_pool_that_is_dead_on_one_host_ask_for_attention() -> None:
    found = verdict(sessions=[pool_of(IDLE, GIVEN_UP)])
    assert (found.health, found.cause) == (Health.ATTENTION, "problem")
    assert found.sentence == "Worker default-2 on box1 was given up after 6 crashes."
    found = verdict(sessions=[pool_of(IDLE), pool_of(AGAIN, host="box2", number=2)])
    assert (found.health, found.cause) == (Health.ATTENTION, "problem")
    assert found.sentence == "Pool default on box2 has no live worker; next in 4s."


def test_of_several_paused_queues_the_fullest_is_named() -> None:
    queues = [
        Queue(name="empty", paused=True),
        Queue(name="some", paused=True, counts={State.PENDING: 1}),
        Queue(name="more", paused=True, counts={State.PENDING: 2}),
    ]
    found = verdict(queues=queues)
    assert (found.cause, found.queue) == ("paused", "more")
    assert verdict(queues=queues[:1]).cause == "healthy"
    assert verdict(queues=queues[1:2]).sentence == 'Queue "some" is paused, and 1 task waits in it.'


def test_verdict_and_findings_agree_on_missing_managers_and_unknown_handlers() -> None:
    waiting = [Queue(name="a", counts={State.PENDING: 1})]
    assert verdict(sessions=(), queues=waiting).health is Health.UNHEALTHY
    assert grades(sessions=(), queues=waiting)["managers"] is Grade.PROBLEM
    assert verdict(held={"nothing": 1}).health is Health.UNHEALTHY
    assert grades(held={"nothing": 1})["handlers"] is Grade.PROBLEM
    assert set(grades(handlers=[HandlerInfo(name="greet")]).values()) == {Grade.OK}


def test_no_manager_is_a_problem_only_if_tasks_wait() -> None:
    assert grades(sessions=())["managers"] is Grade.WARNING


def test_a_manager_that_missed_a_renewal_is_a_warning() -> None:
    late = assess(StoreReading(sessions=[manager(left=6 * SECOND, ttl=15 * SECOND)]), NOW).findings
    assert any("did not renew its session for 9s of 15s" in one.what for one in late)
    punctual = assess(StoreReading(sessions=[manager(left=9 * SECOND, ttl=15 * SECOND)]), NOW).findings
    assert not any("did not renew" in one.what for one in punctual)


def test_a_missing_key_is_a_problem_if_no_manager_that_needs_it_has_it() -> None:
    needs = HandlerInfo(name="check", resources="proxies")
    lacks = Snapshot(missing_keys=(MissingKey("proxies", "3f2a91bc", 5),))
    text = msgspec.json.encode(lacks).decode()
    without = msgspec.structs.replace(manager(handlers=("check",)), snapshot=text)
    other = Session(number=2, info=SessionInfo(host="box2", handlers=("greet",)), opened_at=0, expires_at=NOW + SECOND)
    reading = {"sessions": [without, other], "handlers": [needs]}
    found = verdict(**reading)
    assert (found.health, found.cause) == (Health.ATTENTION, "problem")
    assert "3f2a91bc (5 members of proxies)" in found.sentence
    assert grades(**reading)["keys"] is Grade.PROBLEM
    able = msgspec.structs.replace(other, info=SessionInfo(host="box2", handlers=("check",)))
    assert verdict(**reading | {"sessions": [without, able]}).cause == "healthy", "the other one runs the tasks"
    assert grades(**reading | {"sessions": [without, able]})["keys"] is Grade.WARNING


def test_a_manager_that_goes_on_with_a_new_session_has_not_died() -> None:
    """Regression: after an outage of the store a process that never ended was told as dead."""
    over = Session(number=5, info=SessionInfo(host="vm", pid=7), opened_at=0, expires_at=NOW - 60 * SECOND)
    again = Session(number=6, info=over.info, opened_at=NOW - 30 * SECOND, expires_at=NOW + 15 * SECOND)
    assert not any("is silent" in line for line in verdict(sessions=[over, again]).also)
    other = msgspec.structs.replace(again, info=SessionInfo(host="vm", pid=8))
    assert any(
        line.startswith("Manager 5 on vm is silent: its session expired 1m")
        for line in verdict(sessions=[over, other]).also
    )
