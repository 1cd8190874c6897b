"""While the store cannot be reached, every route says so in its envelope, and when to try again."""

import inspect
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from pitboss.http.access import CONTRACT, ROLES
from pitboss.model.errors import StoreUnavailable
from tests.http.site import Site

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/task-types/register"): {"name": "new", "version": "1", "param_schema": {"type": "object"}},
    ("POST", "/tasks"): {"type": "echo", "params": {}},
    ("POST", "/tasks/bulk"): {"tasks": [{"type": "echo", "params": {}}]},
    ("POST", "/tasks/claim"): {"worker_id": "w"},
    ("POST", "/tasks/complete"): {"worker_id": "w", "outcomes": [{"id": str(uuid4()), "success": True}]},
    ("POST", "/tasks/{task_id}/progress"): {"worker_id": "w", "progress": 5},
    ("POST", "/tasks/{task_id}/heartbeat"): {"worker_id": "w"},
    ("POST", "/tasks/{task_id}/complete"): {"worker_id": "w", "success": True},
    ("POST", "/tasks/{task_id}/fail"): {"worker_id": "w", "error": "no"},
    ("POST", "/tasks/{task_id}/release"): {"worker_id": "w"},
    ("POST", "/tasks/cancel"): {"filter": "state:pending"},
    ("POST", "/tasks/retry"): {"filter": "state:failed"},
    ("POST", "/tasks/delete"): {"filter": "state:failed"},
    ("POST", "/tasks/change"): {"filter": "state:pending", "priority": 5},
    ("PATCH", "/tasks/{task_id}"): {"priority": 5},
    ("POST", "/operations/{operation_id}/rate"): {"rate": "1/s"},
    ("POST", "/alerts/silences"): {"rule": "disk", "for": 60},
    ("POST", "/workers/register"): {"worker_id": "new"},
    ("PUT", "/workers/{worker_id}/status"): {"status": "idle"},
    ("PATCH", "/queues/{name}"): {"capacity": 5},
    ("POST", "/worker-pools/{name}/scale"): {"size": 1},
    ("POST", "/partitions/{name}/move"): {"key": "CA", "slot": "0"},
    ("POST", "/partitions/{name}/pin"): {"key": "CA", "slot": "0"},
    ("POST", "/partitions/{name}/unpin"): {"key": "CA"},
    ("PATCH", "/resource-pools/{name}"): {"limits": {}, "reset": True},
    ("POST", "/resource-pools/{name}/members"): {"members": [{"name": "a"}]},
    ("POST", "/batches"): {"type": "echo", "items": [{}]},
    ("PUT", "/lanes/{name}"): {"max_running": 2},
    ("POST", "/schedules"): {"name": "new", "type": "echo", "every": 60},
    ("PATCH", "/schedules/{name}"): {"every": 60},
    ("POST", "/events"): {"name": "user.signup"},
    ("POST", "/views"): {"name": "mine", "filter": "state:failed"},
    ("POST", "/keys"): {"name": "new", "roles": ["viewer"]},
}
PLACES = {"act": "pause", "session": "1", "worker_id": "w"} | {
    name: str(uuid4()) for name in ("task_id", "batch_id", "event_id", "operation_id", "entry_id")
}
# These are answered from what the server knows; task types are known for a second.
KNOWN = {("GET", "/livez"), ("GET", "/task-types"), ("GET", "/task-types/{name}")}


class Fragile:
    """A store that can be away: then every call of it fails."""

    def __init__(self, store: Any, parent: "Fragile | None" = None) -> None:
        self._store, self._parent, self._away = store, parent, False

    @property
    def away(self) -> bool:
        return self._away if self._parent is None else self._parent.away

    @away.setter
    def away(self, value: bool) -> None:
        self._away = value

    def audited(self, entry: Any) -> "Fragile":
        return Fragile(self._store.audited(entry), self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            if self.away:
                raise StoreUnavailable("the store does not answer", why="it was taken away", fix="wait")
            return await found(*arguments, **named)

        return call


class FragileSite(Site):
    headers: dict[str, str]

    def __init__(self) -> None:
        super().__init__(wrap=self._fragile)

    def _fragile(self, store: Any) -> Fragile:
        self.fragile = Fragile(store)
        return self.fragile


@pytest.fixture(scope="module")
def site() -> Iterator[FragileSite]:
    with FragileSite() as running:
        new = {"name": "echo", "version": "1", "param_schema": {"type": "object"}}
        assert running.http.post("/api/task-types/register", json=new).status_code == 201
        running.headers = {"X-API-Key": running.key("admin")}
        yield running


def ask(site: FragileSite, method: str, path: str) -> httpx.Response:
    url = re.sub(r"{(\w+)}", lambda found: PLACES.get(found[1], "echo"), path)
    body = BODIES.get((method, path.removeprefix("/api")))
    url += "?name=mine" if (method, path) == ("DELETE", "/api/views") else ""
    return site.http.request(method, url, json=body, headers=site.headers)


def test_every_route_says_that_the_store_is_away(site: FragileSite) -> None:
    served = [(method, f"/api{path}") for method, path in ROLES] + list(CONTRACT)
    site.fragile.away = True
    wrong = []
    for method, path in served:
        answer = ask(site, method, path)
        if answer.status_code == 200 and (method, path.removeprefix("/api")) in KNOWN:
            continue
        body = answer.json()
        told = body["success"] is False and body["error"] and int(answer.headers.get("retry-after", 0)) > 0
        if answer.status_code != 503 or not told:
            wrong.append(f"{method} {path}: {answer.status_code} {answer.text:.150}")
    site.fragile.away = False
    assert not wrong, "\n".join(wrong)
    assert len(served) >= 100


def test_it_lives_but_is_not_ready(site: FragileSite) -> None:
    site.fragile.away = True
    codes = [site.http.get(path).status_code for path in ("/livez", "/readyz", "/health")]
    site.fragile.away = False
    assert codes == [200, 503, 503]
    assert [site.http.get(path).status_code for path in ("/livez", "/readyz", "/health")] == [200, 200, 200]


def test_it_serves_on_when_the_store_is_back(site: FragileSite) -> None:
    site.fragile.away = True
    assert ask(site, "POST", "/api/tasks").status_code == ask(site, "POST", "/api/tasks/claim").status_code == 503
    site.fragile.away = False
    created = ask(site, "POST", "/api/tasks")
    assert created.status_code == 201
    assert ask(site, "POST", "/api/tasks/claim").json()["id"] == created.json()["id"]


def test_a_wrong_key_is_refused_while_the_store_is_away(site: FragileSite) -> None:
    site.fragile.away = True
    codes = [site.http.get("/api/status", headers={"X-API-Key": key}).status_code for key in ("", "pbk_a_b")]
    site.fragile.away = False
    assert codes == [401, 401]


def test_a_fault_of_the_server_is_told_without_its_details(site: FragileSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("password=secret")

    monkeypatch.setattr(site.server.types, "find", broken)
    monkeypatch.setattr(site.server.workers, "all", broken)
    for method, path in (("POST", "/api/tasks"), ("GET", "/api/workers")):
        answer = ask(site, method, path)
        assert answer.status_code == 500
        assert answer.json()["error"] == "A fault of Pitboss itself"
        assert "secret" not in answer.text
