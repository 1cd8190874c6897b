"""The HTTP API in memory, as docs/reference/http-api.md describes it to workers, with faults on request."""

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMIT = 20.0

NONE = (404, {"success": False, "error": "No available tasks"})


@dataclass
class Request:
    method: str
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class Fault:
    """For the next requests to a path: answer with a status, or cut the connection before or after the work."""

    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: str = ""
    times: int = 1
    body: bytes = b'{"success": false, "error": "fault"}'


class StubAPI:
    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.types: dict[str, dict[str, Any]] = {}
        self.workers: dict[str, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.claim_timeout = 300.0
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}  # by Idempotency-Key
        self.changed = threading.Condition()
        # Keeps the port while the server is away: a socket that does not listen refuses connections.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port: int = self._place.getsockname()[1]
        self._server: _Server | None = None
        self.start()

    # For tests.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), self)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """As a process that is killed: open connections are cut."""
        if self._server:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        self.stop()
        self._place.close()

    def add(self, task_type: str = "echo", **params: Any) -> str:
        task_id = str(uuid.uuid4())
        with self.changed:
            self.tasks[task_id] = {
                "id": task_id, "type": task_type, "params": params, "status": "pending", "attempts": 0, "priority": 0,
                "reports": [], "cancel": False,
            }  # fmt: skip
            self.changed.notify_all()
        return task_id

    def fail(self, path: str, **fault: Any) -> None:
        self.faults.append(Fault(path, **fault))

    def until(self, condition: Callable[[], Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, LIMIT), (
                f"it did not happen; the last requests: {self.paths()[-20:]}"
            )

    def paths(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.requests]

    def count(self, ending: str) -> int:
        return sum(one.path.endswith(ending) for one in self.requests)

    def sent(self, ending: str) -> list[Request]:
        return [one for one in self.requests if one.path.endswith(ending)]

    def give_to_another(self, task_id: str) -> None:
        with self.changed:
            self.tasks[task_id].update(claimed_by="another", claim_token="another")
            self.changed.notify_all()

    def cancel(self, task_id: str) -> None:
        with self.changed:
            self.tasks[task_id]["cancel"] = True

    # The API.

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        key = request.headers.get("idempotency-key")
        with self.changed:
            if key in self.answers:
                return self.answers[key]
            status, data = self._route(request)
            if key and status < 300:
                self.answers[key] = (status, data)
            self.changed.notify_all()
            return status, data

    def _route(self, request: Request) -> tuple[int, dict[str, Any]]:
        path, body = request.path, request.body
        if path == "/health":
            return 200, {"status": "healthy", "database": "connected"}
        if path == "/task-types/register":
            self.types[body["name"]] = body
            return 201, {"id": len(self.types), "name": body["name"], "created": True}
        if path == "/tasks":
            return 201, {"id": self.add(body["type"], **body["params"]), "type": body["type"], "status": "pending"}
        if path == "/tasks/claim":
            return self._claim(body)
        return self._route_of_one(path, body)

    def _route_of_one(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/workers/register":
            self.workers[body["worker_id"]] = body
            return 201, {"worker_id": body["worker_id"]}
        if found := re.fullmatch(r"/workers/([^/]+)/(\w+)", path):
            return self._worker(found[1], found[2], body)
        if (found := re.fullmatch(r"/tasks/([^/]+)", path)) and found[1] in self.tasks:
            return 200, dict(self.tasks[found[1]])
        if found := re.fullmatch(r"/tasks/([^/]+)/(\w+)", path):
            return self._report(found[1], found[2], body)
        return 404, {"success": False, "error": "Not found"}

    def _claim(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.changed.notify_all()
        self.changed.wait_for(lambda: self._free(body) or not self._server, body.get("wait", 0))
        claimed = [self._take(task, body) for task in self._free(body)[: body.get("limit", 1)]]
        if not claimed:
            return NONE
        return 200, {"tasks": claimed, "count": len(claimed)} if "limit" in body else claimed[0]

    def _free(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        pending = [task for task in self.tasks.values() if task["status"] == "pending"]
        if "types" in body:
            return [task for task in pending if task["type"] in body["types"]]
        return [task for task in pending if fnmatch(task["type"], body.get("type_pattern", "%").replace("%", "*"))]

    def _take(self, task: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        limit = body.get("claim_timeout", self.claim_timeout)
        task.update(status="claimed", claimed_by=body["worker_id"], claim_token=uuid.uuid4().hex, limit=limit)
        task["attempts"] += 1
        named = ("id", "type", "params", "attempts", "priority", "claim_token")
        return {**{name: task[name] for name in named}, "claim_expires_at": _moment(limit)}

    def _worker(self, worker_id: str, verb: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if verb == "status":
            self.workers.setdefault(worker_id, {})["status"] = body["status"]
            return 200, {"worker_id": worker_id, "status": body["status"]}
        rows = []
        for one in body["tasks"]:
            status, data = self._report(one["id"], "heartbeat", {"worker_id": worker_id, **one})
            rows.append(data if status == 200 else {"id": one["id"], "error": data["error"]})
        return 200, {"worker_id": worker_id, "tasks": rows}

    def _report(self, task_id: str, verb: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        task = self.tasks.get(task_id)
        if not task:
            return 404, {"success": False, "error": "Task not found"}
        last = {"verb": verb, **body}
        if task["status"] in ("completed", "failed") and task["reports"][-1:] == [last]:
            return 200, {"id": task_id, "status": task["status"]}
        if task["status"] != "claimed":
            return 400, {"success": False, "error": "Task is not in claimed state"}
        if body.get("claim_token", task["claim_token"]) != task["claim_token"]:
            return 409, {"success": False, "error": "The claim is over"}
        if body["worker_id"] != task["claimed_by"]:
            return 403, {"success": False, "error": "Task is claimed by another worker"}
        task["reports"].append(last)
        if verb == "complete":
            task.update(status="completed" if body["success"] else "failed", result=body.get("result"))
        elif verb == "fail":
            task["status"] = "failed"
        elif verb == "release":
            task["status"] = "cancelled" if task["cancel"] else "pending"
        else:
            return 200, {"id": task_id, "claim_expires_at": _moment(task["limit"]), "cancel_requested": task["cancel"]}
        return 200, {"id": task_id, "status": task["status"]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True

    def __init__(self, address: tuple[str, int], api: StubAPI) -> None:
        self.api = api
        self.open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A cut connection is not an error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        api = self.server.api
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.removeprefix("/api")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, path, json.loads(raw or b"{}"), headers)
        fault = next((one for one in api.faults if path.endswith(one.path)), None)
        with api.changed:
            if fault:
                fault.times -= 1
                if not fault.times:
                    api.faults.remove(fault)
            api.requests.append(request)
            api.changed.notify_all()
        if fault and fault.cut == "before":
            self._cut()
        elif fault and fault.status:
            self._send(fault.status, fault.body, fault.headers)
        else:
            status, data = api.answer(request)
            if fault and fault.cut == "after":
                self._cut()
                return
            body = data if status >= 400 else {"success": True, "data": data}
            self._send(status, json.dumps({**body, "timestamp": int(time.time())}).encode(), {})

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
