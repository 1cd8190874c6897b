"""A tour in one file: every kind of task. Run it with `make demo`, or with `pitboss up` in this folder."""

import asyncio
import random
import time
from contextlib import suppress

from pitboss import App, Cancel, DeadTask, Lease, NotFound, RateLimited, Retry, Snooze, ctx, facts

app = App()
# API keys as a resource pool. Each key may be used six times in any ten seconds, one call at a time.
keys = app.resources("keys", rate="6/10s", min_delay="200ms", cooldown="3s")
REFUSED = 0.05
# At most two deliveries run at once in a city, and each city's worker stays the same while it has work.
app.queue("deliveries", partition_by="{city}", mode="balanced", max_per_key=2)
CITIES = ("Oslo", "Lima", "Cairo", "Hanoi", "Perth", "Quito")


@app.task
async def greet(name: str) -> str:
    """Quick and async. Many of these run at once in one worker."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    return f"Hello, {name}!"


@app.task(queue="reports", timeout="30s")
def report(pages: int) -> str:
    """Slow and blocking, so it runs in a thread. See its progress with `pitboss tasks list state:running`."""
    for page in range(1, pages + 1):
        time.sleep(0.4)
        ctx.progress(100 * page // pages, f"page {page} of {pages}")
    return f"{pages} pages"


@app.task(queue="web", max_attempts=6)
async def fetch(url: str) -> int:
    """Fails half of the time, and is retried until the server answers."""
    await asyncio.sleep(0.05)
    if random.choice((True, False)):
        raise Retry("the server does not answer", after="1s")
    return 200


@app.task(queue="web")
async def keep_for_later(page: str) -> str:
    """The fallback of `parse`: it gets the same arguments, and is stored together with the failure."""
    return f"{page} is kept, because {ctx.failed.message}" if ctx.failed else page


@app.task(queue="web", max_attempts=1, fallback=keep_for_later)
async def parse(page: str) -> None:
    """Always fails. `pitboss dead list` groups the failures, and `pitboss tasks show` prints the traceback."""
    raise ValueError(f"{page} is not a page")


@app.on_task_failed(handler=parse)
def complain(fact: facts.TaskFailed) -> None:
    """A hook. It is called with facts, in a process of its own, best effort. What must happen is a task."""
    print(f"hook: {fact.handler} of {fact.arguments()['page']} failed for good")


@app.task
async def order(number: int) -> int:
    """Adds follow-ups. They are stored together with its success, or not at all."""
    ctx.enqueue(invoice, number=number)
    ctx.enqueue(remind.using(delay="10s"), number=number)
    return number


@app.task
async def invoice(number: int) -> str:
    return f"invoice {number}"


@app.task
async def remind(number: int) -> str:
    """Delayed by `order`. It waits in the store, not in memory."""
    if number % 5 == 0:
        raise Cancel("paid already")
    return f"reminded about order {number}"


@app.task
async def look_up(word: str, key: Lease = keys.lease()) -> int:
    """Holds a key while it runs: see `pitboss resources show keys`. If the server refuses the key, it gets another."""
    await asyncio.sleep(0.1)
    if random.random() < REFUSED:
        raise RateLimited("this key was used too often", retry_after="3s")
    return len(word) + len(key.secret("token"))


@app.task
async def dictionary() -> None:
    """Creates a batch of look-ups every minute: see `pitboss batches list --watch 1s`."""
    await keys.aadd_many({"name": f"key-{number}", "secrets": {"token": f"s3cret-{number}"}} for number in range(1, 4))
    words = [{"word": f"word-{number}"} for number in range(40)]
    await look_up.abatch(words, name=time.strftime("%H:%M words"), on_complete=announce)
    raise Snooze("60s", "until the next batch")


@app.task
async def announce(batch: str, status: str) -> str:
    """Runs once when a batch has ended."""
    return f"batch {batch} is {status}"


@app.scheduled_task(every="5s")
async def count_stock() -> str:
    """A schedule: see `pitboss schedules list`. However many managers run, each tick puts one task."""
    return f"counted for {ctx.scheduled_for:%H:%M:%S}"


@app.task(queue="deliveries", usual="0.3s")
async def deliver(city: str, parcel: int) -> str:
    """Each city belongs to one worker at a time: see `pitboss partitions show deliveries`, and scale the pool."""
    await asyncio.sleep(random.uniform(0.2, 0.4))
    return f"parcel {parcel} is in {city}"


@app.event_handler("order.*", ordered=True)
async def tell_the_warehouse(event_data: dict[str, int]) -> str:
    """Handles events: see `pitboss events list`. Those of one customer come one at a time, in their order."""
    await asyncio.sleep(0.1)
    return f"order {event_data['number']} is packed"


@app.dead_letter_handler("web")
async def write_to_support(dead: DeadTask) -> str:
    """Gets every task of the queue that failed for good."""
    return f"{dead.handler} failed after {dead.attempts} attempts: {dead.reason}"


@app.task
async def feed(every: float = 2.0) -> None:
    """Enqueues the others, then snoozes and runs again, for ever. `on_start` in pitboss.toml enqueues it."""
    number = int(time.time()) % 100_000
    await greet.aenqueue_many([{"name": name} for name in ("Ada", "Grace", "Edsger", "Barbara", "Tony")])
    await report.aenqueue(random.randint(3, 8))
    await fetch.aenqueue(f"https://example.org/{number}")
    await order.aenqueue(number)
    await deliver.aenqueue_many([{"city": city, "parcel": number} for city in random.sample(CITIES, 3)])
    await app.apublish("order.placed", {"number": number}, key=f"customer-{number % 3}")
    if number % 3 == 0:
        await parse.aenqueue(f"https://example.org/{number}")
    # A task type of remote workers, by its name: remote_worker.py registers it.
    with suppress(NotFound):
        await app.asend("thumbnail", {"picture": f"{number}.png"})
    raise Snooze(every, "until the next round")
