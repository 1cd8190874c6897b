"""An app whose tasks belong to states: each worker has the tasks of its own states only."""

import asyncio
import logging
import os
import time

from pitboss import App
from tests.manager.shop import leave

app = App()
STATES = [f"S{number:02}" for number in range(12)]
SLOTS = int(os.environ.get("STATES_SLOTS", "0"))
if SLOTS:
    app.queue("targets", partition_by="{state}", partitions={slot: STATES[slot::SLOTS] for slot in range(SLOTS)})
else:
    app.queue("targets", partition_by="{state}", mode="balanced")


@app.task(queue="targets")
async def crawl(state: str, seconds: float = 0) -> str:
    leave(f"{state} {time.monotonic_ns()} {os.getpid()}\n")
    logging.getLogger("states").info("crawling %s", state)
    await asyncio.sleep(seconds)
    return state
