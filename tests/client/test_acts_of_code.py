"""What code does that an operator could do, too, is in the audit log."""

import getpass
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pitboss import App
from pitboss.client.app_schedules import AppSchedules
from pitboss.client.batch_handle import BatchHandle
from pitboss.client.handle import Handle
from pitboss.client.resources import Resources
from pitboss.engines.memory import MemoryEngine
from pitboss.model.canonical import from_json
from pitboss.testing.clock import FakeClock

ME = f"{getpass.getuser()}@{socket.gethostname()}"
app = App("memory://")
proxies = app.resources("proxies")


@app.task
def fetch(number: int = 0) -> int:
    return number


@app.scheduled_task(every="1h")
def hourly() -> None:
    return None


class Scene:
    """A store with a task, a batch, a member and a schedule that was added at run time."""

    def __init__(self) -> None:
        self.store = MemoryEngine(clock=FakeClock())
        app.use(self.store)
        self.task = fetch.enqueue(1)
        self.batch = app.batch([fetch.prepared(2), fetch.prepared(3)])
        proxies.add("p1")
        app.schedules.add("eu", hourly, every="2h")
        self.store.tables.audit.clear()

    @property
    def entries(self) -> list[tuple[str, str, dict[str, Any]]]:
        found = list(self.store.tables.audit.values())
        assert {(one.who, one.source) for one in found} <= {(ME, "code")}
        return [(one.act, one.target, from_json(one.details)) for one in found]


@pytest.fixture
def scene() -> Iterator[Scene]:
    yield Scene()
    app.close()


Do = Callable[[Scene], object]
ACTS: dict[str, tuple[Do, str, dict[str, Any]]] = {
    "tasks change": (lambda s: s.task.change(priority=3), "TASK", {"priority": 3}),
    "tasks cancel": (lambda s: s.task.cancel("late"), "TASK", {"reason": "late"}),
    "batches pause": (lambda s: s.batch.pause(), "BATCH", {}),
    "batches resume": (lambda s: s.batch.resume("top"), "BATCH", {"at": "top"}),
    "batches start": (lambda s: s.batch.start(), "BATCH", {}),
    "batches cancel": (lambda s: s.batch.cancel("wrong"), "BATCH", {"reason": "wrong"}),
    "batches move": (lambda s: _queued().move("top"), "OTHER", {"to": "top"}),
    "batches requeue": (lambda s: s.batch.requeue(cancelled=True), "BATCH", {"cancelled": True}),
    "batches delete": (lambda s: s.batch.delete(force=True), "BATCH", {"force": True}),
    "batches lanes": (lambda s: app.lane("slow", max_running=2), "slow", {"max-running": 2}),
    "resources add": (lambda s: proxies.add("p2", {"host": "h"}, {"password": "hunter2"}), "proxies/p2", {}),
    "resources import": (lambda s: proxies.add_many([{"name": "a"}, {"name": "b"}]), "proxies", {"members": 2}),
    "resources enable": (lambda s: proxies.enable("p1"), "proxies p1", {}),
    "resources disable": (lambda s: proxies.disable("p1", reason="slow"), "proxies p1", {"reason": "slow"}),
    "resources reset": (lambda s: proxies.reset(), "proxies", {}),
    "resources remove": (lambda s: proxies.remove("p1"), "proxies p1", {}),
    "schedules add": (lambda s: app.schedules.add("us", hourly, every="3h"), "us", {"every": "3h"}),
    "schedules change": (lambda s: app.schedules.change("eu", every="4h"), "eu", {"every": "4h"}),
    "schedules reset": (lambda s: app.schedules.reset("eu"), "eu", {}),
    "schedules pause": (lambda s: app.schedules.pause("eu"), "eu", {}),
    "schedules resume": (lambda s: app.schedules.resume("eu"), "eu", {}),
    "schedules run": (lambda s: app.schedules.run("eu"), "eu", {}),
    "schedules remove": (lambda s: app.schedules.remove("eu"), "eu", {}),
}
# Public calls that change nothing, or that put tasks, which say themselves where they come from.
READS: dict[type, set[str]] = {
    Handle: {"task", "result"},
    BatchHandle: {"batch", "status", "wait", "items", "results", "errors", "progress", "why"},
    Resources: {
        *(
            "members",
            "lease",
            "sealed",
            "run",
            "begin",
            "acts",
            "session",
            "aask",
            "acquire",
            "blamed",
            "give_back",
            "held",
        ),
        *("http_connections", "judge", "lent", "masked_pair", "opened", "redacted", "release", "report_on", "valid"),
        "store_secrets",
    },
    AppSchedules: {"get", "list"},
}
# Calls with another name than their act.
NAMES = {"add_many": "import", "load": "import"}
# Tested by their own tests: they need more than this scene.
ELSEWHERE = {"reseal"}


def _queued() -> BatchHandle:
    app.batch([fetch.prepared(4)])
    return app.batch([fetch.prepared(5)])


@pytest.mark.parametrize("act", ACTS)
def test_an_act_is_in_the_log_with_who_and_where(scene: Scene, act: str) -> None:
    do, target, details = ACTS[act]
    do(scene)
    ((name, found, given),) = scene.entries
    names = {scene.task.id: "TASK", scene.batch.id: "BATCH"}
    assert (name, names.get(found, "OTHER" if target == "OTHER" else found)) == (act, target)
    assert {key: value for key, value in given.items() if value} == details
    assert "hunter2" not in str(scene.store.tables.audit)


def test_reading_and_putting_store_nothing(scene: Scene) -> None:
    fetch.enqueue(7)
    scene.task.task()
    scene.batch.batch()
    app.lane("slow")
    proxies.members()
    app.schedules.list()
    assert scene.entries == []


@pytest.mark.parametrize("kind", READS, ids=lambda kind: kind.__name__)
def test_every_call_is_an_act_or_is_known_to_be_none(kind: type) -> None:
    public = {name for one in kind.__mro__ for name in vars(one) if not name.startswith("_")}
    calls = {name for name in public if callable(getattr(kind, name, None)) or name in READS[kind]}
    sync = {name for name in calls if not (name.startswith("a") and (name[1:] in calls or name == "awaited"))}
    acts = {act.split()[1] for act in ACTS}
    unknown = {name for name in sync - READS[kind] - ELSEWHERE if NAMES.get(name, name) not in acts}
    assert unknown == set()
