"""A client of the original API, written from its description alone, on nothing but the standard library."""

import json
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import ProxyHandler, Request, build_opener

_open = build_opener(ProxyHandler({})).open


class Answer(NamedTuple):
    code: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def data(self) -> dict[str, Any]:
        assert self.body["success"] is True, self.body
        return self.body["data"]

    @property
    def error(self) -> str:
        assert self.body["success"] is False, self.body
        return self.body["error"]


class OriginalClient:
    """`base` is the address of the server with or without the prefix."""

    def __init__(self, base: str, key: str | None = None) -> None:
        self._base = base
        self._headers = {} if key is None else {"X-API-Key": key}

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Answer:
        url = f"{self._base}{path}{'?' + urlencode(query) if query else ''}"
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if data is None else {"Content-Type": "application/json"})
        try:
            with _open(Request(url, data, headers, method=method), timeout=10) as response:
                return _answer(response)
        except HTTPError as error:
            with error:
                return _answer(error)

    def register(self, name: str, schema: object = None, **more: object) -> Answer:
        schema = {"type": "object"} if schema is None else schema
        return self.ask("POST", "/task-types/register", {"name": name, "version": "1.0", "param_schema": schema} | more)

    def create(self, kind: str, params: object, **more: object) -> Answer:
        return self.ask("POST", "/tasks", {"type": kind, "params": params} | more)

    def claim(self, worker: str, type_id: object, **more: object) -> Answer:
        return self.ask("POST", "/tasks/claim", {"worker_id": worker, "task_type_id": type_id} | more)

    def progress(self, task: object, worker: str, percent: object, **more: object) -> Answer:
        return self.ask("POST", f"/tasks/{task}/progress", {"worker_id": worker, "progress": percent} | more)

    def complete(self, task: object, worker: str, success: object, **more: object) -> Answer:
        return self.ask("POST", f"/tasks/{task}/complete", {"worker_id": worker, "success": success} | more)


class ExampleWorker:
    """The example worker that came with the original: it joins its addresses so that the prefix is lost, sends no key,
    and a field that the server does not know."""

    def __init__(self, api_url: str, worker_id: str) -> None:
        self._api_url, self._worker = api_url, worker_id

    def check_health(self) -> bool:
        return self._ask("GET", "/health").code == 200

    def type_ids(self) -> dict[str, int]:
        listed = self._ask("GET", "/task-types").data["task_types"]
        return {one["name"]: one["id"] for one in listed}

    def register(self, name: str) -> int:
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        answer = self._ask("POST", "/task-types/register", {"name": name, "version": "1.0.0", "param_schema": schema})
        assert answer.code in (200, 201)
        return answer.data["id"]

    def create(self, kind: str, params: object) -> str:
        answer = self._ask("POST", "/tasks", {"type": kind, "params": params, "parent_task_id": 7})
        assert answer.code in (200, 201)
        return answer.data["id"]

    def run_once(self, type_id: int) -> str | None:
        claimed = self._ask(
            "POST",
            "/tasks/claim",
            {"worker_id": self._worker, "task_type_id": type_id, "sort_by": "priority", "sort_order": "DESC"},
        )
        if claimed.code == 404:
            return None
        task = claimed.data
        half = {"worker_id": self._worker, "progress": 50, "message": "half"}
        assert self._ask("POST", f"/tasks/{task['id']}/progress", half).code == 200
        done = {"worker_id": self._worker, "success": True, "result": {"echo": task["params"]["message"]}}
        return self._ask("POST", f"/tasks/{task['id']}/complete", done).data["status"]

    def _ask(self, method: str, path: str, body: object = None) -> Answer:
        joined = urljoin(self._api_url, path)
        return OriginalClient(joined.removesuffix(path)).ask(method, path, body)


def _answer(response: Any) -> Answer:
    return Answer(response.status, json.loads(response.read()), {k.lower(): v for k, v in response.headers.items()})
