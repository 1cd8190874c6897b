"""The app of `source_rest`: a handler that takes a few milliseconds, on a queue with little room."""

import asyncio

from pitboss import App

CAPACITY = 10_000
QUEUE = "bench"
app = App(name="bench")
app.queue(QUEUE, capacity=CAPACITY)


@app.task(queue=QUEUE)
async def noop(n: int, text: str) -> None:
    await asyncio.sleep(0.005)
