"""What docs/reference/http-api.md promises beyond the original API, seen by a client."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.http.original_client import Answer, OriginalClient
from tests.http.site import Site
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Site]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"}
    with Site(url=urls.get(request.param) or postgres_server.create_database()) as running:
        yield running


@pytest.fixture
def api(site: Site) -> OriginalClient:
    return OriginalClient(f"{site.url}/api")


@pytest.fixture
def name(api: OriginalClient) -> str:
    """A task type whose failures may run again at once."""
    found = f"type-{uuid4().hex[:10]}"
    api.register(found, backoff=0)
    return found


def claim(api: OriginalClient, name: str, **more: Any) -> Answer:
    return api.ask("POST", "/tasks/claim", {"worker_id": "w", "types": [name], **more})


def test_a_creation_can_be_repeated_under_its_key(site: Site, name: str) -> None:
    headers, body = {"Idempotency-Key": uuid4().hex}, {"type": name, "params": {"a": 1}, "dedupe": "none"}
    first, again = (site.http.post("/api/tasks", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert again.json()["data"]["deduplicated"] is False
    other = site.http.post("/api/tasks", json=body | {"priority": 1}, headers=headers)
    assert other.status_code == 422
    new = site.http.post("/api/tasks", json=body, headers={"Idempotency-Key": uuid4().hex})
    assert new.json()["id"] != first.json()["id"]


def test_creations_at_the_same_moment_under_one_key_make_one_task(site: Site, name: str) -> None:
    headers, body = {"Idempotency-Key": uuid4().hex}, {"type": name, "params": {"a": 2}, "dedupe": "none"}
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(site.http.post, "/api/tasks", json=body, headers=headers) for _ in range(16)]
        answers = [one.result() for one in asked]
    assert len({one.json()["id"] for one in answers}) == 1
    assert sorted(one.status_code for one in answers) == [200] * 15 + [201]


def test_equal_tasks_created_at_the_same_moment_are_one(site: Site, name: str) -> None:
    body = {"type": name, "params": {"same": True}}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: site.http.post("/api/tasks", json=body), range(16)))
    assert len({one.json()["id"] for one in answers}) == 1
    assert sorted(one.status_code for one in answers) == [200] * 15 + [201]


def test_dedupe_ends_when_the_task_has_ended_unless_it_is_for_ever(api: OriginalClient, name: str) -> None:
    def ended(**more: Any) -> str:
        task = api.create(name, {"n": 1}, **more).data["id"]
        claim(api, name)
        api.complete(task, "w", True)
        return task

    first = ended()
    assert api.create(name, {"n": 1}).data["id"] != first
    claimed = claim(api, name).data["id"]
    api.complete(claimed, "w", True)
    for_ever = ended(dedupe="forever", dedupe_key="once")
    assert api.create(name, {"n": 2}, dedupe="forever", dedupe_key="once").data["id"] == for_ever


def test_many_tasks_are_created_all_or_none(api: OriginalClient, name: str) -> None:
    tasks: list[dict[str, Any]] = [{"type": name, "params": {"n": number}} for number in range(5)]
    for wrong in ({"type": "none", "params": {}}, {"type": name, "params": {"a": "\0"}}):
        assert api.ask("POST", "/tasks/bulk", {"tasks": [*tasks, wrong]}).code in (400, 404)
    assert api.ask("GET", "/tasks", type=name).data["count"] == 0
    made = api.ask("POST", "/tasks/bulk", {"tasks": [*tasks, tasks[0]]})
    assert made.code == 201
    assert (made.data["count"], made.data["created"]) == (6, 5)
    assert made.data["tasks"][5] == made.data["tasks"][0] | {"deduplicated": True}


def test_pages_by_cursor_have_every_task_once(api: OriginalClient, name: str) -> None:
    made = [api.create(name, {"n": number}).data["id"] for number in range(7)]
    seen, cursor = list[str](), dict[str, Any]()
    while True:
        page = api.ask("GET", "/tasks", type=name, limit=3, **cursor).data
        seen += [task["id"] for task in page["tasks"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == made[::-1]


def test_a_claim_can_be_for_several_tasks(api: OriginalClient, name: str) -> None:
    made = [api.create(name, {"n": number}).data["id"] for number in range(3)]
    got = claim(api, name, limit=10).data
    assert [task["id"] for task in got["tasks"]] == made
    assert (got["count"], got["items"]) == (3, got["tasks"])
    assert claim(api, name, limit=10).error == "No available tasks"


def test_a_claim_waits_for_a_task(api: OriginalClient, name: str) -> None:
    got = list[Answer]()
    waiting = threading.Thread(target=lambda: got.append(claim(api, name, wait=10)))
    waiting.start()
    began = time.monotonic()
    task = api.create(name, {}).data["id"]
    waiting.join(9)
    assert got[0].data["id"] == task
    assert time.monotonic() - began < 5
    began = time.monotonic()
    assert claim(api, name, wait=0.3).code == 404
    assert 0.2 < time.monotonic() - began < 5


def test_a_claim_can_be_repeated_under_its_key(site: Site, api: OriginalClient, name: str) -> None:
    for number in range(2):
        api.create(name, {"n": number})
    headers, body = {"Idempotency-Key": uuid4().hex}, {"worker_id": "w", "types": [name]}
    first, again = (site.http.post("/api/tasks/claim", json=body, headers=headers).json()["data"] for _ in range(2))
    assert (first["id"], first["claim_token"]) == (again["id"], again["claim_token"])
    other = site.http.post("/api/tasks/claim", json=body | {"worker_id": "v"}, headers=headers)
    assert other.status_code == 422
    assert claim(api, name).data["id"] != first["id"]


def test_no_task_is_claimed_twice(site: Site, name: str) -> None:
    tasks = [{"type": name, "params": {"n": number}} for number in range(60)]
    site.http.post("/api/tasks/bulk", json={"tasks": tasks})

    def work(number: int) -> list[str]:
        mine = list[str]()
        body = {"worker_id": f"w{number}", "types": [name], "limit": 3}
        while (answer := site.http.post("/api/tasks/claim", json=body)).status_code == 200:
            mine += [task["id"] for task in answer.json()["data"]["tasks"]]
        return mine

    with ThreadPoolExecutor(8) as threads:
        claimed = [task for part in threads.map(work, range(8)) for task in part]
    assert len(claimed) == len(set(claimed)) == 60


def test_a_report_under_an_old_token_is_refused(api: OriginalClient, name: str) -> None:
    task = api.create(name, {}).data["id"]
    old = claim(api, name).data["claim_token"]
    assert api.ask("POST", f"/tasks/{task}/release", {"worker_id": "w"}).data["status"] == "pending"
    new = claim(api, name).data
    assert (new["id"], new["attempts"]) == (task, 1)
    late = api.complete(task, "w", True, claim_token=old)
    assert (late.code, late.error) == (409, "The claim is over")
    assert api.progress(task, "w", 5, claim_token=old).code == 409
    assert api.complete(task, "w", True, claim_token=new["claim_token"]).data["status"] == "completed"


def test_a_report_can_be_repeated(api: OriginalClient, name: str) -> None:
    for success, status in ((True, "completed"), (False, "failed")):
        task = api.create(name, {"success": success}, max_attempts=1).data["id"]
        token = claim(api, name).data["claim_token"]
        for _ in range(3):
            assert api.complete(task, "w", success, claim_token=token).data["status"] == status


def test_signs_of_life_extend_the_claim(api: OriginalClient, name: str) -> None:
    task = api.create(name, {}).data["id"]
    until = claim(api, name, claim_timeout=60).data["claim_expires_at"]
    for sign in ("progress", "heartbeat"):
        # Moments are shown in milliseconds, and a request may take less than one.
        signs = (api.ask("POST", f"/tasks/{task}/{sign}", {"worker_id": "w", "progress": 5}).data for _ in range(50))
        later = next(one for one in signs if one["claim_expires_at"] > until)
        assert later["cancel_requested"] is False
        until = later["claim_expires_at"]


def test_a_worker_extends_all_its_claims_at_once(api: OriginalClient, name: str) -> None:
    api.ask("POST", "/workers/register", {"worker_id": "w"})
    task = api.create(name, {}).data["id"]
    before = claim(api, name).data["claim_expires_at"]
    held = [{"id": task}, {"id": str(uuid4())}, {"id": "none"}]
    found = api.ask("POST", "/workers/w/heartbeat", {"tasks": held}).data
    assert found["tasks"][0]["claim_expires_at"] >= before
    assert ["error" in one for one in found["tasks"]] == [False, True, True]


def test_an_error_says_whether_another_attempt_helps(api: OriginalClient, name: str) -> None:
    def failed(**said: Any) -> str:
        task = api.create(name, {"n": uuid4().hex}).data["id"]
        claim(api, name)
        status = api.ask("POST", f"/tasks/{task}/fail", {"worker_id": "w", "error": "no", **said}).data["status"]
        api.ask("POST", f"/tasks/{task}/cancel")
        return status

    assert failed() == failed(retryable=True) == failed(retry_after=60) == "pending (retry)"
    assert failed(retryable=False) == failed(error_type="validation") == "failed"


def test_reports_for_many_tasks_are_each_accepted_or_refused(api: OriginalClient, name: str) -> None:
    made = [api.create(name, {"n": number}).data["id"] for number in range(2)]
    claim(api, name, limit=2)
    outcomes = [{"id": made[0], "success": True}, {"id": made[1], "success": False, "retryable": False}]
    outcomes.append({"id": str(uuid4()), "success": True})
    found = api.ask("POST", "/tasks/complete", {"worker_id": "w", "outcomes": outcomes})
    assert found.code == 200
    assert [one.get("status") for one in found.data["tasks"]] == ["completed", "failed", None]
    assert (found.data["tasks"][2]["code"], found.data["tasks"][2]["error"]) == (404, "Task not found")


def test_cancel_retry_and_delete_one_task(api: OriginalClient, name: str) -> None:
    task = api.create(name, {}).data["id"]
    assert api.ask("DELETE", f"/tasks/{task}").code == api.ask("POST", f"/tasks/{task}/retry").code == 409
    assert api.ask("POST", f"/tasks/{task}/cancel", {"reason": "no need"}).data["status"] == "failed"
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["state"], read["reason"]) == ("cancelled", "no need")
    assert api.ask("POST", f"/tasks/{task}/retry").data["status"] == "pending"
    claim(api, name)
    assert api.ask("POST", f"/tasks/{task}/cancel").data["cancel_requested"] is True
    assert api.progress(task, "w", 5).data["cancel_requested"] is True
    assert api.complete(task, "w", False, error="stopped").data["status"] == "failed"
    assert api.ask("GET", f"/tasks/{task}").data["state"] == "cancelled"
    assert api.ask("POST", f"/tasks/{task}/cancel").code in (200, 409)
    assert api.ask("DELETE", f"/tasks/{task}").code == 200
    assert api.ask("GET", f"/tasks/{task}").code == 404


def test_a_filter_selects_many_tasks(api: OriginalClient, name: str) -> None:
    for number in range(4):
        api.create(name, {"n": number}, tags=["odd" if number % 2 else "even"])
    for act, more in (("cancel", ""), ("retry", "state:cancelled"), ("cancel", ""), ("delete", "")):
        found = api.ask("POST", f"/tasks/{act}", {"filter": f"task:{name} tag:odd {more}"})
        assert (found.data["matched"], found.data["changed"]) == (2, 2), act
    left = api.ask("GET", "/tasks", filter=f"task:{name}").data["tasks"]
    assert [task["tags"] for task in left] == [["even"], ["even"]]


def test_how_many_workers_a_type_wants(api: OriginalClient, name: str) -> None:
    for number in range(25):
        api.create(name, {"n": number})
    claim(api, name, limit=5)
    found = api.ask("GET", f"/task-types/{name}/scaling", tasks_per_worker=10, max_workers=20).data
    assert (found["wanted_workers"], found["pending"], found["running"]) == (3, 20, 5)
    assert api.ask("GET", f"/task-types/{name}/scaling", max_workers=2).data["wanted_workers"] == 2


def test_why_a_task_waits(api: OriginalClient, name: str) -> None:
    task = api.create(name, {}, delay=3600).data["id"]
    assert api.ask("GET", f"/tasks/{task}").data["state"] == "scheduled"
    found = api.ask("GET", f"/tasks/{task}/why").data
    assert found["id"] == task
    assert found["why"]
