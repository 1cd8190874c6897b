"""Alerts of a real manager, sent to a server on this machine that counts, hangs, fails or redirects."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pitboss.engines.capabilities import alerts_of
from pitboss.model.alert_message import ChannelSpec
from pitboss.model.alert_rules import AlertsSpec, rules_of
from pitboss.model.duration import SECOND
from pitboss.model.errors import NotDone
from pitboss.model.source import DeliverySpec
from pitboss.model.states import State
from pitboss.operate.alerts import send_test
from tests.manager.cluster import Cluster, ManagerProcess
from tests.servers.postgres import PostgresServer

FAILURES = 2500
TARGET = str(Path(__file__).with_name("alerted.py"))


class Receiver:
    """Stands in for the far side of a webhook. `answer` is a status, or "hang"; a redirect goes to `location`."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: int | str = 200
        self.location = ""
        self.ended, self.came = threading.Event(), threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.came:
                    receiver.requests.append(json.loads(body))
                    receiver.came.notify_all()
                if receiver.answer == "hang":
                    receiver.ended.wait()
                    return
                self.send_response(int(receiver.answer))
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def wait_for(self, kinds: list[str]) -> None:
        """For when the store cannot be asked meanwhile."""
        with self.came:
            assert self.came.wait_for(lambda: self.kinds == kinds, timeout=30), self.kinds

    @property
    def kinds(self) -> list[str]:
        return [one["kind"] for one in self.requests]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


def channel(receiver: Receiver, name: str = "ops", **fields: Any) -> ChannelSpec:
    return ChannelSpec(name=name, type="webhook", url=receiver.url, **{"allow_private": True, **fields})


