"""Schedules and events over HTTP, and operations."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from pitboss.model.declared import Declared
from pitboss.model.event import Subscription
from pitboss.model.filter import by
from pitboss.model.operation import Operation
from pitboss.model.schedule import ScheduleSpec
from pitboss.operate.operations import until_over
from tests.http.site import Site
from tests.servers.postgres import PostgresServer

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
NIGHTLY = {"name": "nightly", "type": "echo", "cron": "0 3 * * *", "tz": "Europe/Prague", "params": {"n": 1}}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Site]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/store.db"}
    with Site(url=urls.get(request.param) or postgres_server.create_database()) as running:
        for name in ("echo", "mail"):
            schema = SCHEMA if name == "echo" else {"type": "object"}
            new = {"name": name, "version": "1", "param_schema": schema, "backoff": 0}
            running.http.post("/api/task-types/register", json=new).raise_for_status()
        subscriptions = (
            Subscription(handler="mail", pattern="user.*", queue="mail"),
            Subscription(handler="welcome", pattern="user.signup"),
        )
        spec = ScheduleSpec(name="declared", handler="echo", every=60_000_000)
        running.do(running.store.declare(Declared(app="shop", subscriptions=subscriptions, schedules=(spec,))))
        yield running


def data(answer: httpx.Response, code: int = 200) -> Any:
    assert answer.status_code == code, answer.text
    return answer.json()["data"]


def refused(answer: httpx.Response, code: int) -> str:
    body = answer.json()
    assert (answer.status_code, body["success"]) == (code, False), answer.text
    return f"{body['error']} | {body.get('details', {}).get('why')} | {body.get('details', {}).get('fix')}"


def acts(site: Site) -> list[str]:
    return [one["act"] for one in site.http.get("/api/audit").json()["data"]["entries"]]


def test_a_schedule_is_added_changed_and_removed(site: Site) -> None:
    http = site.http
    added = data(http.post("/api/schedules", json=NIGHTLY), 201)
    assert (added["when"], added["type"], added["app"]) == ("every day at 03:00 (Europe/Prague)", "echo", None)
    assert data(http.post("/api/schedules", json=NIGHTLY | {"priority": 3}))["priority"] == 3
    changed = data(http.patch("/api/schedules/nightly", json={"every": 90, "jitter": 5, "tz": None}))
    assert (changed["when"], changed["cron"], changed["jitter"]) == ("every 1m30s", None, 5.0)
    assert changed["changed"] == {"every": None, "jitter": 0.0}
    assert changed["changed_by"].startswith("local (http ")
    assert data(http.post("/api/schedules/nightly/reset"))["cron"] == "0 3 * * *"
    paused = data(http.post("/api/schedules/nightly/pause"))
    assert (paused["paused"], paused["paused_by"]) == (True, changed["changed_by"])
    assert data(http.post("/api/schedules/nightly/resume"))["paused"] is False
    ticks = data(http.get("/api/schedules/nightly/next?count=3"))
    assert (ticks["count"], ticks["ticks"][0]) == (3, data(http.get("/api/schedules/nightly"))["next_at"])
    assert [one["name"] for one in data(http.get("/api/schedules"))["schedules"]] == ["declared", "nightly"]
    assert [one["name"] for one in data(http.get("/api/schedules?after=declared&limit=1"))["items"]] == ["nightly"]
    assert data(http.delete("/api/schedules/nightly"))["name"] == "nightly"
    assert refused(http.get("/api/schedules/nightly"), 404)
    assert acts(site)[::-1][2:] == [
        f"schedules {act}" for act in ("add", "add", "change", "reset", "pause", "resume", "remove")
    ]


def test_a_run_at_once_puts_a_task_or_meets_an_unfinished_one(site: Site) -> None:
    data(site.http.post("/api/schedules", json=NIGHTLY), 201)
    first = data(site.http.post("/api/schedules/nightly/run"), 201)
    again = data(site.http.post("/api/schedules/nightly/run"))
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
    task = data(site.http.get(f"/api/tasks/{first['id']}"))
    assert (task["params"], task["origin"]["schedule"]["name"]) == ({"n": 1}, "nightly")
    assert acts(site)[0] == "schedules run"


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "said"),
    [
        ("POST", "", NIGHTLY | {"cron": "0 3 * *"}, 400, "cron"),
        ("POST", "", NIGHTLY | {"every": 60}, 400, "exactly one of cron=, every= and at="),
        ("POST", "", NIGHTLY | {"tz": "Europe/Prag"}, 400, "Europe/Prague"),
        ("POST", "", NIGHTLY | {"params": {"n": "x"}}, 400, "n"),
        ("POST", "", NIGHTLY | {"type": "ecko"}, 404, 'did you mean "echo"?'),
        ("POST", "", NIGHTLY | {"overlp": "skip"}, 400, "did you mean overlap?"),
        ("POST", "", NIGHTLY | {"at": "2030-01-01T08:00:00"}, 400, "at"),
        ("POST", "", NIGHTLY | {"name": "declared"}, 409, "PATCH /api/schedules/declared"),
        ("PATCH", "/declared", {}, 400, "No field to change"),
        ("PATCH", "/declared", {"cron": "nonsense"}, 400, "nonsense"),
        ("PATCH", "/declard", {"every": 60}, 404, 'did you mean "declared"?'),
        ("POST", "/declard/run", None, 404, 'did you mean "declared"?'),
        ("POST", "/declard/pause", None, 404, 'did you mean "declared"?'),
        ("GET", "/declard/next", None, 404, 'did you mean "declared"?'),
        ("GET", "/declared/next?count=0", None, 400, "count"),
        ("GET", "/declared/next?cuont=5", None, 400, "did you mean count?"),
        ("DELETE", "/declared", None, 409, "declared by the code of"),
        ("DELETE", "/declard", None, 404, "no schedule"),
    ],
)
def test_what_cannot_be_done_is_refused(
    site: Site, method: str, path: str, body: dict[str, Any] | None, code: int, said: str
) -> None:
    before = acts(site)
    answer = site.http.request(method, f"/api/schedules{path}", json=body)
    assert said in refused(answer, code)
    assert acts(site) == before
    assert len(data(site.http.get("/api/schedules"))["schedules"]) == 1


def test_an_event_becomes_a_task_for_each_handler(site: Site) -> None:
    done = data(site.http.post("/api/events", json={"name": "user.signup", "data": {"id": 7}, "key": "u:7"}), 201)
    assert (done["handlers"], done["created"], len(done["tasks"])) == (["mail", "welcome"], True, 2)
    page = data(site.http.get(f"/api/events/{done['id']}"))
    assert (page["data"], page["key"], page["by"]) == ({"id": 7}, "u:7", "local")
    assert [(one["handler"], one["state"]) for one in page["tasks"]] == [("mail", "pending"), ("welcome", "held")]
    task = data(site.http.get(f"/api/tasks/{done['tasks'][0]}"))
    assert task["origin"]["event"] == {"id": done["id"], "name": "user.signup", "key": "u:7"}
    other = data(site.http.post("/api/events", json={"name": "order.paid"}), 201)
    assert (other["handlers"], other["tasks"]) == ([], [])
    listed = data(site.http.get("/api/events"))
    assert [one["id"] for one in listed["events"]] == [other["id"], done["id"]]
    assert [one["id"] for one in data(site.http.get("/api/events?name=user.signup"))["items"]] == [done["id"]]
    newest = data(site.http.get("/api/events?limit=1"))
    assert data(site.http.get(f"/api/events?before={newest['next_before']}"))["count"] == 1


def test_a_publication_can_be_repeated_under_its_key(site: Site) -> None:
    headers, body = {"Idempotency-Key": uuid4().hex}, {"name": "user.signup", "data": {"id": 7}}
    first, again = (site.http.post("/api/events", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["data"]["tasks"] == again.json()["data"]["tasks"]
    other = site.http.post("/api/events", json=body | {"data": {"id": 8}}, headers=headers)
    assert "another request" in refused(other, 422)
    assert data(site.http.get("/api/events"))["count"] == 1


def test_a_publication_can_be_repeated_under_a_key_in_its_body(site: Site) -> None:
    """Only the header counted: a key in the body was ignored, and the event published twice."""
    body = {"name": "user.signup", "data": {"id": 7}, "idempotency_key": uuid4().hex}
    first, again = (site.http.post("/api/events", json=body) for _ in range(2))
    assert (data(first, 201)["created"], data(again)["created"]) == (True, False)
    assert data(first, 201)["id"] == data(again)["id"]
    assert data(first, 201)["tasks"] == data(again)["tasks"]
    assert "another request" in refused(site.http.post("/api/events", json=body | {"data": {"id": 8}}), 422)
    assert refused(site.http.post("/api/events", json=body | {"idempotency_key": ""}), 400)
    assert data(site.http.get("/api/events"))["count"] == 1


@pytest.mark.parametrize(
    ("body", "given"), [({}, {}), ({"data": None}, None), ({"data": {}}, {}), ({"data": 0}, 0)], ids=str
)
def test_null_is_data_and_no_data_is_an_empty_object(site: Site, body: dict[str, Any], given: object) -> None:
    """Null reached the handlers as an empty object."""
    done = data(site.http.post("/api/events", json={"name": "user.left", **body}), 201)
    assert data(site.http.get(f"/api/events/{done['id']}"))["data"] == given
    (task,) = done["tasks"]
    assert data(site.http.get(f"/api/tasks/{task}"))["params"] == {"event_data": given}


def test_an_event_is_sent_again(site: Site) -> None:
    event = data(site.http.post("/api/events", json={"name": "user.signup"}), 201)["id"]
    assert data(site.http.post(f"/api/events/{event}/replay"))["count"] == 2
    one = data(site.http.post(f"/api/events/{event}/replay", json={"handlers": ["mail"]}))
    assert [task["handler"] for task in one["tasks"]] == ["mail"]
    assert acts(site)[:2] == ["events replay"] * 2
    assert "does not subscribe" in refused(
        site.http.post(f"/api/events/{event}/replay", json={"handlers": ["mial"]}), 404
    )
    unknown = event[:-4] + "0000"
    assert "not in the log" in refused(site.http.post(f"/api/events/{unknown}/replay"), 404)
    assert refused(site.http.get(f"/api/events/{unknown}"), 404)
    assert "UUID" in refused(site.http.get("/api/events/none"), 400)


def fail_all(site: Site, number: int) -> None:
    for n in range(number):
        site.http.post("/api/tasks", json={"type": "echo", "params": {"n": n}}).raise_for_status()
    end_all(site)


def end_all(site: Site) -> int:
    ended = 0
    while (answer := site.http.post("/api/tasks/claim", json={"worker_id": "w", "limit": 100})).status_code == 200:
        for task in answer.json()["data"]["tasks"]:
            body = {"worker_id": "w", "error": "no", "retryable": False}
            site.http.post(f"/api/tasks/{task['id']}/fail", json=body).raise_for_status()
            ended += 1
    return ended


def perform(site: Site) -> Operation:
    """The newest operation, when it is over. No manager leads, so it is performed here."""

    async def work() -> Operation:
        (newest,) = await site.server.store.operations(limit=1)
        return await until_over(site.server.store, newest, stop=asyncio.Event(), told=lambda _: None)

    return site.do(work())


def test_failed_tasks_are_retried_at_a_rate(site: Site) -> None:
    fail_all(site, 6)
    body = {"filter": "task:echo", "rate": "100/s", "stop_on_failures": 50}
    done = data(site.http.post("/api/tasks/retry", json=body), 202)
    begun = done["operation"]
    assert (done["matched"], begun["status"], begun["done"], begun["rate"]) == (6, "running", 0, "100/1s")
    assert [one["id"] for one in data(site.http.get("/api/operations"))["operations"]] == [begun["id"]]
    assert data(site.http.get("/api/operations?status=done"))["operations"] == []
    perform(site)
    over = data(site.http.get(f"/api/operations/{begun['id'][-8:]}"))
    assert (over["status"], over["done"], over["refused"]) == ("done", 6, 0)
    assert end_all(site) == 6
    newest = site.http.get("/api/audit").json()["data"]["entries"][0]
    asked = {"rate": "100/s", "stop_on_failures": 50}
    assert (newest["act"], newest["details"]) == ("tasks retry", asked | {"tasks": 6, "operation": begun["id"]})
    needs = {"filter": "task:echo", "stop_on_failures": 5}
    assert "needs a rate" in refused(site.http.post("/api/tasks/retry", json=needs), 400)
    assert refused(site.http.post("/api/tasks/retry", json=body | {"rate": "fast"}), 400)
    keeps = body | {"keep_attempts": True}
    assert "starts the attempts anew" in refused(site.http.post("/api/tasks/retry", json=keeps), 400)


def test_an_operation_is_slowed_down_and_cancelled(site: Site) -> None:
    fail_all(site, 3)
    begun = data(site.http.post("/api/tasks/retry", json={"filter": "task:echo", "rate": "100/s"}), 202)["operation"]
    path = f"/api/operations/{begun['id']}"
    assert data(site.http.post(f"{path}/rate", json={"rate": "1/h"}))["rate"] == "1/1h"
    assert data(site.http.post(f"{path}/rate", json={"rate": None}))["rate"] is None
    cancelled = data(site.http.post(f"{path}/cancel"))
    assert (cancelled["status"], cancelled["done"]) == ("cancelled", 0)
    assert "cancelled by" in cancelled["why"]
    perform(site)
    assert site.do(site.store.count(by(state="failed"))).number == 3
    assert refused(site.http.post(f"/api/operations/{uuid4()}/cancel"), 404)
    assert refused(site.http.get("/api/operations/ffffffff"), 404)


def test_many_tasks_are_an_operation_without_a_rate_too(site: Site) -> None:
    tasks = [{"type": "echo", "params": {"n": n}} for n in range(1_000)]
    site.http.post("/api/tasks/bulk", json={"tasks": tasks}).raise_for_status()
    few = data(site.http.post("/api/tasks/cancel", json={"filter": "task:echo args.n:1"}))
    assert (few["changed"], few["operation"]) == (1, None)
    tasks = [{"type": "echo", "params": {"n": n}} for n in range(1_000, 2_000)]
    site.http.post("/api/tasks/bulk", json={"tasks": tasks}).raise_for_status()
    many = data(site.http.post("/api/tasks/cancel", json={"filter": "task:echo", "reason": "no"}), 202)
    assert many["operation"]["matched"] == 1_999
    perform(site)
    assert site.do(site.store.count(by(state="cancelled"))).number == 2_000
