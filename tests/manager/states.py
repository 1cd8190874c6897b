"""An app whose tasks belong to states: each worker has the tasks of its own states only."""

import asyncio
import logging

from pitboss import App
from tests.manager.shop import leave

app = App()
app.queue("targets", partition_by="{state}", mode="balanced")


@app.task(queue="targets")
async def crawl(state: str, seconds: float = 0) -> str:
    leave(f"{state}\n")
    logging.getLogger("states").info("crawling %s", state)
    await asyncio.sleep(seconds)
    return state
