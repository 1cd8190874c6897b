"""Two remote workers race for tasks over HTTP. One is stopped past its claims, and the server is killed under load.

What happened is counted at the far side: each worker writes a line for every run, and a line for every report that
the server accepted. The store says how each task ended.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.model.filter import by
from pitboss.model.states import State

CLAIM_SECONDS = 2
LIMIT = 180.0
PITBOSS = (sys.executable, "-c", "from pitboss.cli.main import main; main()")
WORKER = textwrap.dedent(
    """
    import os, time
    from pitboss.remote import Worker

    class Racer(Worker):
        task_types = {"race": {"type": "object"}}

        def process_task(self, task):
            line = f"{task['id']} {os.environ['WORKER_ID']}\\n"
            with open(os.environ["RUNS"], "a") as runs:
                runs.write(line)
            time.sleep(0.001)
            return {"by": os.environ["WORKER_ID"]}

        def complete_task(self, task_id, result):
            accepted = super().complete_task(task_id, result)
            with open(os.environ["ENDS"], "a") as ends:
                ends.write(f"{task_id} {os.environ['WORKER_ID']} {accepted}\\n")
            return accepted
    """
)


class Race(NamedTuple):
    """How it ended. `accepted` counts accepted reports by task. `late` counts reports that were refused, and those that
    a worker did not make because it had learnt that its claim was over."""

    states: Counter[str]
    runs: int
    accepted: Counter[str]
    late: int
    kills: int
    exit_codes: list[int]

    def faults(self, tasks: int) -> list[str]:
        found = []
        if self.states != {"completed": tasks}:
            found.append(f"not all tasks are completed: {dict(self.states)}")
        twice = [task for task, count in self.accepted.items() if count > 1]
        if twice:
            found.append(f"{len(twice)} tasks were accepted twice, such as {twice[0]}")
        if len(self.accepted) > tasks:
            found.append(f"{len(self.accepted)} tasks were accepted, and there are {tasks}")
        if any(self.exit_codes):
            found.append(f"a worker ended with {self.exit_codes}")
        return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def ask(port: int, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api{path}", data, {"Content-Type": "application/json"} if data else {}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["data"]


@contextmanager
def running(*command: str, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=out, stderr=out, cwd=log.parent)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def race(folder: Path, url: str, *, tasks: int, kills: int) -> Race:
    """Run it to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    port, runs, ends = free_port(), folder / "runs", folder / "ends"
    (folder / "racer.py").write_text(WORKER)
    runs.touch()
    ends.touch()
    serving = (*PITBOSS, "serve", "--store", url, "--port", str(port), "--quiet")
    with running(*serving, env={"PITBOSS_LOGS": str(folder / "logs")}, log=folder / "server.log") as manager:
        until(lambda: _answers(port), "the server answers")
        schema = {"name": "race", "version": "1", "param_schema": {"type": "object"}, "dedupe": "none"}
        ask(port, "/task-types/register", schema)
        for start in range(0, tasks, 1000):
            new = [{"type": "race", "params": {"n": n}} for n in range(start, min(tasks, start + 1000))]
            ask(port, "/tasks/bulk", {"tasks": new})
        common = {
            "TASKMANAGER_API_URL": f"http://127.0.0.1:{port}/api",
            "RUNS": str(runs),
            "ENDS": str(ends),
            "POLL_INTERVAL": "0.5",
            "WORKER_CLAIM_TIMEOUT": str(CLAIM_SECONDS),
            "WORKER_CONCURRENCY": "4",
        }
        racer = (sys.executable, "-m", "pitboss.remote", "racer.py:Racer")
        with (
            running(*racer, env={**common, "WORKER_ID": "a"}, log=folder / "a.log") as first,
            running(*racer, env={**common, "WORKER_ID": "b"}, log=folder / "b.log") as second,
        ):
            _trouble(manager.pid, port, second, ends, tasks, kills)
            until(lambda: len(_lines(ends, "True")) >= tasks, "all tasks are completed", LIMIT)
            # What was in the hands of the worker that slept is refused by now.
            codes = [_ended(one) for one in (first, second)]
    accepted = Counter(line.split()[0] for line in _lines(ends, "True"))
    unsaid = sum("its claim was lost" in line for line in (folder / "b.log").read_text().splitlines())
    return Race(
        asyncio.run(_states(url)),
        len(runs.read_text().splitlines()),
        accepted,
        len(_lines(ends, "False")) + unsaid,
        kills,
        codes,
    )


def _trouble(manager: int, port: int, sleeper: subprocess.Popen[bytes], ends: Path, tasks: int, kills: int) -> None:
    """Stop one worker past its claims, and kill the server on the way, each at its share of the work."""
    until(lambda: len(_lines(ends, "True")) >= tasks // 10, "a tenth is done", LIMIT)
    until(lambda: _stopped_with_work(port, sleeper), "it is stopped while it has tasks")
    stopped = time.monotonic()
    for number in range(kills):
        share = tasks * (number + 2) // (kills + 3)
        until(lambda share=share: len(_lines(ends, "True")) >= share, "the next share is done", LIMIT)  # type: ignore[misc]
        os.kill(_server(manager), signal.SIGKILL)
    until(lambda: time.monotonic() - stopped > CLAIM_SECONDS + 1.5, "its claims have ended")
    sleeper.send_signal(signal.SIGCONT)


def _stopped_with_work(port: int, sleeper: subprocess.Popen[bytes]) -> bool:
    """Whether the worker has tasks now that it is stopped; if it has none, it goes on."""
    sleeper.send_signal(signal.SIGSTOP)
    claimed = ask(port, "/tasks?status=claimed")["tasks"]
    if any(task["claimed_by"] == "b" for task in claimed):
        return True
    sleeper.send_signal(signal.SIGCONT)
    return False


def _server(manager: int) -> int:
    """The server process of this manager, as soon as there is one."""
    found: list[int] = []

    def look() -> bool:
        for child in psutil.Process(manager).children():
            with suppress(psutil.Error):
                if any("secret_start" in word for word in child.cmdline()):
                    found.append(child.pid)
        return bool(found)

    until(look, "there is a server process")
    return found[0]


def _ended(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    return process.wait(30)


def _lines(file: Path, end: str) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.endswith(f" {end}")]


def _answers(port: int) -> bool:
    try:
        ask(port, "/health")
    except OSError:
        return False
    return True


def until(true: Callable[[], bool], what: str, limit: float = 60.0) -> None:
    ends = time.monotonic() + limit
    while not true():
        if time.monotonic() > ends:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(0.02)


async def _states(url: str) -> Counter[str]:
    store: Store = wiring.make_engine(url)
    await store.open()
    try:
        counts = {state.value: (await store.count(by(state=state))).number for state in State}
        return Counter({name: count for name, count in counts.items() if count})
    finally:
        await store.close()
