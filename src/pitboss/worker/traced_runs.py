"""Runs of tasks with a span around each of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pitboss.model.task import Claim
from pitboss.telemetry import traces
from pitboss.worker.runner import Ran

Run = Callable[[Claim, "asyncio.Task[Any] | None"], Awaitable[Ran]]


def traced(run: Run) -> Run:
    """The same; a process without traces gets it unchanged, and pays nothing."""
    if not traces.active():
        return run

    async def run_traced(claim: Claim, task: "asyncio.Task[Any] | None") -> Ran:
        with traces.processing(claim) as span:
            ran = await run(claim, task)
            span.ended(ran.outcome)
        return ran

    return run_traced
