"""Sources as values, and what is said about them."""

from typing import Any

import msgspec
import pytest

from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.failure import routes
from pitboss.model.filter import Count
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView
from pitboss.model.policy import Policy
from pitboss.model.session import Session, SessionInfo
from pitboss.model.snapshot import DeliveryFigures, Snapshot
from pitboss.model.source import SourceFigures, SourceSpec, SourceState, is_outbox, outbox, source_of
from pitboss.model.source_findings import KIND, PATIENCE, live_sources, read_figures, shown_sources, source_findings
from pitboss.model.status import assess
from pitboss.model.store_reading import StoreReading
from pitboss.model.verdict import Health, Verdict

SPEC = SourceSpec(name="one", url="amqp://h", queue="in", handler="download", dead_letter_queue="in_dlq")
WELL = (SourceState.STARTING, SourceState.RUNNING, SourceState.STANDBY)


def figures(name: str = "one", **options: Any) -> SourceFigures:
    return SourceFigures(**{"name": name, "queue": "in", "handler": "download", **options})


def session(*told: SourceFigures, kind: str = KIND, expires_at: int = 10 * SECOND, **options: Any) -> Session:
    info = SessionInfo(host="box", kind=kind)
    snapshot = msgspec.json.encode(told).decode()
    return Session(number=1, info=info, opened_at=0, expires_at=expires_at, snapshot=snapshot, **options)


def found(*told: SourceFigures, managers: tuple[ManagerView, ...] = ()) -> list[Finding]:
    return list(source_findings([session(*told)], managers, now=SECOND))


def test_the_outbox_of_a_source_has_a_reserved_name() -> None:
    assert SPEC.outbox == outbox("one") == "pitboss.outbox.one"
    assert (is_outbox(SPEC.outbox), source_of(SPEC.outbox)) == (True, "one")
    assert not is_outbox("outbox.one")
    assert not is_outbox("pitboss.other")


def test_the_outbox_gets_the_failures_of_the_handler_and_is_tried_without_an_end() -> None:
    info = SPEC.outbox_info("app.py")
    assert (info.name, info.queue, info.remote) == (SPEC.outbox, SPEC.outbox, True)
    assert (routes(info.about).dead_letters_of, routes(info.about).source) == (("download",), "one")
    assert from_json(info.about)["app"] == "app.py"
    policy = msgspec.json.decode(info.policy, type=Policy)
    assert policy.max_attempts >= 1_000_000_000
    assert policy.backoff.cap <= 4 * SECOND


def test_all_is_well() -> None:
    told = found(figures(state=SourceState.RUNNING, out_state=SourceState.RUNNING), figures("two"))
    assert [(one.grade, one.what) for one in told] == [(Grade.OK, "2 sources of messages: one, two")]
    assert found() == []


@pytest.mark.parametrize("state", [one for one in SourceState if one not in WELL])
def test_every_trouble_has_what_why_and_fix(state: SourceState) -> None:
    (coming,) = found(figures(state=state, why="the cause", out_state=SourceState.RUNNING))
    assert coming.what == f'source "one" takes no messages ({state}): the cause'
    assert coming.grade is (Grade.WARNING if state is SourceState.FULL else Grade.PROBLEM)
    (going,) = found(figures(state=SourceState.RUNNING, out_state=state, out_why="the cause"))
    assert going.what == f'source "one" publishes nothing ({state}): the cause'
    (some,) = found(figures(state=SourceState.RUNNING, out_state=state, out_why="the cause", out_some=True))
    assert some.what == f'source "one" cannot publish some messages ({state}): the cause'
    assert going.grade is Grade.PROBLEM
    assert all((coming.why, coming.fix, going.why, going.fix))


@pytest.mark.parametrize("state", WELL)
def test_other_states_are_no_trouble(state: SourceState) -> None:
    (told,) = found(figures(state=state, out_state=state))
    assert told.grade is Grade.OK


def test_one_cause_is_told_once_and_two_are_told_both() -> None:
    away = SourceState.AWAY
    assert len(found(figures(state=away, why="gone", out_state=away, out_why="gone"))) == 1
    assert len(found(figures(state=away, why="gone", out_state=SourceState.BLOCKED, out_why="alarm"))) == 2


