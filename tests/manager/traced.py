"""An app whose tasks lead to each other, for traces."""

import asyncio

from opentelemetry import trace

from pitboss import App, ctx

app = App()


@app.task(queue="web")
async def first(number: int) -> str:
    await second.aenqueue(number)
    ctx.enqueue(third, number)
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@app.task(queue="web")
def second(number: int) -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@app.task(queue="mail")
async def third(number: int) -> None:
    await app.apublish("order.paid", {"number": number})


@app.event_handler("order.paid")
async def listener(event: dict[str, int]) -> None:
    await asyncio.sleep(0)


@app.task(max_attempts=1, fallback="rescue")
def failing() -> None:
    raise OSError("the far side is away")


@app.task
def rescue() -> None:
    pass


@app.task(max_attempts=2, backoff="100ms")
async def wavering() -> None:
    if ctx.attempt == 1:
        raise OSError("once")
