"""`pitboss alerts`, and what status says of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from pitboss.cli.errors import Exit
from pitboss.engines.capabilities import alerts_of
from pitboss.engines.protocol import Store
from pitboss.model.alert import AlertState, Phase
from pitboss.model.alert_look import AlertNotes, ChannelNote, notes_text
from pitboss.model.alert_message import ChannelSpec
from pitboss.model.alert_rules import rules_of
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Transition
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim
from tests.cli.command_line import pitboss, put, with_store
from tests.cli.fake_managers import manager, snapshot, worker

OPS = ChannelSpec(name="ops", type="webhook", url="https://example.org")


def looked(**alerts: AlertState) -> None:
    """A manager has looked at alerts."""

    async def work(store: Store) -> None:
        session = await store.open_session(SessionInfo(host="box1"))
        term = (await store.campaign(session.number)).term
        channels = {"ops": ChannelNote(type="webhook"), "log": ChannelNote(type="log")}
        notes = AlertNotes(
            at=store.clock.now(), rules=rules_of({}), channels=channels, alerts=alerts, store="sqlite:///jobs.db"
        )
        await store.register([OPS.info("app")])
        await alerts_of(store).note_alerts(notes_text(notes), [], version=0, term=term)

    with_store(work)


FIRING = AlertState(phase=Phase.FIRING, since=1, value=90 * 60 * SECOND, about='queue "mail" waits', fired=1)


def test_before_the_first_look_it_says_what_to_do() -> None:
    put()
    answer = pitboss("alerts", "list")
    assert answer.code == 0
    assert "start one with pitboss up" in answer.err + answer.out
    assert pitboss("alerts", "list", "--json").json()["alerts"] == []


def test_what_fires_comes_first_with_its_value() -> None:
    looked(oldest_wait=FIRING)
    lines = pitboss("alerts", "list").out.splitlines()
    assert lines[1].split()[:3] == ["oldest_wait", "firing", "medium"]
    assert "1h30m" in lines[1]
    assert "> 1h" in lines[1]
    first = pitboss("alerts", "list", "--json").json()["alerts"][0]
    assert (first["name"], first["state"], first["shown_value"]) == ("oldest_wait", "firing", "1h30m")


def test_status_tells_what_fires_unless_it_is_silenced() -> None:
    manager(snapshot(worker()))
    looked(oldest_wait=FIRING)
    assert 'alert oldest_wait (medium) is firing: queue "mail" waits' in pitboss("doctor").out
    pitboss("alerts", "silence", "oldest_wait", "--for", "2h", "--reason", "known")
    assert "alert oldest_wait" not in pitboss("doctor").out


def test_a_silence_is_shown_audited_and_ended() -> None:
    looked(oldest_wait=FIRING)
    made = pitboss("alerts", "silence", "oldest_wait", "--for", "2h", "--reason", "known", "--json").json()
    assert (made["rule"], made["reason"]) == ("oldest_wait", "known")
    answer = pitboss("alerts", "list")
    assert "for 2h more: known" in answer.out + answer.err or "for 1h59m more: known" in answer.out + answer.err
    assert pitboss("alerts", "unsilence", "oldest_wait").code == 0
    acts = [one["act"] for one in pitboss("audit", "--json").json()["entries"]]
    assert acts == ["alerts unsilence", "alerts silence"]
    assert pitboss("alerts", "unsilence", "oldest_wait").code == Exit.NOT_FOUND


def test_an_unknown_rule_and_no_time_are_refused() -> None:
    looked()
    answer = pitboss("alerts", "silence", "weather", "--for", "2h")
    assert answer.code == Exit.NOT_FOUND
    assert "the rules are dead_letter_rate, disk, large_handler, late_schedule" in answer.err
    assert pitboss("alerts", "silence", "disk", "--for", "0s").code == Exit.USAGE
    assert "alerts silence" not in pitboss("audit").out


@contextmanager
def sender(why: str) -> Iterator[None]:
    """A process that takes the next message of the channel, and says why it was not sent."""

    async def work(store: Store) -> None:
        info = SessionInfo(host="box2", handlers=("pitboss.alerts.ops",))
        session = await store.open_session(info)
        slot = Slot(free=1, queues=("pitboss.alerts.ops",))
        claims: list[Claim] = []
        while not claims:
            await store.wait(None, 0.05)
            claims = (await store.claim(ClaimRequest(session=session.number, slots=(slot,)))).claims
        done = Transition(state=State.COMPLETED, outcome="completed", result=f'{{"why":"{why}"}}')
        await store.settle([Settlement(id=one.id, token=one.token, transition=done) for one in claims])

    thread = Thread(target=with_store, args=(work,))
    thread.start()
    yield
    thread.join()


def test_a_channel_is_tested() -> None:
    looked()
    with sender(""):
        answer = pitboss("alerts", "test", "ops")
    assert (answer.code, answer.out.strip()) == (0, 'the channel "ops" has taken a test message')
    with sender("the answer was 500"):
        answer = pitboss("alerts", "test", "ops")
    assert answer.code == Exit.FAILED
    assert "the answer was 500" in answer.err
    # The settings are right: they led to the receiver.
    assert "fix: the settings lead to the receiver" in answer.err
    with sender("the answer was 404"):
        assert "fix: correct the channel's settings" in pitboss("alerts", "test", "ops").err
    sent = pitboss("tasks", "list", "queue:pitboss.alerts.ops", "--json").json()["tasks"]
    (shown,) = {one["params"]["message"]["store"] for one in sent}
    assert shown == "sqlite:///jobs.db"


def test_a_channel_that_nobody_sends_runs_into_the_time_limit_and_is_withdrawn() -> None:
    looked()
    answer = pitboss("alerts", "test", "ops", "--timeout", "300ms")
    assert answer.code == Exit.TIMEOUT
    assert pitboss("tasks", "list", "state:cancelled", "--json").json()["tasks"]


@pytest.mark.parametrize(("channel", "said"), [("fax", "there is no channel"), ("log", "needs no test")])
def test_a_channel_that_cannot_be_tested(channel: str, said: str) -> None:
    looked()
    answer = pitboss("alerts", "test", channel)
    assert answer.code != 0
    assert said in answer.err
