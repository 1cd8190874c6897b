"""A client of the original API finds what it expects: codes, sentences, fields, with the prefix and without it."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.http.original_client import ExampleWorker, OriginalClient
from tests.http.site import Site

NO_STORE = "no-store, no-cache, must-revalidate, max-age=0"
SCHEMA = {
    "type": "object",
    "properties": {"url": {"type": "string", "minLength": 3}, "n": {"type": "integer"}},
    "required": ["url"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


@pytest.fixture(params=["/api", ""], ids=["with-prefix", "without-prefix"])
def api(site: Site, request: pytest.FixtureRequest) -> OriginalClient:
    return OriginalClient(site.url + request.param)


@pytest.fixture
def name() -> str:
    return f"video.{uuid4().hex[:10]}"


def test_health(api: OriginalClient) -> None:
    answer = api.ask("GET", "/health")
    assert answer.code == 200
    assert answer.data["status"] == "healthy"
    assert answer.data["database"] == "connected"
    assert isinstance(answer.data["timestamp"], int)
    assert answer.headers["cache-control"] == NO_STORE
    assert answer.headers["content-type"] == "application/json"


def test_the_envelopes(api: OriginalClient) -> None:
    good, bad = api.ask("GET", "/task-types").body, api.ask("GET", "/task-types/none-such")
    assert good.keys() == {"success", "message", "data", "timestamp"}
    assert isinstance(good["timestamp"], int)
    assert bad.code == 404
    assert bad.body.keys() - {"details"} == {"success", "error", "timestamp"}
    assert bad.headers["cache-control"] == NO_STORE


def test_registering_a_type_and_registering_it_again(api: OriginalClient, name: str) -> None:
    first, second = api.register(name, SCHEMA), api.register(name, SCHEMA, version="2.0")
    assert (first.code, second.code) == (201, 200)
    assert first.body["message"] == "Task type registered successfully"
    assert first.data == {"id": first.data["id"], "name": name, "version": "1.0", "created": True}
    assert isinstance(first.data["id"], int)
    assert second.data == {"id": first.data["id"], "name": name, "version": "2.0", "updated": True}


def test_a_schema_may_be_json_as_text(api: OriginalClient, name: str) -> None:
    assert api.register(name, '{"type": "object", "required": ["x"]}').code == 201
    assert api.ask("GET", f"/task-types/{name}").data["param_schema"] == {"type": "object", "required": ["x"]}


@pytest.mark.parametrize("missing", ["name", "version", "param_schema"])
def test_registering_without_a_field(api: OriginalClient, missing: str) -> None:
    body = {"name": "a", "version": "1", "param_schema": {"type": "object"}}
    del body[missing]
    answer = api.ask("POST", "/task-types/register", body)
    assert (answer.code, answer.error) == (400, f"Missing required field: {missing}")


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{broken", "Invalid JSON schema format"),
        ("[1]", "Invalid JSON schema format"),
        ({"type": "nonsense"}, "Invalid JSON schema format"),
        ({"type": "object", "pattern": "("}, "Invalid JSON schema format"),
        ({}, 'JSON schema must have a "type" property'),
        ({"properties": {}}, 'JSON schema must have a "type" property'),
        ("{}", 'JSON schema must have a "type" property'),
    ],
)
def test_a_schema_that_cannot_be_used(api: OriginalClient, name: str, schema: object, error: str) -> None:
    answer = api.register(name, schema)
    assert (answer.code, answer.error) == (400, error)
    assert api.ask("GET", f"/task-types/{name}").code == 404


def test_reading_one_type_and_all(api: OriginalClient, name: str) -> None:
    number = api.register(name, SCHEMA).data["id"]
    one = api.ask("GET", f"/task-types/{name}")
    assert one.code == 200
    assert {"id", "name", "version", "param_schema", "is_active", "created_at", "updated_at"} <= one.data.keys()
    assert one.data["id"] == number
    assert one.data["param_schema"] == SCHEMA
    assert one.data["is_active"] is True
    listed = api.ask("GET", "/task-types").data
    assert listed["task_types"] == listed["items"]
    assert listed["count"] == len(listed["items"])
    assert one.data in listed["task_types"]


def test_an_inactive_type_takes_no_tasks_until_it_is_registered_again(
    api: OriginalClient, site: Site, name: str
) -> None:
    api.register(name)
    assert site.http.delete(f"/api/task-types/{name}").status_code == 200
    assert api.ask("GET", f"/task-types/{name}").data["is_active"] is False
    active = api.ask("GET", "/task-types", active_only="true").data["task_types"]
    assert name not in [one["name"] for one in active]
    refused = api.create(name, {})
    assert (refused.code, refused.error) == (400, "Task type is not active")
    assert api.register(name).data["updated"] is True
    assert api.create(name, {}).code == 201


def test_creating_a_task_and_the_same_again(api: OriginalClient, name: str) -> None:
    api.register(name, SCHEMA)
    first, second = api.create(name, {"url": "a.b", "n": 1}, priority=4), api.create(name, {"n": 1, "url": "a.b"})
    assert (first.code, second.code) == (201, 200)
    assert first.data.items() >= {"type": name, "status": "pending", "priority": 4}.items()
    assert re.fullmatch(r"[0-9a-f]{64}", first.data["dedupe_key"])
    assert second.body["message"] == "Task already exists (deduplicated)"
    same = {"id": first.data["id"], "status": "pending", "priority": 4, "deduplicated": True}
    assert second.data.items() >= same.items()


def test_the_answer_has_copies_at_its_top_level(api: OriginalClient, name: str) -> None:
    number = api.register(name).body["id"]
    created = api.create(name, {"a": 1}).body
    assert (created["id"], created["type"], created["status"]) == (created["data"]["id"], name, "pending")
    claimed = api.claim("w", number).body
    assert (claimed["id"], claimed["type"], claimed["params"]) == (created["id"], name, {"a": 1})
    assert api.complete(created["id"], "w", True).body["status"] == "completed"
    assert api.ask("GET", f"/tasks/{created['id']}").body["status"] == "completed"


@pytest.mark.parametrize("empty", [{}, []])
def test_empty_params_are_an_empty_object(api: OriginalClient, name: str, empty: object) -> None:
    api.register(name)
    created = api.create(name, empty)
    assert created.code == 201
    assert api.ask("GET", f"/tasks/{created.data['id']}").data["params"] == {}


def test_creating_a_task_that_cannot_be_one(api: OriginalClient, name: str) -> None:
    api.register(name, SCHEMA)
    unknown = api.create(f"{name}x", {})
    assert (unknown.code, unknown.error) == (404, "Task type not found")
    for params in ({}, {"url": 5}, {"url": "ab"}, {"url": "abc", "more": 1}, {"url": "abc", "n": 1.5}):
        wrong = api.create(name, params)
        assert (wrong.code, wrong.error) == (400, "Parameter validation failed"), params
        assert wrong.body["details"]
    for body, missing in (({"params": {}}, "type"), ({"type": name}, "params")):
        answer = api.ask("POST", "/tasks", body)
        assert (answer.code, answer.error) == (400, f"Missing required field: {missing}")
    assert api.create(name, "text").code == 400
    assert api.ask("GET", "/tasks", type=name).data["count"] == 0


def test_claiming(api: OriginalClient, name: str) -> None:
    number = api.register(name).data["id"]
    none = api.claim("w1", number)
    assert (none.code, none.error) == (404, "No available tasks")
    task = api.create(name, {"a": [1, {"b": None}]}, priority=7).data["id"]
    claimed = api.claim("w1", number)
    assert claimed.code == 200
    expected = {"id": task, "type": name, "params": {"a": [1, {"b": None}]}, "attempts": 1, "priority": 7}
    assert claimed.data.items() >= expected.items()
    assert api.claim("w2", number).code == 404
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["status"], read["claimed_by"], read["attempts"]) == ("claimed", "w1", 1)
    assert read["claimed_at"] is not None


def test_claims_that_cannot_be(api: OriginalClient, name: str) -> None:
    number = api.register(name).data["id"]
    for wrong in (0, -1, "1", 1.5, True, [1]):
        answer = api.claim("w", wrong)
        assert (answer.code, answer.error) == (400, "task_type_id must be a positive integer"), wrong
    sort = api.claim("w", number, sort_by="params; DROP TABLE tasks")
    allowed = "created_at, priority, id, attempts"
    assert (sort.code, sort.error) == (400, f"Invalid sort_by field. Allowed values: {allowed}")
    order = api.claim("w", number, sort_order="SIDEWAYS")
    assert order.code == 400
    assert order.error.startswith("Invalid sort_order")
    nameless = api.ask("POST", "/tasks/claim", {"task_type_id": number})
    assert (nameless.code, nameless.error) == (400, "Missing required field: worker_id")
    assert api.claim("", number).code == 400
    assert api.claim("w", 2**40).code == 404


def test_the_order_of_claims(api: OriginalClient, name: str) -> None:
    number = api.register(name).data["id"]
    ids = [api.create(name, {"n": n}, priority=priority).data["id"] for n, priority in enumerate((5, 1, 9))]
    expected = {
        ("priority", "ASC"): [1, 0, 2],
        ("priority", "DESC"): [2, 0, 1],
        ("created_at", "ASC"): [0, 1, 2],
        ("created_at", "DESC"): [2, 1, 0],
        ("id", "DESC"): [2, 1, 0],
    }
    for (by, order), places in expected.items():
        got = [api.claim("w", number, sort_by=by, sort_order=order).data["id"] for _ in ids]
        assert got == [ids[place] for place in places], (by, order)
        for task in ids:
            assert api.ask("POST", f"/tasks/{task}/fail", {"worker_id": "w", "error": "again"}).code == 200
        # Failed attempts wait before the next one; new tasks do not.
        number = api.register(f"{name}.{by}.{order}").data["id"]
        ids = [api.create(f"{name}.{by}.{order}", {"n": n}, priority=p).data["id"] for n, p in enumerate((5, 1, 9))]


def test_a_pattern_selects_types_as_like_does(api: OriginalClient, name: str) -> None:
    api.register(f"{name}.one"), api.register(f"{name}.two")
    task = api.create(f"{name}.two", {}).data["id"]

    def claim(pattern: str) -> int:
        return api.ask("POST", "/tasks/claim", {"worker_id": "w", "type_pattern": pattern}).code

    assert claim(f"{name}.one%") == 404
    assert claim(f"{name}.t_") == 404
    assert claim(f"{name}.t_o") == 200
    assert api.ask("GET", f"/tasks/{task}").data["status"] == "claimed"


def test_progress(api: OriginalClient, name: str) -> None:
    number = api.register(name).data["id"]
    task = api.create(name, {}).data["id"]
    early = api.progress(task, "w", 10)
    assert (early.code, early.error) == (400, "Task is not in claimed state")
    api.claim("w", number)
    assert api.progress(task, "w", 40, message="reading").data.items() >= {"id": task, "progress": 40}.items()
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["progress"], read["message"]) == (40, "reading")
    for wrong in (-1, 101, "half", None):
        answer = api.progress(task, "w", wrong)
        assert (answer.code, answer.error) == (400, "Progress must be between 0 and 100"), wrong
    other = api.progress(task, "x", 50)
    assert (other.code, other.error) == (403, "Task is claimed by another worker")
    assert (api.progress(uuid4(), "w", 50).code, api.progress(123, "w", 50).code) == (404, 404)
    missing = api.ask("POST", f"/tasks/{task}/progress", {"progress": 5})
    assert (missing.code, missing.error) == (400, "Missing required field: worker_id")


def test_completing(api: OriginalClient, name: str) -> None:
    number = api.register(name).data["id"]
    task = api.create(name, {}).data["id"]
    assert api.complete(task, "w", True).error == "Task is not in claimed state"
    api.claim("w", number)
    other = api.complete(task, "x", True)
    assert (other.code, other.error) == (403, "Task is claimed by another worker")
    done = api.complete(task, "w", True, result={"views": 3})
    assert done.data.items() >= {"id": task, "status": "completed"}.items()
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["status"], read["result"], read["error_message"]) == ("completed", {"views": 3}, None)
    assert read["completed_at"] is not None
    assert api.complete(uuid4(), "w", True).code == 404
    assert api.ask("POST", f"/tasks/{task}/complete", {"worker_id": "w"}).error == "Missing required field: success"


@pytest.mark.parametrize("result", [{}, [], 0, False, "", None, 2**60, "ü\n"])
def test_a_result_is_kept_as_it_is(api: OriginalClient, name: str, result: object) -> None:
    number = api.register(name).data["id"]
    task = api.create(name, {}).data["id"]
    api.claim("w", number)
    api.complete(task, "w", True, result=result)
    assert api.ask("GET", f"/tasks/{task}").data["result"] == result


def test_failures_are_tried_again_until_none_is_left(api: OriginalClient, name: str) -> None:
    number = api.register(name, max_attempts=2, backoff=0).data["id"]
    task = api.create(name, {}).data["id"]
    assert api.claim("w", number).data["attempts"] == 1
    assert api.complete(task, "w", False, error="no route").data["status"] == "pending (retry)"
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["status"], read["error_message"], read["progress"]) == ("pending", "no route", 0)
    assert read["completed_at"] is None
    assert api.claim("w", number).data["attempts"] == 2
    assert api.complete(task, "w", False, error="no route").data["status"] == "failed"
    read = api.ask("GET", f"/tasks/{task}").data
    assert (read["status"], read["error_message"], read["attempts"]) == ("failed", "no route", 2)


def test_fail_is_another_name_for_an_unsuccessful_completion(api: OriginalClient, name: str) -> None:
    number = api.register(name, max_attempts=1).data["id"]
    task = api.create(name, {}).data["id"]
    api.claim("w", number)
    failed = api.ask("POST", f"/tasks/{task}/fail", {"worker_id": "w", "error": "boom"})
    assert failed.data.items() >= {"id": task, "status": "failed"}.items()


def test_reading_a_task(api: OriginalClient, name: str) -> None:
    api.register(name)
    task = api.create(name, {"a": 1}).data["id"]
    fields = "id type status params result error_message priority progress attempts claimed_by claimed_at completed_at"
    read = api.ask("GET", f"/tasks/{task}").data
    assert set(f"{fields} created_at".split()) <= read.keys()
    for unknown in (uuid4(), "17", "none"):
        answer = api.ask("GET", f"/tasks/{unknown}")
        assert (answer.code, answer.error) == (404, "Task not found")


def test_listing_tasks(api: OriginalClient, name: str) -> None:
    number = api.register(f"{name}.a").data["id"]
    api.register(f"{name}.b")
    of_a = [api.create(f"{name}.a", {"n": n}).data["id"] for n in range(3)]
    of_b = [api.create(f"{name}.b", {"n": n}).data["id"] for n in range(2)]
    claimed = api.claim("w", number).data["id"]

    def ids(**query: object) -> list[str]:
        found = api.ask("GET", "/tasks", **query).data
        assert found["tasks"] == found["items"]
        assert found["count"] == len(found["tasks"])
        assert (found["limit"], found["offset"]) == (query.get("limit", 50), query.get("offset", 0))
        return [one["id"] for one in found["tasks"]]

    newest = [*reversed(of_a), *[]]
    assert ids(type=f"{name}.a") == newest
    assert ids(type=f"{name}.%") == [*reversed(of_b), *newest]
    assert ids(type=f"{name}._") == [*reversed(of_b), *newest]
    assert ids(type="%")[:5] == [*reversed(of_b), *newest]
    assert ids(type=f"{name}") == ids(type=f"{name}*") == []
    assert ids(type=f"{name}.a", status="claimed") == [claimed]
    assert ids(type=f"{name}.a", status="pending") == [one for one in newest if one != claimed]
    assert ids(type=f"{name}.%", limit=2, offset=1) == [*reversed(of_b), *newest][1:3]
    assert ids(type=f"{name}._", limit=2, offset=3) == newest[1:3]
    assert ids(type=f"{name}.%", offset=9) == []
    assert api.ask("GET", "/tasks", status="sleeping").code == 400
    assert api.ask("GET", "/tasks", limit=0).code == api.ask("GET", "/tasks", offset=-1).code == 400


def test_workers(api: OriginalClient, name: str) -> None:
    worker = f"worker-{name}"
    register = {"worker_id": worker, "name": "Ann", "status": "idle", "metadata": {"host": "h"}}
    assert api.ask("GET", f"/workers/{worker}").code == 404
    assert api.ask("POST", f"/workers/{worker}/heartbeat", {}).code == 404
    assert [api.ask("POST", "/workers/register", register).code for _ in range(2)] == [201, 200]
    read = api.ask("GET", f"/workers/{worker}").data
    assert read.items() >= {"worker_id": worker, "name": "Ann", "status": "idle", "metadata": {"host": "h"}}.items()
    assert api.ask("PUT", f"/workers/{worker}/status", {"status": "offline"}).code == 200
    assert api.ask("GET", f"/workers/{worker}").data["status"] == "offline"
    assert api.ask("PUT", f"/workers/{worker}/status", {"status": "asleep"}).code == 400
    assert api.ask("POST", f"/workers/{worker}/heartbeat", {"status": "active"}).code == 200
    listed = api.ask("GET", "/workers").data
    assert worker in [one["worker_id"] for one in listed["workers"]]
    number = api.register(name, max_attempts=1).data["id"]
    for success in (True, True, False):
        task = api.create(name, {"success": success, "n": uuid4().hex}).data["id"]
        api.claim(worker, number)
        api.complete(task, worker, success)
    api.create(name, {})
    api.claim(worker, number)
    stats = api.ask("GET", f"/workers/{worker}/stats").data
    rate = stats.pop("success_rate")
    counts = {"total_claimed": 4, "total_completed": 2, "total_failed": 1, "currently_claimed": 1}
    assert stats == {"worker_id": worker} | counts
    assert rate == pytest.approx(2 / 3)


def test_an_answer_without_a_key_has_its_own_form() -> None:
    with Site() as site:
        site.key("admin")
        for key in (None, "wrong"):
            answer = OriginalClient(f"{site.url}/api", key).ask("GET", "/tasks")
            assert answer.code == 401
            assert answer.body["error"] == "Unauthorized"
            text = "Invalid or missing API key. Include X-API-Key header with your request."
            assert answer.body["message"] == text
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.body["timestamp"])
            assert answer.body.keys() == {"error", "message", "timestamp"}
            assert answer.headers["cache-control"] == NO_STORE
        assert OriginalClient(site.url).ask("GET", "/health").code == 200


def test_the_example_worker_of_the_original_runs(site: Site, name: str) -> None:
    worker = ExampleWorker(f"{site.url}/api", "example-1")
    assert worker.check_health()
    number = worker.register(name)
    assert worker.type_ids()[name] == number
    assert worker.run_once(number) is None
    task = worker.create(name, {"message": "hello"})
    assert worker.run_once(number) == "completed"
    assert OriginalClient(site.url).ask("GET", f"/tasks/{task}").data["result"] == {"echo": "hello"}


def test_a_slash_at_the_end_changes_nothing(api: OriginalClient, name: str) -> None:
    assert api.register(name).code == 201
    assert api.ask("GET", "/health/").code == 200
    assert api.ask("GET", f"/task-types/{name}/").code == 200
    assert api.ask("POST", "/tasks/", {"type": name, "params": {}}).code == 201
