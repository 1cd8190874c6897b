"""A tour in one file: tasks of every kind, fed by a task. Run it with `make demo`, or `pitboss up` in this folder."""

import asyncio
import random
import time

from pitboss import App, Cancel, Retry, Snooze, ctx, events

app = App()


@app.task
async def greet(name: str) -> str:
    """Quick and async: many run at once in one worker."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    return f"Hello, {name}!"


@app.task(queue="reports", timeout="30s")
def report(pages: int) -> str:
    """Slow and blocking: it runs in a thread, and says how far it is: `pitboss tasks list state:running`."""
    for page in range(1, pages + 1):
        time.sleep(0.4)
        ctx.progress(100 * page // pages, f"page {page} of {pages}")
    return f"{pages} pages"


@app.task(queue="web", max_attempts=6)
async def fetch(url: str) -> int:
    """Needs luck: tried again until the other side answers."""
    await asyncio.sleep(0.05)
    if random.choice((True, False)):
        raise Retry("the other side does not answer", after="1s")
    return 200


@app.task(queue="web", max_attempts=1)
async def parse(page: str) -> None:
    """Always fails: `pitboss dead list` groups its failures, `pitboss tasks show` has the traceback."""
    raise ValueError(f"{page} is not a page")


@app.on_task_failed(handler=parse)
def complain(event: events.TaskFailed) -> None:
    """A hook: hears what happened, in a process of its own. Best effort; what must happen is a task."""
    print(f"hook: {event.handler} of {event.arguments()['page']} failed for good")


@app.task
async def order(number: int) -> int:
    """Ends by adding what comes next: these are stored in the same act as its success, or not at all."""
    ctx.enqueue(invoice, number=number)
    ctx.enqueue(remind.using(delay="10s"), number=number)
    return number


@app.task
async def invoice(number: int) -> str:
    return f"invoice {number}"


@app.task
async def remind(number: int) -> str:
    """Scheduled for later by `order`: waits in the store, not in memory."""
    if number % 5 == 0:
        raise Cancel("paid already")
    return f"reminded about order {number}"


@app.task
async def feed(every: float = 2.0) -> None:
    """Feeds the others, sleeps, and begins again: one task for ever. `on_start` in pitboss.toml enqueues it."""
    number = int(time.time()) % 100_000
    await greet.aenqueue_many([{"name": name} for name in ("Ada", "Grace", "Edsger", "Barbara", "Tony")])
    await report.aenqueue(random.randint(3, 8))
    await fetch.aenqueue(f"https://example.org/{number}")
    await order.aenqueue(number)
    if number % 3 == 0:
        await parse.aenqueue(f"https://example.org/{number}")
    raise Snooze(every, "until the next round")
