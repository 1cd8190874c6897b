"""An app whose only handler holds a proxy for a moment."""

import asyncio

from pitboss import App, Lease

app = App()
proxies = app.resources("proxies", min_delay="20ms", concurrency=1)


@app.task
async def check(number: int, proxy: Lease = proxies.lease()) -> str:
    await asyncio.sleep(0.01 * (number % 4))
    return proxy.name
