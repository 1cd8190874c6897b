"""Three queues of 1,200 tasks, each bound by something else: workers, a rate, or the windows of a resource pool."""

import asyncio
from random import Random

from pitboss import App, Lease

app = App(name="estimates")
app.queue("rated", rate="12/1s")
proxies = app.resources("proxies", rate="24/10s")


def _seconds(number: int, low: float, high: float) -> float:
    return Random(number).uniform(low, high)


@app.task(queue="busy")
async def crawl(number: int) -> None:
    await asyncio.sleep(_seconds(number, 0.15, 0.5))


@app.task(queue="rated")
async def ask(number: int) -> None:
    await asyncio.sleep(_seconds(number, 0.02, 0.1))


@app.task(queue="leased")
async def fetch(number: int, proxy: Lease = proxies.lease()) -> None:
    await asyncio.sleep(_seconds(number, 0.02, 0.1))
