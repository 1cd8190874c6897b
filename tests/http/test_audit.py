"""Every route that changes something leaves an entry in the audit log, with who and from where."""

from typing import Any

import msgspec

from pitboss.http.access import ROLES
from pitboss.model.alert_look import AlertNotes, notes_text
from pitboss.model.alert_rules import rules_of
from pitboss.model.batch import NewBatch
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import by
from pitboss.model.limits import rate
from pitboss.model.operation import NewOperation, Verb
from pitboss.model.partition import Partitioning
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.resource import NewResource
from pitboss.model.schedule import ScheduleSpec
from pitboss.model.session import SessionInfo
from pitboss.model.task import NewTask
from tests.cli.fake_managers import snapshot, worker
from tests.http.site import Site

Place = tuple[str, str]
REMOTE = {"name": "remote", "version": "1", "param_schema": {"type": "object"}}
# Method and path with what stands in it; the body; the act.
ACTS: list[tuple[Place, str, dict[str, Any] | None, str]] = [
    (("PATCH", "/tasks/{task_id}"), "TASK", {"priority": 3, "tag": ["x"]}, "tasks change"),
    (("POST", "/tasks/{task_id}/cancel"), "TASK", {"reason": "late"}, "tasks cancel"),
    (("POST", "/tasks/{task_id}/retry"), "TASK", {}, "tasks retry"),
    (("POST", "/tasks/cancel"), "", {"filter": "queue:default"}, "tasks cancel"),
    (("POST", "/tasks/change"), "", {"filter": "queue:default", "priority": 3}, "tasks change"),
    (("POST", "/tasks/retry"), "", {"filter": "queue:default state:cancelled"}, "tasks retry"),
    (("POST", "/operations/{operation_id}/rate"), "OPERATION", {"rate": "5/s"}, "operations rate"),
    (("POST", "/operations/{operation_id}/cancel"), "OPERATION", None, "operations cancel"),
    (("POST", "/views"), "", {"name": "late", "filter": "queue:mail", "shared": True}, "views save"),
    (("DELETE", "/views"), "?name=late&shared=true", None, "views remove"),
    (("POST", "/alerts/silences"), "", {"rule": "disk", "for": 60}, "alerts silence"),
    (("DELETE", "/alerts/silences/{rule}"), "disk", None, "alerts unsilence"),
    (("DELETE", "/tasks/{task_id}"), "ENDED", None, "tasks delete"),
    (("POST", "/tasks/delete"), "", {"filter": "queue:ended"}, "tasks delete"),
    (("PATCH", "/queues/{name}"), "default", {"capacity": 5}, "queues limit"),
    (("POST", "/queues/{name}/pause"), "default", None, "queues pause"),
    (("POST", "/activity/{entry_id}/undo"), "NEWEST", None, "queues resume"),
    (("POST", "/queues/{name}/pause"), "default", None, "queues pause"),
    (("POST", "/queues/{name}/resume"), "default", None, "queues resume"),
    (("POST", "/worker-pools/{name}/scale"), "download", {"size": 3}, "worker-pools scale"),
    (("POST", "/worker-pools/{name}/restart"), "download", None, "worker-pools restart"),
    (("POST", "/worker-pools/{name}/pause"), "download", None, "worker-pools pause"),
    (("POST", "/worker-pools/{name}/resume"), "download", None, "worker-pools resume"),
    (("POST", "/managers/{session}/drain"), "MANAGER", None, "managers drain"),
    (("POST", "/managers/{session}/undrain"), "MANAGER", None, "managers undrain"),
    (("POST", "/managers/{session}/stop"), "MANAGER", None, "managers stop"),
    (("PATCH", "/resource-pools/{name}"), "proxies", {"limits": {"per_hour": "20"}}, "resource-pools limit"),
    (("POST", "/resource-pools/{name}/members"), "proxies", {"members": [{"name": "p2"}]}, "resource-pools add"),
    (("POST", "/resource-pools/{name}/reset"), "proxies", None, "resource-pools reset"),
    (("POST", "/resource-pools/{name}/enable"), "proxies", None, "resource-pools enable"),
    (("POST", "/resource-pools/{name}/members/{member}/disable"), "proxies p1", None, "resource-pools disable"),
    (("POST", "/resource-pools/{name}/members/{member}/enable"), "proxies p1", None, "resource-pools enable"),
    (("POST", "/resource-pools/{name}/members/{member}/reset"), "proxies p1", None, "resource-pools reset"),
    (("POST", "/partitions/{name}/move"), "targets", {"key": "CA", "slot": "web/0"}, "partitions move"),
    (("POST", "/partitions/{name}/pin"), "targets", {"key": "CA", "slot": "web/0"}, "partitions pin"),
    (("POST", "/partitions/{name}/unpin"), "targets", {"key": "CA"}, "partitions unpin"),
    (("DELETE", "/resource-pools/{name}/members/{member}"), "proxies p1", None, "resource-pools remove"),
    (("POST", "/batches/{batch_id}/{act}"), "BATCH pause", {}, "batches pause"),
    (("DELETE", "/batches/{batch_id}"), "BATCH?force=true", None, "batches delete"),
    (("PUT", "/lanes/{name}"), "slow", {"max_running": 2}, "lanes limit"),
    (("POST", "/schedules"), "", {"name": "us", "type": "greet", "every": 3600}, "schedules add"),
    (("PATCH", "/schedules/{name}"), "eu", {"every": 7200}, "schedules change"),
    (("POST", "/schedules/{name}/run"), "eu", None, "schedules run"),
    (("POST", "/schedules/{name}/pause"), "eu", None, "schedules pause"),
    (("POST", "/schedules/{name}/resume"), "eu", None, "schedules resume"),
    (("POST", "/schedules/{name}/reset"), "eu", None, "schedules reset"),
    (("DELETE", "/schedules/{name}"), "eu", None, "schedules remove"),
    (("POST", "/events/{event_id}/replay"), "EVENT", {}, "events replay"),
    (("POST", "/keys"), "", {"name": "ci", "roles": ["viewer"]}, "keys create"),
    (("DELETE", "/keys/{name}"), "ci", None, "keys revoke"),
    (("POST", "/task-types/register"), "", REMOTE, "task-types register"),
    (("DELETE", "/task-types/{name}"), "remote", None, "task-types deactivate"),
]
# What is put says itself where it comes from.
PUTS = {("POST", "/tasks"), ("POST", "/tasks/bulk"), ("POST", "/batches"), ("POST", "/events")}
# It needs someone who takes the test: tests/http/web/test_acts.py.
PUTS |= {("POST", "/alerts/channels/{name}/test")}
# The work of remote workers, which is recorded in tasks and attempts.
WORK = {place for place in ROLES if place[1].startswith(("/tasks/claim", "/workers"))} | {
    ("POST", "/tasks/complete"),
    *(("POST", f"/tasks/{{task_id}}/{act}") for act in ("progress", "heartbeat", "complete", "fail", "release")),
}