def test_a_process_that_stays_down_is_told_though_nothing_lives() -> None:
    side = DeliveryFigures(names=("one", "two"), state="crashed", pid=0, restarts=5, why="it crashed 6 times")
    view = ManagerView(session=session(kind="manager"), snapshot=Snapshot(version="1", delivery=side))
    (told,) = source_findings([], [view], now=SECOND)
    assert "stays down: it crashed 6 times" in told.what
    assert told.why == "the messages of one, two wait in RabbitMQ"


def test_a_process_that_a_newer_one_of_its_manager_replaced_is_not_read() -> None:
    """Regression: after a kill, the dead process was shown as running for 20 s."""
    old, new = session(figures(manager=7, pid=1)), session(figures(manager=7, pid=2))
    new = msgspec.structs.replace(new, number=2)
    other = msgspec.structs.replace(session(figures(manager=8, pid=3)), number=3)
    elsewhere = msgspec.structs.replace(old, number=4, info=SessionInfo(host="box2", kind=KIND))
    shown = [one.number for one, _ in live_sources([old, new, other, elsewhere], SECOND)]
    assert shown == [2, 3, 4]
    # One that has said nothing yet hides none.
    silent = msgspec.structs.replace(new, number=5, snapshot=None)
    assert [one.number for one, _ in live_sources([old, silent], SECOND)] == [1, 5]


def test_dead_sessions_and_other_kinds_are_not_read() -> None:
    trouble = figures(state=SourceState.AWAY)
    sessions = [session(trouble, expires_at=0), session(trouble, ended=True), session(trouble, kind="http")]
    assert list(live_sources(sessions, SECOND)) == []


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '[{"name":1}]', "nonsense", '[{"state":"unheard of"}]'])
def test_figures_of_another_release_are_left_out(text: str | None) -> None:
    assert read_figures(text) == ()


def manager(opened_at: int, *names: str) -> ManagerView:
    side = DeliveryFigures(names=names, state="running")
    info = SessionInfo(host="box")
    snapshot = Snapshot(delivery=side)
    text = msgspec.json.encode(snapshot).decode()
    opened = Session(number=2, info=info, opened_at=opened_at, expires_at=opened_at + 3600 * SECOND, snapshot=text)
    return ManagerView(opened, snapshot)


def test_a_delivery_process_without_a_sign_of_life_is_a_problem() -> None:
    """Regression: a process that hung was reported as healthy, and its sources as never configured."""
    managers = (manager(0, "one", "two"),)
    (told,) = source_findings([session(figures("two"), expires_at=60 * SECOND)], managers, now=30 * SECOND)
    assert told.grade is Grade.PROBLEM
    assert 'source "one" takes no messages (silent)' in told.what
    # One that has just been started has no session yet.
    assert not list(source_findings([], managers, now=SECOND))


def test_the_sources_of_a_killed_manager_are_silent_until_its_session_ends() -> None:
    """Regression: they were shown as running for up to 15 s."""
    told = figures(state=SourceState.RUNNING, out_state=SourceState.RUNNING, ready=3)
    killed = session(told, expires_at=15 * SECOND)
    # A process renews its session every 5 s, and now and then a little late.
    ((_, shown),) = shown_sources([killed], 7 * SECOND)
    assert shown == (told,)
    ((_, (one,)),) = shown_sources([killed], 8 * SECOND)
    assert (one.state, one.out_state, one.ready) == (SourceState.SILENT, SourceState.SILENT, None)
    assert one.why == "its process on box has given no sign of life for 8s"
    (trouble,) = source_findings([killed], [], now=8 * SECOND)
    assert trouble.what == f'source "one" takes no messages (silent): {one.why}'
    assert "pitboss up" in trouble.fix
    # Another manager serves it: that is no trouble.
    other = msgspec.structs.replace(
        session(told, expires_at=20 * SECOND), number=2, info=SessionInfo(host="box2", kind=KIND)
    )
    (fine,) = source_findings([killed, other], [], now=8 * SECOND)
    assert fine.grade is Grade.OK


STUCK = (
    SourceState.REFUSED,
    SourceState.MISSING,
    SourceState.AWAY,
    SourceState.NO_HANDLER,
    SourceState.IN_USE,
    SourceState.STORE,
)


def verdict(*told: SourceFigures, after: int, side: DeliveryFigures | None = None) -> Verdict:
    """What `status` says that long after the sources have come to their states."""
    boss = manager(0, *{one.name for one in told})
    if side is not None:
        boss = ManagerView(
            msgspec.structs.replace(boss.session, snapshot=msgspec.json.encode(Snapshot(delivery=side)).decode()),
            Snapshot(delivery=side),
        )
    reading = StoreReading(sessions=[boss.session, session(*told, expires_at=600 * SECOND)])
    return assess(reading, after).verdict


