"""An app whose hooks write to a file, and do what the fact's params say."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from pitboss import App, facts

app = App()


def leave(line: str) -> None:
    """One line per effect, in one write."""
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@app.task
async def work(number: int = 0, do: str = "") -> int:
    return number


@app.task(queue="mail")
async def follow(number: int) -> None: ...


@app.task(max_attempts=2, backoff="10ms")
async def break_down() -> None:
    raise ValueError("broken")


@app.on_task_completed(handler=work)
def completed(fact: facts.TaskCompleted) -> None:
    leave(f"completed {fact.arguments()['number']} {fact.value()} {os.getpid()}")
    _act(fact.arguments())


@app.on_task_completed(queue="mail")
def mailed(fact: facts.TaskCompleted) -> None:
    leave(f"mailed {fact.id}")


@app.on_task_failed
async def failed(fact: facts.TaskFailed) -> None:
    assert fact.error is not None
    leave(f"failed {fact.id} {fact.error.message}")
    await _act_async(fact.arguments())


@app.on_task_retried
def retried(fact: facts.TaskRetried) -> None:
    leave(f"retried {fact.id} {fact.attempt} {fact.worker} {fact.pool}")


@app.on_worker_started
def started(fact: facts.WorkerStarted) -> None:
    leave(f"started {fact.worker} {fact.pid}")


@app.on_worker_crashed(pool="download")
async def crashed(fact: facts.WorkerCrashed) -> None:
    leave(f"crashed {fact.worker} {fact.code}")


@app.on_worker_given_up
def given_up(fact: facts.WorkerGivenUp) -> None:
    leave(f"given_up {fact.worker} {fact.crashes}")


@app.on_pool_scaled(pool="download")
def scaled(fact: facts.PoolScaled) -> None:
    leave(f"scaled {fact.before} {fact.after}")


def _act(params: dict[str, Any]) -> None:
    match params.get("do"):
        case "raise":
            raise ValueError("this hook is broken")
        case "exit":
            raise SystemExit(7)
        case "die":
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "enqueue":
            follow.enqueue(params["number"])
        case "detach":
            child = subprocess.Popen(["sleep", "60"], start_new_session=True)
            Path(os.environ["TRACES"] + ".child").write_text(str(child.pid))
            time.sleep(60)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)


def _block() -> None:
    time.sleep(60)


async def _act_async(params: dict[str, Any]) -> None:
    match params.get("do"):
        case "raise":
            raise ValueError("this async hook is broken")
        case "hang":
            await asyncio.sleep(60)
        case "block":
            _block()
        case "enqueue":
            await follow.aenqueue(params["number"])
        case "enqueue plainly":
            follow.enqueue(params["number"])