class Scene(Site):
    """A site in which every act has something to do."""

    def __enter__(self) -> "Scene":
        super().__enter__()
        self.ids = self.do(self._fill())
        self.admin = {"X-API-Key": self.key("admin", name="boss")}
        return self

    async def _fill(self) -> dict[str, str]:
        store, new_id = self.store, self.server.make_id
        await store.register([HandlerInfo(name="greet")])
        queues = ("default", "default", "ended", "ended", "items")
        tasks = [NewTask(id=new_id(), handler="greet", queue=queue) for queue in queues]
        await store.put(tasks[:4])
        await store.cancel(by(queue="ended"))
        batch = await store.create_batch(NewBatch(id=new_id()), tasks[4:])
        wants = Subscription(handler="greet", pattern="user.*")
        divided = QueueSettings(partitions=Partitioning(by="{state}", mode="static", table={0: ("CA",)}))
        await store.declare(Declared(app="shop", subscriptions=(wants,), queues={"targets": divided}))
        event = NewEvent(id=new_id(), name="user.signup")
        await store.publish([event])
        operation = NewOperation(id=new_id(), verb=Verb.RETRY, wanted=by(queue="none"), by="boss", rate=rate("1/s"))
        await store.begin_operation(operation)
        await store.put_schedule(ScheduleSpec(name="eu", handler="greet", every=3600 * SECOND))
        await store.declare_pool("proxies", None)
        await store.add_resources("proxies", [NewResource(name="p1")])
        session = (await store.open_session(SessionInfo(host="box1", pid=1, ttl=3600 * SECOND))).number
        await store.renew(session, _encoded(snapshot(worker())))
        await store.take_slots(session, "web", "box1", [0])
        term = (await store.campaign(session)).term
        await store.note_alerts(notes_text(AlertNotes(rules=rules_of({}))), [], version=0, term=term)
        return {
            "TASK": tasks[0].id,
            "ENDED": tasks[2].id,
            "BATCH": batch.id,
            "EVENT": event.id,
            "OPERATION": operation.id,
            "MANAGER": str(session),
        }

    def act(self, place: Place, values: str, body: dict[str, Any] | None) -> int:
        method, path = place
        values, _, query = values.partition("?")
        for value in values.split():
            name = path[path.index("{") : path.index("}") + 1]
            path = path.replace(name, self.ids.get(value, value))
        url = f"/api{path}{'?' if query else ''}{query}"
        return self.http.request(method, url, json=body, headers=self.admin).status_code


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_every_route_is_an_act_or_is_known_to_be_none() -> None:
    """A new route that changes something belongs into ACTS."""
    changing = {place for place in ROLES if place[0] != "GET"}
    assert {place for place, *_ in ACTS} | PUTS | {place for place in WORK if place[0] != "GET"} == changing


def test_every_act_is_in_the_log() -> None:
    """One after the other on one site: some need what an earlier one did."""
    with Scene() as scene:
        wrong = []
        for place, values, body, act in ACTS:
            log = scene.do(scene.store.audit_log(limit=1000))
            earlier = len(log)
            scene.ids |= {"NEWEST": log[0].id} if log else {}
            code = scene.act(place, values, body)
            entries = scene.do(scene.store.audit_log(limit=1000))
            found = [(one.who, one.act, one.source) for one in entries[: len(entries) - earlier]]
            if code not in (200, 201, 202) or found != [("boss", act, "http 127.0.0.1")]:
                wrong.append((place, code, found))
    assert wrong == []
