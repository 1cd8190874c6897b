"""The HTTP API under load, beside what it stands on: a constant answer on the same server, and the engine itself.

    python -m benchmarks.http_load [claims] [batches] [polls] [manager] [--store URL] [--rounds 3]

Runs alternate, so that a noisy neighbour hits both sides. Everything is on loopback and stops by itself.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import uvloop

from pitboss import wiring
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.task import NewTask

CLIENTS = 32
BATCH = 50
LOOPS = 4
POLLS = 1000
SETTLED_SECONDS = 5.0
TYPE = "bench"
HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"
PITBOSS = ("-c", "from pitboss.cli.main import main; main()")
ROOT = Path(__file__).resolve().parent.parent


class Connection:
    """One raw keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=16_000_000))

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.send(path, body)
        return await self.receive()

    def send(self, path: str, body: bytes) -> None:
        head = f"POST {path} HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)

    async def receive(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        start = head.lower().index(b"content-length: ") + 16
        length = int(head[start : head.index(b"\r", start)])
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def between(text: bytes, before: bytes, after: bytes = b'"') -> str:
    start = text.index(before) + len(before)
    return text[start : text.index(after, start)].decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def started(*command: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env={**os.environ, **(env or {})}, **quiet)


@asynccontextmanager
async def process(
    *command: str, port: int, env: dict[str, str] | None = None
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, ready when its port answers."""
    running = started(*command, env=env)
    try:
        for _ in range(600):
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield running
    finally:
        running.terminate()
        running.wait(30)


def serve(store: str, port: int, folder: Path) -> Any:
    arguments = [*PITBOSS, "serve", "--store", store, "--port", str(port), "--quiet"]
    return process(*arguments, port=port, env={"PITBOSS_LOGS": str(folder / "logs")})


async def fill(port: int, count: int, kind: str = TYPE) -> None:
    """Register the type and create tasks."""
    one = await Connection.to(port)
    schema = {"name": kind, "version": "1", "param_schema": {"type": "object"}, "dedupe": "none"}
    await one.post("/api/task-types/register", json.dumps(schema).encode())
    for start in range(0, count, 1000):
        tasks = [{"type": kind, "params": {"n": n}} for n in range(start, min(count, start + 1000))]
        code, body = await one.post("/api/tasks/bulk", json.dumps({"tasks": tasks}).encode())
        assert code == 201, body[:300]
    one.close()


async def together(work: Callable[[int], Awaitable[int]], clients: int) -> float:
    """How much was done per second by all clients."""
    began = time.perf_counter()
    done = sum(await asyncio.gather(*(work(number) for number in range(clients))))
    return done / (time.perf_counter() - began)


async def constant(port: int, requests: int) -> float:
    body = json.dumps({"worker_id": "w", "types": [TYPE]}).encode()

    async def client(_: int) -> int:
        one = await Connection.to(port)
        for _ in range(requests // CLIENTS):
            await one.post("/api/tasks/claim", body)
        one.close()
        return requests // CLIENTS

    return await together(client, CLIENTS)


async def one_by_one(port: int, tasks: int) -> float:
    """Requests per second: each task is claimed and completed by itself."""
    await fill(port, tasks)

    async def client(number: int) -> int:
        one = await Connection.to(port)
        claim = json.dumps({"worker_id": f"w{number}", "types": [TYPE]}).encode()
        for _ in range(tasks // CLIENTS):
            code, body = await one.post("/api/tasks/claim", claim)
            assert code == 200, body[:300]
            task, token = between(body, b'"id":"'), between(body, b'"claim_token":"')
            report = f'{{"worker_id":"w{number}","claim_token":"{token}","success":true,"result":{{"ok":1}}}}'
            code, body = await one.post(f"/api/tasks/{task}/complete", report.encode())
            assert code == 200, body[:300]
        one.close()
        return 2 * (tasks // CLIENTS)

    return await together(client, CLIENTS)


async def in_batches(port: int, tasks: int) -> float:
    """Tasks per second, 50 at a time."""
    await fill(port, tasks)

    async def client(number: int) -> int:
        one, done = await Connection.to(port), 0
        claim = json.dumps({"worker_id": f"w{number}", "types": [TYPE], "limit": BATCH}).encode()
        while True:
            code, body = await one.post("/api/tasks/claim", claim)
            if code == 404:
                one.close()
                return done
            found = json.loads(body)["data"]["tasks"]
            outcomes = [
                {"id": task["id"], "claim_token": task["claim_token"], "success": True, "result": {"ok": 1}}
                for task in found
            ]
            report = json.dumps({"worker_id": f"w{number}", "outcomes": outcomes}).encode()
            code, body = await one.post("/api/tasks/complete", report)
            assert code == 200, body[:300]
            done += len(found)

    return await together(client, LOOPS)


async def engine_in_batches(url: str, tasks: int) -> float:
    """The same in this process, on the engine."""
    store = wiring.make_engine(url)
    await store.open()
    make_id = IdMaker(store.clock.now, wiring.randbits())
    await store.register([HandlerInfo(name=TYPE, queue=TYPE, remote=True)])
    for start in range(0, tasks, 1000):
        await store.put(
            [NewTask(id=make_id(), handler=TYPE, queue=TYPE, params=f'{{"n":{start + n}}}') for n in range(1000)]
        )
    session = (await store.open_session(SessionInfo(host="bench", kind="http", ttl=3_600_000_000))).number
    policy = Policy()

    async def loop(number: int) -> int:
        done = 0
        slot = Slot(free=BATCH, queues=(TYPE,), handlers=(TYPE,), worker=f"w{number}", lasts=300_000_000)
        while True:
            claims = (await store.claim(ClaimRequest(session=session, slots=(slot,)))).claims
            if not claims:
                return done
            now = store.clock.now()
            await store.settle(
                [
                    Settlement(
                        id=one.id,
                        token=one.token,
                        transition=decide(one, Completed('{"ok":1}'), policy, now, 0.5),
                        worker=f"w{number}",
                        queue=one.queue,
                    )
                    for one in claims
                ]
            )
            done += len(claims)

    rate = await together(loop, LOOPS)
    await store.close()
    return rate


async def measure_claims(store: Callable[[str], str], folder: Path, rounds: int, tasks: int) -> None:
    api, raw, framework = free_port(), free_port(), free_port()
    const = ("-m", "benchmarks.http_constant")
    async with (
        serve(store("claims"), api, folder),
        process(*const, "raw", str(raw), port=raw),
        process(*const, "fastapi", str(framework), port=framework),
    ):
        rows = [
            (await constant(raw, tasks), await constant(framework, tasks), await one_by_one(api, tasks // 2))
            for _ in range(rounds)
        ]
        for plain, routed, real in rows:
            print(
                f"  constant {plain:8,.0f}/s   FastAPI constant {routed:8,.0f}/s   claim+complete {real:8,.0f}/s"
                f"   {real / plain:6.1%} of constant, {real / routed:6.1%} of FastAPI's"
            )
        best = statistics.median(real / plain for plain, _, real in rows)
        routed_share = statistics.median(real / routed for _, routed, real in rows)
        print(f"  median: {best:.1%} of a constant ASGI answer, {routed_share:.1%} of a constant FastAPI answer")


async def measure_batches(store: Callable[[str], str], folder: Path, rounds: int, tasks: int) -> None:
    port = free_port()
    async with serve(store("batches"), port, folder):
        shares = []
        for number in range(rounds):
            engine = await engine_in_batches(store(f"engine{number}"), tasks)
            api = await in_batches(port, tasks)
            shares.append(api / engine)
            print(f"  engine {engine:8,.0f} tasks/s   HTTP {api:8,.0f} tasks/s   {api / engine:6.1%}")
        print(f"  median: {statistics.median(shares):.1%}")


async def measure_polls(store: Callable[[str], str], folder: Path, rounds: int) -> None:
    port = free_port()
    async with serve(store("polls"), port, folder) as running:
        await fill(port, 0)
        server = next(
            child
            for child in psutil.Process(running.pid).children(recursive=True)
            if "http_server" in " ".join(child.cmdline()) or "secret_start" in " ".join(child.cmdline())
        )
        before = server.memory_info().rss
        polls = [await Connection.to(port) for _ in range(POLLS)]
        body = json.dumps({"worker_id": "w", "types": [TYPE], "wait": 30}).encode()
        for one in polls:
            one.send("/api/tasks/claim", body)
        waiting = [asyncio.create_task(one.receive()) for one in polls]
        await asyncio.sleep(3)
        cpu, began = sum(server.cpu_times()[:2]), time.perf_counter()
        await asyncio.sleep(15)
        share = (sum(server.cpu_times()[:2]) - cpu) / (time.perf_counter() - began)
        rss = server.memory_info().rss
        print(f"  1,000 idle long polls: {share:.2%} of a core, {rss / 1e6:,.0f} MB ({before / 1e6:,.0f} MB before)")
        wakes = await _wakes(port, waiting, 20 * rounds)
        print(
            f"  a task wakes one of them: p50 {statistics.median(wakes) * 1e3:.1f} ms, worst {max(wakes) * 1e3:.1f} ms"
        )
        for one in polls:
            one.close()


async def _wakes(port: int, waiting: "list[asyncio.Task[tuple[int, bytes]]]", count: int) -> list[float]:
    producer = await Connection.to(port)
    left, wakes = set(waiting), []
    for number in range(count):
        began = time.perf_counter()
        await producer.post("/api/tasks", json.dumps({"type": TYPE, "params": {"n": number}}).encode())
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        wakes.append(time.perf_counter() - began)
        assert len(done) == 1, f"{len(done)} woke"
        await asyncio.sleep(0.05)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return wakes


async def measure_manager(store: Callable[[str], str], folder: Path, rounds: int, tasks: int) -> None:
    """A manager's drain: alone, beside an idle server, and beside a server with 100,000 pending HTTP tasks."""
    app = folder / "drained.py"
    app.write_text("from pitboss import App\napp = App()\n\n@app.task()\nasync def nothing() -> None:\n    pass\n")
    rows: dict[str, list[float]] = {"alone": [], "beside a server": [], "beside 100,000 HTTP tasks": []}
    for number in range(rounds):
        for name, rates in rows.items():
            url = store(f"manager{number}{len(name)}")
            rates.append(
                await _drained(app, url, folder, tasks, server="beside" in name, pending=100_000 * ("100" in name))
            )
    alone = statistics.median(rows["alone"])
    for name, rates in rows.items():
        shown = ", ".join(f"{rate:,.0f}" for rate in rates)
        middle = statistics.median(rates)
        print(f"  {name:<26} {middle:8,.0f} tasks/s   {middle / alone:6.1%}   ({shown})")


async def _drained(app: Path, url: str, folder: Path, tasks: int, *, server: bool, pending: int) -> float:
    store = wiring.make_engine(url)
    await store.open()
    make_id = IdMaker(store.clock.now, wiring.randbits())
    await store.register([HandlerInfo(name="nothing"), HandlerInfo(name=TYPE, queue=TYPE, remote=True)])
    for count, handler, queue in ((pending, TYPE, TYPE), (tasks, "nothing", "default")):
        for _ in range(0, count, 1000):
            await store.put([NewTask(id=make_id(), handler=handler, queue=queue) for _ in range(1000)])
    port = free_port()
    arguments = [*PITBOSS, "up", str(app), "--store", url, "--quiet", "--workers", "2"]
    arguments += ["--port", str(port)] if server else ["--no-http"]
    # The start of processes is not the drain: the queue opens when all of them are idle.
    await store.change_queue("default", QueueChange(paused=True))
    running = started(*arguments, env={"PITBOSS_LOGS": str(folder / "logs")})
    try:
        await asyncio.sleep(SETTLED_SECONDS)
        await store.change_queue("default", QueueChange(paused=False))
        began = left = 0.0
        while True:
            queues = {queue.name: queue for queue in await store.queues()}
            done = queues["default"].counts.get("completed", 0) if "default" in queues else 0  # type: ignore[call-overload]
            # From a tenth to nine tenths.
            if done >= tasks * 0.1 and not began:
                began, left = time.perf_counter(), done
            if done >= tasks * 0.9:
                return float((done - left) / (time.perf_counter() - began))
            await asyncio.sleep(0.02)
    finally:
        running.terminate()
        running.wait(60)
        await store.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["claims", "batches", "polls", "manager"])
    parser.add_argument("--store", help="a PostgreSQL URL; by default SQLite files in a temporary folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=16_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def store(part: str) -> str:
            if chosen.store:
                return f"{chosen.store}?schema=http_{part}_{os.getpid()}"
            return f"sqlite:///{folder}/{part}.db"

        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "claims": lambda: measure_claims(store, folder, chosen.rounds, chosen.tasks),
            "batches": lambda: measure_batches(store, folder, chosen.rounds, chosen.tasks),
            "polls": lambda: measure_polls(store, folder, chosen.rounds),
            "manager": lambda: measure_manager(store, folder, chosen.rounds, 60_000),
        }
        for part in chosen.parts or parts:
            print(f"{part}:")
            await parts[part]()


if __name__ == "__main__":
    uvloop.run(main())
