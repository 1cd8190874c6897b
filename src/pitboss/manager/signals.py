"""Waiting for one of several things to happen."""

import asyncio


async def first(*events: asyncio.Event, within: float | None = None) -> None:
    """Returns when one of them is set, or the time is over."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
