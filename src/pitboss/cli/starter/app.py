"""A small app to start from. Run it with `pitboss up`, look at it with `pitboss status`."""

import asyncio
import time

from pitboss import App, Retry, Snooze, ctx

app = App()
LUCKY_ATTEMPT = 3


@app.task
async def greet(name: str) -> str:
    """A quick one. Enqueue it with greet.enqueue("you"), or from a shell with `pitboss tasks enqueue greet`."""
    await asyncio.sleep(0.1)
    return f"Hello, {name}!"


@app.task(timeout="30s")
def count(to: int) -> int:
    """A slow one that blocks: it runs in a thread, and says how far it is."""
    for number in range(to):
        time.sleep(0.5)
        ctx.progress(100 * (number + 1) // to, f"{number + 1} of {to}")
    return to


@app.task(max_attempts=5)
async def flaky() -> str:
    """One that needs several attempts. Any exception is tried again too, a little later each time."""
    if ctx.attempt < LUCKY_ATTEMPT:
        raise Retry("nobody answers", after="1s")
    return "it worked in the end"


@app.task
async def feed() -> None:
    """Feeds the others, then sleeps and runs again. `on_start` in pitboss.toml enqueues it; delete it some day."""
    await greet.aenqueue("world")
    await count.aenqueue(4)
    await flaky.aenqueue()
    raise Snooze("5s", "until the next round")
