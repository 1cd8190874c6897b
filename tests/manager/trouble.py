"""An app whose handlers misbehave, and whose import misbehaves if the environment says so."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pitboss import App, ctx
from tests.manager.shop import leave, trace

app = App()
hoard: list[bytes] = []
MEGABYTE = 1024 * 1024

# Only in workers of pools with these variables in `env`; the process that describes the app has none.
if gate := os.environ.get("GATE"):
    while not Path(gate).exists():
        time.sleep(0.02)
if Path(os.environ.get("DIES_IF") or "/nowhere").exists():
    os._exit(7)


@app.task
async def quick(number: int = 0) -> int:
    trace("quick")
    return number


@app.task
async def slow(seconds: float) -> None:
    trace("began")
    await asyncio.sleep(seconds)
    trace("ended")


@app.task(max_attempts=1)
async def fails() -> None:
    raise RuntimeError("as told")


@app.task
def burns(seconds: float) -> None:
    """Keeps a processor busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


@app.task
def environment(name: str) -> str | None:
    return os.environ.get(name)


@app.task(max_attempts=1)
async def bomb() -> None:
    trace("bomb")
    os._exit(3)


@app.task
async def blocks_once(seconds: float) -> None:
    """Blocks the event loop at the first run."""
    trace("blocks")
    if ctx.token.claim == 1:
        time.sleep(seconds)  # noqa: ASYNC251


@app.task(timeout="1s", max_attempts=1)
async def blocks_past_its_time(seconds: float) -> None:
    trace("blocks")
    time.sleep(seconds)  # noqa: ASYNC251


@app.task
async def holds_the_interpreter() -> None:
    """Holds the interpreter at the first run: no other thread runs."""
    trace("holds")
    if ctx.token.claim == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")


@app.task(timeout="300ms", max_attempts=1)
async def stubborn() -> None:
    await _ignore_every_cancellation()


@app.task
async def stubborn_without_limit() -> None:
    trace("stubborn")
    await _ignore_every_cancellation()


async def _ignore_every_cancellation() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            trace("ignored")


@app.task
async def cleans_up(seconds: float) -> None:
    trace("began")
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(seconds)
        trace("cleaned")


@app.task(timeout="300ms", max_attempts=1)
def thread_forever() -> None:
    while True:
        time.sleep(1)


@app.task
async def deafens() -> None:
    """From now on the worker sends heartbeats, but starts no task."""
    worker: Any
    (worker,) = (one for one in gc.get_objects() if type(one).__name__ == "Worker" and hasattr(one, "_start"))
    worker._start = lambda _: None
    trace("deaf")


@app.task
def leaks(megabytes: int) -> int:
    hoard.append(os.urandom(1) * (megabytes * MEGABYTE))
    trace("leaks")
    time.sleep(0.05)
    return len(hoard)


@app.task
def memory_bomb() -> None:
    trace("swells")
    while True:
        hoard.append(os.urandom(1) * (10 * MEGABYTE))
        time.sleep(0.02)


@app.task(max_attempts=1)
async def hungry_child(megabytes: int) -> None:
    """Its child uses the memory."""
    trace("feeds")
    code = f"hoard = b'x' * ({megabytes} * 1024 * 1024); print(len(hoard), flush=True); import time; time.sleep(60)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.DEVNULL)
    await child.wait()


@app.task
async def leaves_a_daemon(seconds: float = 0) -> None:
    """Two forks and a session of its own, like a daemon: it is no descendant of the worker."""
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(int(sys.argv[1]), str(os.getpid()).encode())
        os.close(int(sys.argv[1]))
        for fd in (0, 1, 2):
            os.close(fd)
        time.sleep(600)
    os._exit(0)
os.wait()
"""
    out, into = os.pipe()
    subprocess.run([sys.executable, "-c", code, str(into)], pass_fds=[into], check=True)  # noqa: ASYNC221
    os.close(into)
    leave(f"daemon {os.read(out, 20).decode()}\n")
    os.close(out)
    await asyncio.sleep(seconds)


@app.task
async def timed(seconds: float = 60) -> None:
    """Records its start; runs long the first time, and ends at once after a loss."""
    leave(f"timed {ctx.id} {ctx.token.claim} {os.getpid()} {time.time()}\n")
    if ctx.token.claim == 1:
        await asyncio.sleep(seconds)


@app.task
def forks_and_dies() -> None:
    """At the first run: forks a child that inherits the socket to the manager, and dies."""
    trace("forks")
    if ctx.token.claim == 1:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
