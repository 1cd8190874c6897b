"""The routes of the API, written once for the blocking client and the one to be awaited."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

Result = TypeVar("Result")


class Answer(dict[str, Any]):
    """The `data` of an answer, its status, and the server's time in seconds since 1970."""

    status: int = 200
    timestamp: float | None = None


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    key: str | None = None  # the Idempotency-Key: the same for all repeats of this call
    wait: float = 0  # how long the server may take before it answers
    timeout: float | None = None
    patience: float | None = None  # for how long it is repeated
    none_is_404: bool = False
    give_up: Callable[[], bool] = field(default=lambda: False)


class Routes(Generic[Result]):
    """The routes of the API, for both clients: a call returns an Answer, or an awaitable of one."""

    def send(self, call: Call) -> Result:
        raise NotImplementedError

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Result:
        """Any route, such as `request("GET", "/tasks/ID/why")`. A creation gets an Idempotency-Key."""
        creates = method == "POST" and path in ("/tasks", "/tasks/bulk", "/tasks/claim")
        return self.send(Call(method, path, body, key=uuid.uuid4().hex if creates else None))

    def health(self) -> Result:
        return self.send(Call("GET", "/health", timeout=5, patience=0))

    def check_key(self) -> Result:
        """A route that every key may use, and none without one."""
        return self.send(Call("GET", "/task-types", timeout=5, patience=0))

    def create_task(
        self, task_type: str, params: Mapping[str, Any], *, idempotency_key: str | None = None, **options: Any
    ) -> Result:
        """Create a task. Options: priority, delay, run_at, max_attempts, tags, dedupe_key …"""
        body = {"type": task_type, "params": params, **options}
        return self.send(Call("POST", "/tasks", body, key=idempotency_key or uuid.uuid4().hex))

    def create_tasks(self, tasks: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None) -> Result:
        """Create up to 1,000 tasks, all or none. Each is a mapping with `type` and `params`."""
        return self.send(Call("POST", "/tasks/bulk", {"tasks": list(tasks)}, key=idempotency_key or uuid.uuid4().hex))

    def get_task(self, task_id: object) -> Result:
        return self.send(Call("GET", f"/tasks/{_segment(task_id)}"))

    def register_type(self, name: str, **declaration: Any) -> Result:
        return self.send(Call("POST", "/task-types/register", {"name": name, **declaration}))

    def register_worker(self, worker_id: str, **about: Any) -> Result:
        return self.send(Call("POST", "/workers/register", {"worker_id": worker_id, **about}, patience=0))

    def set_worker_status(self, worker_id: str, status: str) -> Result:
        return self.send(
            Call("PUT", f"/workers/{_segment(worker_id)}/status", {"status": status}, timeout=2, patience=0)
        )

    def renew(self, worker_id: str, tasks: list[dict[str, Any]], timeout: float) -> Result:
        """Extend the claims of these tasks, each a mapping with `id` and `claim_token`, in one call."""
        path = f"/workers/{_segment(worker_id)}/heartbeat"
        return self.send(Call("POST", path, {"tasks": tasks}, timeout=timeout, patience=0))

    def claim(
        self, worker_id: str, *, wait: float = 0, give_up: Callable[[], bool] = lambda: False, **selection: Any
    ) -> Result:
        """Claim a task, or several with `limit`. The answer is empty if there are none."""
        body = {"worker_id": worker_id, **({"wait": wait} if wait else {}), **selection}
        key = uuid.uuid4().hex
        return self.send(Call("POST", "/tasks/claim", body, key=key, wait=wait, none_is_404=True, give_up=give_up))

    def report(
        self, task_id: object, what: str, body: Mapping[str, Any], *, timeout: float | None = None,
        patience: float | None = None,
    ) -> Result:  # fmt: skip
        """Report on a claim: complete, fail, progress, heartbeat or release. `body` names worker_id and claim_token."""
        return self.send(Call("POST", f"/tasks/{_segment(task_id)}/{what}", body, timeout=timeout, patience=patience))


def _segment(value: object) -> str:
    return quote(str(value), safe="")
