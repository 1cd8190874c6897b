"""An app whose queue is divided by state. The handler writes what it does to a file."""

import asyncio
import os
import time

from pitboss import App, ctx

app = App(name="partitions")
STATES = tuple(f"S{number:02}" for number in range(24))
SLOTS = 6
# How many seconds a task takes on average.
PACE = float(os.environ.get("PARTITION_PACE", "0.003"))
if os.environ.get("PARTITION_MODE") == "static":
    app.queue("targets", partition_by="{state}", partitions={n: STATES[n::SLOTS] for n in range(SLOTS)})
else:
    app.queue("targets", partition_by="{state}", mode="balanced")


@app.task(queue="targets", max_attempts=5)
async def scrape(number: int, state: str) -> None:
    leave("began", number, state)
    await asyncio.sleep(PACE * (number % 4) / 1.5)
    leave("ended", number, state)


def leave(word: str, number: int, state: str) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    line = f"{word} {number} {state} {os.getpid()} {ctx.token.session}.{ctx.token.claim} {time.monotonic_ns()}\n"
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)
