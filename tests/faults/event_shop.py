"""An app with five handlers of events, one of which keeps the order of each key. They write what they do to a file.

A fifth of the first attempts raises. Which ones, the event's number decides.
"""

import asyncio
import os
import time
from typing import Any

from pitboss import App, ctx

app = App(name="events")
FAILING = 5
HANDLERS = ("audit", "book", "count", "mail", "stock")


def leave(word: str, number: int) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    line = f"{word} {number} {ctx.token.session}.{ctx.token.claim} {time.monotonic_ns()}\n"
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


async def handled(name: str, data: dict[str, Any]) -> None:
    number = int(data["number"])
    leave(f"began {name}", number)
    await asyncio.sleep(0.002 * (number % 3))
    if ctx.attempt == 1 and (number + HANDLERS.index(name)) % FAILING == 0:
        leave(f"raised {name}", number)
        raise ConnectionError("the first attempt fails")
    leave(f"ended {name}", number)


@app.event_handler("order.*", ordered=True, max_retries=3, backoff="20ms")
async def book(data: dict[str, Any]) -> None:
    await handled("book", data)


@app.event_handler("order.*", max_retries=3, backoff="20ms", queue="mail")
async def mail(data: dict[str, Any]) -> None:
    await handled("mail", data)


@app.event_handler("**", max_retries=3, backoff="20ms", queue="audit")
async def audit(data: dict[str, Any]) -> None:
    await handled("audit", data)


@app.event_handler("order.placed", "order.paid", max_retries=3, backoff="20ms")
async def count(data: dict[str, Any]) -> None:
    await handled("count", data)


@app.event_handler("*.placed", "*.paid", max_retries=3, backoff="20ms")
async def stock(data: dict[str, Any]) -> None:
    await handled("stock", data)
