"""An app whose handlers write to a file, so that a test can count what really ran."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pitboss import App, Snooze, ctx

app = App()


def trace(word: str) -> None:
    """One line per effect, in one write, so that lines of several processes do not mix."""
    leave(f"{word} {ctx.id} {ctx.token} {os.getpid()}\n")


def leave(line: str) -> None:
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.worker_state(max_uses=3)
async def counter() -> AsyncIterator[list[int]]:
    leave("opened\n")
    yield []


@app.task
async def quick(number: int) -> int:
    trace("quick")
    return number


@app.task
def quick_in_thread(number: int) -> int:
    trace("quick")
    return number


@app.task
async def slow(seconds: float) -> str:
    trace("began")
    await asyncio.sleep(seconds)
    trace("ended")
    return "slept"


@app.task(timeout="300ms", max_attempts=1)
async def overlong() -> None:
    await asyncio.sleep(60)


@app.task(timeout="300ms", max_attempts=1)
def deaf_thread(seconds: float) -> None:
    time.sleep(seconds)


@app.task(max_attempts=1)
async def bomb() -> None:
    trace("bomb")
    os._exit(3)


@app.task
async def with_state(tally: list[int] = counter()) -> int:
    tally.append(1)
    return len(tally)


@app.task
async def spawning(total: int) -> int:
    for number in range(total):
        await quick.aenqueue(number)
    ctx.progress(50, "half way")
    await asyncio.sleep(0.3)
    ctx.enqueue(quick, 1000)
    return total


@app.task
def blocking_spawning() -> str:
    return quick.enqueue(7).id


@app.task
async def batching(size: int) -> dict[str, int]:
    """Creates a batch, waits for it and adds up its results, all over the worker's socket."""
    made = await quick.abatch([{"number": number} for number in range(size)], on_complete=told, lane="inner")
    ended = await made.awaited("20s")
    values = [one.value async for one in made.aresults()]
    return {"sum": sum(values), "finished": ended.finished}


@app.task
async def told(batch: str, status: str) -> str:
    return status


@app.task
async def later() -> str:
    if ctx.token.claim == 1:
        raise Snooze("200ms")
    return "now"


@app.task
async def with_child_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(os.environ["TRACES"] + ".child").write_text(str(child.pid))
    await asyncio.sleep(60)
