"""The HTTP API of Pitboss, called as curl would."""

from collections.abc import Iterable, Mapping
from typing import Any

import httpx

Json = dict[str, Any]


class TaskManager:
    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, headers={"X-API-Key": key}, timeout=10)

    def call(self, method: str, path: str, body: object = None) -> Json:
        """The `data` of the answer. An error of the API is an error here."""
        response = self._http.request(method, path, json=body)
        if not response.is_success:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
        return dict(response.json()["data"])

    def refusal(self, path: str, body: object) -> httpx.Response:
        """The answer to a request that should be refused."""
        return self._http.post(path, json=body)

    def register(self, types: Mapping[str, Mapping[str, Any]]) -> None:
        for name, schema in types.items():
            self.call("POST", "/task-types/register", {"name": name, "version": "1.0.0", "param_schema": schema})

    def create(self, tasks: Iterable[Json]) -> list[str]:
        return [self.call("POST", "/tasks", task)["id"] for task in tasks]

    def create_together(self, tasks: Iterable[Json]) -> list[str]:
        return [task["id"] for task in self.call("POST", "/tasks/bulk", {"tasks": list(tasks)})["tasks"]]

    def tasks(self) -> list[Json]:
        return list(self.call("GET", "/tasks?limit=1000")["tasks"])