@pytest.fixture
def alerted(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(f"sqlite:///{tmp_path}/shop.db", tmp_path, TARGET)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(params=["sqlite", "postgres"])
def alerted_on_both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    on_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn")
    cluster = Cluster(url, tmp_path, TARGET)
    try:
        yield cluster
    finally:
        cluster.close()


def begin(cluster: Cluster, *channels: ChannelSpec, delivery: bool = True, **further: dict[str, Any]) -> ManagerProcess:
    """A manager whose rules are about failed tasks, and these."""
    off = dict.fromkeys(one.name for one in rules_of({}))
    rules = rules_of({**off, "dead_letter_rate": {"window": 5 * SECOND}, **further})
    cluster.alerts = AlertsSpec(rules=rules, channels=channels)
    outside = cluster.alerts.outside
    cluster.delivery = DeliverySpec(store=cluster.url, channels=outside) if outside and delivery else None
    manager = cluster.manager(workers=1)
    cluster.until(cluster.workers, what="a worker")
    # What fails next is counted from its beginning.
    cluster.until(lambda: cluster.do(alerts_of(cluster.engine).alert_board()).version >= 1, what="the first look")
    return manager


def test_2500_failures_are_one_message_per_channel_and_one_that_it_is_over(alerted_on_both: Cluster) -> None:
    cluster = alerted_on_both
    with receiving() as one, receiving() as other:
        begin(cluster, channel(one), channel(other, "second"))
        cluster.put("fails", FAILURES)
        cluster.until(lambda: cluster.counts().get(State.FAILED) == FAILURES, within=60)
        cluster.until(lambda: one.kinds[-1:] == other.kinds[-1:] == ["resolved"], within=60)
        for receiver in (one, other):
            assert receiver.kinds == ["alert", "resolved"]
            assert "failed in 5s" in receiver.requests[0]["text"]


def test_a_channel_that_hangs_fails_or_redirects_harms_nothing(alerted: Cluster) -> None:
    with receiving() as hangs, receiving() as fails, receiving() as leads, receiving() as inner, receiving() as well:
        hangs.answer, fails.answer, leads.answer, leads.location = "hang", 500, 307, inner.url
        # To the guard 127.0.0.1 is private, so a redirect cannot be shown with it: the address itself is refused.
        refused = channel(leads, "refused", allow_private=False)
        begin(alerted, channel(hangs, "hangs"), channel(fails, "fails"), refused, channel(well, "well"))
        alerted.put("fails", 20)
        alerted.until(lambda: well.kinds[:1] == ["alert"] and hangs.requests and fails.requests, within=30)
        tasks = alerted.put("quick", 200, number=1)
        began = time.monotonic()
        alerted.until(lambda: len(alerted.traced("quick")) == len(tasks), within=20)
        assert time.monotonic() - began < 10
        alerted.until(lambda: well.kinds == ["alert", "resolved"], within=60)
        assert leads.requests == inner.requests == []
        waiting = [one for one in alerted.tasks() if one.handler in ("pitboss.alerts.fails", "pitboss.alerts.refused")]
        assert {one.state for one in waiting} <= {State.SCHEDULED, State.PENDING, State.RUNNING, State.HELD}
        errors = {one.error.message for one in waiting if one.error is not None}
        assert any("the answer was 500" in one for one in errors)
        assert any("is not on the internet" in one for one in errors)
        # It is tried until it is taken.
        fails.answer = 200
        alerted.until(lambda: "resolved" in fails.kinds, within=60)
        assert set(fails.kinds[:-1]) == {"alert"}


def test_a_leader_that_dies_before_its_message_is_sent_is_followed_by_one_that_sends_it_once(alerted: Cluster) -> None:
    with receiving() as receiver:
        ops = channel(receiver)
        # The first manager cannot send: it has no delivery process.
        first = begin(alerted, ops, delivery=False)
        alerted.put("fails", 20)
        alerted.until(lambda: any(one.handler == "pitboss.alerts.ops" for one in alerted.tasks()), within=30)
        first.signal(signal.SIGKILL)
        first.process.wait()
        alerted.delivery = DeliverySpec(store=alerted.url, channels=(ops,))
        alerted.manager(workers=1)
        alerted.until(lambda: receiver.kinds[-1:] == ["resolved"], within=60)
        assert receiver.kinds == ["alert", "resolved"]


def test_a_function_is_told_by_a_worker(alerted: Cluster) -> None:
    begin(alerted, ChannelSpec(name="page", type="function", handler="page"))
    alerted.put("fails", 20)
    alerted.until(lambda: ["paged", "resolved", "dead_letter_rate"] in alerted.traced("paged"), within=60)
    assert alerted.traced("paged")[0] == ["paged", "alert", "dead_letter_rate"]


def test_without_channels_to_the_outside_there_is_no_process_and_the_log_is_told(alerted: Cluster) -> None:
    manager = begin(alerted, ChannelSpec(name="log", type="log"))
    alerted.put("fails", 20)
    alerted.until(lambda: manager.said("alert dead_letter_rate (medium) firing"), within=30)
    assert not [one for told in alerted.snapshots() if (one := told.delivery) is not None]


def test_channels_that_change_with_a_reload_are_followed(alerted: Cluster) -> None:
    with receiving() as one, receiving() as other:
        manager = begin(alerted, channel(one))
        assert alerted.alerts is not None
        changed = (channel(other),)
        plan = replace(
            manager.plan,
            alerts=replace(alerted.alerts, channels=changed),
            delivery=DeliverySpec(store=alerted.url, channels=changed),
        )
        manager.reload(plan)
        alerted.until(lambda: manager.said("reloaded"), within=30)
        alerted.put("fails", 20)
        alerted.until(lambda: other.kinds[:1] == ["alert"], within=40)
        assert one.kinds == []
        alerted.do(send_test(alerted.engine, "ops", alerted.new_id, 30 * SECOND))
        assert "test" in other.kinds
        other.answer = 500
        with pytest.raises(NotDone, match="did not take the test"):
            alerted.do(send_test(alerted.engine, "ops", alerted.new_id, 30 * SECOND))


def test_a_store_that_is_away_is_told_past_it_and_that_it_is_back(
    durable_dsn: str, durable_server: PostgresServer, tmp_path: Path
) -> None:
    cluster = Cluster(durable_dsn, tmp_path, TARGET)
    with receiving() as receiver, closing(cluster):
        begin(cluster, channel(receiver), store_away={"threshold": "1s"})
        cluster.until(lambda: any(told.delivery and told.delivery.state == "running" for told in cluster.snapshots()))
        durable_server.stop()
        try:
            receiver.wait_for(["store"])
        finally:
            durable_server.start()
        receiver.wait_for(["store", "store"])
        began, ended = receiver.requests
        assert (began["title"], began["alerts"][0]["state"]) == ("Pitboss: the store does not answer", "firing")
        assert (ended["title"], ended["alerts"][0]["state"]) == ("Pitboss: the store is back", "resolved")
