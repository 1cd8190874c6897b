"""Read by mypy only: what a user's editor says of right and wrong calls."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, assert_type

from pitboss import App, BatchHandle, Context, DeadTask, Handle, Lease, ctx
from pitboss.model.batch import Batch, BatchChanged
from pitboss.model.event import Published
from pitboss.model.resource import Resource
from pitboss.model.schedule import Schedule
from pitboss.model.task import Task

app = App()
proxies = app.resources("proxies", per_hour=50, min_delay="2s", strategy="sticky")


@app.task
async def fetch(url: str, depth: int = 1) -> int:
    return len(url) + depth


@app.task(queue="mail", priority=3)
def send(to: str, context: Context = ctx) -> bool:
    return bool(to)


@app.task
async def check(profile: str, proxy: Lease = proxies.lease(sticky="profile")) -> str:
    return proxy.secret("password")


@app.scheduled_task("0 0 * * *", retry_limit=3, task_config={"timeout": 60})
async def nightly() -> int:
    return 1


@app.event_handler("user.signup", ordered=True, max_retries=3)
def greet(event_data: dict[str, int]) -> None: ...


@app.dead_letter_handler("mail", timeout=None)
async def bury(dead: DeadTask) -> None: ...


@app.task(fallback=send)
def send_safely(to: str) -> str:
    return to


def right() -> None:
    assert_type(nightly.enqueue(), Handle[int])
    assert_type(greet({"a": 1}), None)
    assert_type(send_safely("a"), str)
    assert_type(app.publish("user.signup", {"user_id": 7}, key="u:7"), Published)
    assert_type(app.schedules.run("nightly"), Handle[Any])
    assert_type(app.schedules.list(), list[Schedule])
    assert_type(ctx.scheduled_for, datetime | None)
    assert_type(check.enqueue("anna"), Handle[str])
    with proxies.lease(wait="1m") as lease:
        assert_type(lease, Lease)
    assert_type(proxies.acquire(), Lease)
    assert_type(proxies.release(lease, "ok"), bool)
    assert_type(proxies.members("p1"), list[Resource])
    assert_type(lease.use_sync(), int)
    assert_type(fetch.enqueue("u"), Handle[int])
    assert_type(fetch.enqueue("u").task(), Task)
    assert_type(app.batches("running"), list[Batch])
    assert_type(app.batch_handle("id").requeue(error="net"), BatchChanged)
    assert_type(app.batch_handle("id").items(state="failed"), Iterator[Task])
    assert_type(fetch.enqueue("u", depth=2).result(), int)
    assert_type(send.using(delay="1m").enqueue("a").result(timeout=1), bool)
    assert_type(send("a"), bool)
    assert_type(fetch.batch([{"url": "u"}], name="n", on_complete=send), BatchHandle)
    assert_type(app.batch([fetch.prepared("u"), send.prepared("a")], data={"x": 1}), BatchHandle)


async def right_async() -> None:
    assert_type(await nightly(), int)
    assert_type(await app.apublish("user.signup"), Published)
    assert_type(await app.schedules.aget("nightly"), Schedule)
    assert_type(await fetch("u"), int)
    assert_type(await fetch.aenqueue("u"), Handle[int])
    assert_type(await (await fetch.aenqueue("u")).aresult(), int)
    assert_type(await proxies.amembers("p1"), list[Resource])
    assert_type(await app.abatches("running"), list[Batch])
    assert_type(await app.batch_handle("id").arequeue(error="net"), BatchChanged)
    async for task in app.batch_handle("id").aitems(state="failed"):
        assert_type(task, Task)


def wrong() -> None:
    app.scheduled_task(cron="* * * * *", retry_limt=3)  # type: ignore[call-arg]
    app.scheduled_task(nightly)  # type: ignore[arg-type]
    app.event_handler("a", ordered="yes")  # type: ignore[arg-type]
    greet.enqueue("x")  # type: ignore[arg-type]
    proxies.disable("p1", reasn="x")  # type: ignore[call-arg]
    app.batch_handle("id").move("left")  # type: ignore[arg-type]
    check.enqueue()  # type: ignore[call-arg]
    app.resources("keys", per_houre=50)  # type: ignore[call-arg]
    proxies.add("p1", per_hour="many")  # type: ignore[arg-type]
    fetch.batch([], nmae="n")  # type: ignore[call-arg]
    fetch.enqueue()  # type: ignore[call-arg]
    fetch.enqueue(1)  # type: ignore[arg-type]
    fetch.enqueue("u", dept=2)  # type: ignore[call-arg]
    fetch.enqueue("u", 1, 2)  # type: ignore[call-arg]
    send.using(delay="1m").enqueue(to=5)  # type: ignore[arg-type]
