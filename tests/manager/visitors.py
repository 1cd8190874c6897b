"""An app whose tasks tell a server that they run, some of them through members with limits."""

import asyncio
import os
import socket

from pitboss import App, Lease, Retry, ctx

app = App()
sites = app.resources("sites", rate="3/5s")


def tell(text: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as messenger:
        messenger.sendto(text.encode(), ("127.0.0.1", int(os.environ["FAR_SIDE"])))


@app.task(queue="visits")
async def visit(number: int, site: Lease = sites.lease()) -> None:
    tell(f"visit {site.name} {number}")


@app.task
async def work(number: int) -> None:
    await asyncio.sleep(0.1)
    tell(f"work - {number}")


@app.task(max_attempts=2)
async def twice() -> None:
    tell(f"twice - {ctx.attempt}")
    if ctx.attempt == 1:
        raise Retry(after="2s")


@app.task
async def note(text: str) -> None:
    tell(f"note - {text}")