@pytest.mark.parametrize("state", STUCK)
def test_a_source_that_takes_nothing_for_long_is_unhealthy(state: SourceState) -> None:
    """Regression: `pitboss status --check` was content with sources that took no messages for hours."""
    one = figures(state=state, why="the cause")
    assert verdict(one, after=5 * SECOND).health is Health.ATTENTION
    found = verdict(one, after=PATIENCE)
    assert (found.health, found.cause) == (Health.UNHEALTHY, "sources")
    assert found.sentence == f'Source "one" takes no messages ({state}): the cause.'
    assert found.next
    both = verdict(one, figures("two", state=state), figures("three", state=SourceState.RUNNING), after=PATIENCE)
    assert "2 of 3 sources take no messages: one, two." in both.sentence


@pytest.mark.parametrize("state", [SourceState.RUNNING, SourceState.STANDBY, SourceState.FULL, SourceState.STARTING])
def test_a_source_that_another_manager_serves_is_not_unhealthy(state: SourceState) -> None:
    away = figures(state=SourceState.AWAY, why="the cause")
    assert verdict(away, figures(state=state), after=60 * SECOND).health is not Health.UNHEALTHY
    worn = DeliveryFigures(names=("one",), state="running", worn_out=True)
    found = verdict(away, figures(state=state), after=60 * SECOND, side=worn)
    assert (found.cause == "sources") is (state is SourceState.STARTING)


def test_sources_of_a_process_that_is_replaced_again_and_again_or_stays_down_are_unhealthy() -> None:
    """A new process begins with a new state each time."""
    away = figures(state=SourceState.AWAY, why="the cause", since=59 * SECOND)
    worn = DeliveryFigures(names=("one",), state="running", worn_out=True)
    assert verdict(away, after=60 * SECOND, side=worn).cause == "sources"
    down = DeliveryFigures(names=("one",), state="crashed", why="it crashed 6 times")
    assert "it crashed 6 times" in verdict(after=60 * SECOND, side=down).sentence


def test_a_missing_queue_loses_messages_and_says_so() -> None:
    """Regression: it said that they wait in RabbitMQ."""
    (told,) = found(figures(state=SourceState.MISSING, why="the cause", out_state=SourceState.RUNNING))
    assert "RabbitMQ drops what producers publish" in told.why


def test_malformed_messages_of_the_last_hour_are_told() -> None:
    """Regression: after a change of a handler all messages became malformed, and `status` said Healthy."""
    boss = manager(0, "one")
    bad = figures(state=SourceState.RUNNING, malformed=3, malformed_why="lang is missing", malformed_at=SECOND)
    told = found(bad)
    assert [one.grade for one in told] == [Grade.OK, Grade.WARNING]
    assert "put 3 malformed messages into its dead-letter queue" in told[1].what
    assert "pitboss dead retry --source one" in told[1].fix
    sessions = [boss.session, session(bad, expires_at=60 * SECOND)]
    verdict = assess(StoreReading(sessions=sessions), SECOND).verdict
    assert (verdict.cause, verdict.health) == ("malformed", Health.ATTENTION)
    assert "lang is missing" in verdict.sentence
    assert assess(StoreReading(sessions=sessions, failed=Count(1)), SECOND).verdict.cause == "failed"
    assert len(list(source_findings([session(bad, expires_at=4000 * SECOND)], [], now=3602 * SECOND))) == 1


def test_a_source_that_takes_nothing_comes_before_tasks_that_failed() -> None:
    """Regression: one failed task of the last hour hid in `status` that nothing was consumed."""
    boss = manager(0, "one")
    away = session(figures(state=SourceState.AWAY, why="no broker"), expires_at=60 * SECOND)
    reading = StoreReading(sessions=[boss.session, away], failed=Count(1))
    verdict = assess(reading, SECOND).verdict
    assert verdict.cause == "problem"
    assert "takes no messages (away)" in verdict.sentence
    well = session(figures(state=SourceState.RUNNING, out_state=SourceState.RUNNING), expires_at=60 * SECOND)
    assert assess(StoreReading(sessions=[boss.session, well], failed=Count(1)), SECOND).verdict.cause == "failed"
