"""An app with a handler that holds a proxy for a moment, and one for the end of a batch."""

import asyncio

from pitboss import App, Lease

app = App()
proxies = app.resources("proxies", min_delay="20ms", concurrency=1)


@app.task
async def check(number: int, proxy: Lease = proxies.lease()) -> str:
    await asyncio.sleep(0.01 * (number % 4))
    return proxy.name


@app.task
async def closed(batch: str, status: str) -> str:
    return f"{batch} {status}"
