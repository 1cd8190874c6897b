"""A small app to start from. Run it with `pitboss up`, and look at it with `pitboss status`."""

import asyncio
import time

from pitboss import App, Retry, Snooze, ctx

app = App()
LUCKY_ATTEMPT = 3


@app.task
async def greet(name: str) -> str:
    """A quick task. In Python: greet.enqueue("you"). In a shell: pitboss tasks enqueue greet '{"name": "you"}'."""
    await asyncio.sleep(0.1)
    return f"Hello, {name}!"


@app.task(timeout="30s")
def count(to: int) -> int:
    """A slow task. It blocks, so Pitboss runs it in a thread. It reports its progress."""
    for number in range(to):
        time.sleep(0.5)
        ctx.progress(100 * (number + 1) // to, f"{number + 1} of {to}")
    return to


@app.task(max_attempts=5)
async def flaky() -> str:
    """A task that fails twice. Any other exception is retried too, after a longer pause each time."""
    if ctx.attempt < LUCKY_ATTEMPT:
        raise Retry("no answer yet", after="1s")
    return "it worked in the end"


@app.task
async def feed() -> None:
    """Enqueues the others every five seconds. When you have your own, delete it, and `on_start` in pitboss.toml."""
    await greet.aenqueue("world")
    await count.aenqueue(4)
    await flaky.aenqueue()
    raise Snooze("5s", "until the next round")
