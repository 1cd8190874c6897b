"""Traces across real processes: what a program sends, workers run, and what follows from that."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pitboss.model.states import State
from tests.manager.cluster import Cluster

TARGET = str(Path(__file__).with_name("traced.py"))
# first, second four times, third, listener, failing, rescue, wavering.
TASKS = 10


class Span(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]
    failed: bool


class Collector:
    """Takes spans over OTLP, as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()
                spans.extend(read(body))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Span]:
        return [one for one in self.spans if one.name == name]


def read(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                values = {pair.key: pair.value.string_value or pair.value.int_value for pair in one.attributes}
                links = tuple(link.span_id.hex() for link in one.links)
                failed = one.status.code == one.status.STATUS_CODE_ERROR
                yield Span(
                    one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(), links, values, failed
                )


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def produced(cluster: Cluster) -> list[dict[str, Any]]:
    """The spans of a program that enqueues."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.manager.traced_producer", cluster.url],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_trace_goes_from_a_program_through_workers_to_what_follows(cluster: Cluster, collector: Collector) -> None:
    cluster.target = TARGET
    cluster.environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    sent = produced(cluster)
    manager = cluster.manager()
    cluster.until(lambda: cluster.counts().get(State.COMPLETED, 0) == TASKS - 1, what="all tasks")
    assert manager.end() == 0
    (root,) = [one for one in sent if one["name"] == "checkout"]
    sends = [one for one in sent if one["name"].startswith("send ")]
    assert {(one["kind"], one["trace"], one["parent"]) for one in sends} == {("PRODUCER", root["trace"], root["id"])}

    def of(handler: str) -> list[dict[str, Any]]:
        return [one for one in sends if one["attributes"]["pitboss.task.name"] == handler]

    (first,) = collector.named("process first")
    assert (first.trace, first.parent) == (root["trace"], of("first")[0]["id"])
    (task,) = [one for one in cluster.tasks() if one.handler == "first"]
    assert {key: first.attributes[key] for key in ("messaging.system", "messaging.operation.type")} == {
        "messaging.system": "pitboss",
        "messaging.operation.type": "process",
    }
    told = (first.attributes["messaging.destination.name"], first.attributes["messaging.message.id"])
    assert told == ("web", task.id) == ("web", of("first")[0]["attributes"]["messaging.message.id"])
    # The handler sees the span as the present one, also in a thread.
    assert task.value() == root["trace"]
    follows(collector, first, root["trace"])
    later_runs(cluster, collector, sends)
    failures(collector, of("failing")[0], root["trace"])


def follows(collector: Collector, first: Span, trace: str) -> None:
    """What a running task enqueues, follows up and publishes belongs to its trace."""
    (send,) = collector.named("send web")
    assert (send.trace, send.parent) == (trace, first.id)
    assert send.id in [one.parent for one in collector.named("process second")]
    (third,) = collector.named("process third")
    assert (third.trace, third.parent) == (trace, first.id)
    (listener,) = collector.named("process listener")
    assert (listener.trace, listener.parent) == (trace, third.id)


def later_runs(cluster: Cluster, collector: Collector, sends: list[dict[str, Any]]) -> None:
    """Runs that were meant for later have traces of their own, with a link."""
    (many,) = [one for one in sends if one["attributes"].get("messaging.batch.message_count") == 2]
    delayed = [one for one in collector.named("process second") if one.links]
    assert [one.links for one in delayed] == [(many["id"],), (many["id"],)]
    assert len({one.trace for one in delayed} | {many["trace"]}) == 3
    assert {one.parent for one in delayed} == {""}
    once, again = sorted(collector.named("process wavering"), key=lambda one: one.attributes["pitboss.task.attempt"])
    assert once.failed
    assert (once.trace, once.links, once.attributes["error.type"]) == (many["trace"], (), "OSError")
    assert not again.failed
    assert (again.parent, again.links) == ("", (once.parent,))
    assert again.trace != many["trace"]
    values = {one.value() for one in cluster.tasks() if one.handler == "second"}
    assert values == {one.trace for one in collector.named("process second")}


def failures(collector: Collector, sent: dict[str, Any], trace: str) -> None:
    (failing,) = collector.named("process failing")
    assert failing.failed
    assert failing.attributes["pitboss.outcome"] == "failed"
    (rescue,) = collector.named("process rescue")
    assert (rescue.trace, rescue.parent) == (trace, sent["id"])


def test_without_opentelemetry_nothing_of_it_is_imported() -> None:
    code = (
        "import sys\n"
        "from pitboss import App\n"
        "import pitboss.worker.main\n"
        "from pitboss.telemetry import traces\n"
        "app = App('memory://')\n"
        "@app.task\n"
        "def greet(name: str) -> None: ...\n"
        "greet.enqueue('x')\n"
        "app.close()\n"
        "assert not traces.active()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
