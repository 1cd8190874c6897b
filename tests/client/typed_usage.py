"""Read by mypy only: what a user's editor says of right and wrong calls."""

from typing import assert_type

from pitboss import App, Context, Handle, ctx

app = App()


@app.task
async def fetch(url: str, depth: int = 1) -> int:
    return len(url) + depth


@app.task(queue="mail", priority=3)
def send(to: str, context: Context = ctx) -> bool:
    return bool(to)


def right() -> None:
    assert_type(fetch.enqueue("u"), Handle[int])
    assert_type(fetch.enqueue("u", depth=2).result(), int)
    assert_type(send.using(delay="1m").enqueue("a").result(timeout=1), bool)
    assert_type(send("a"), bool)


async def right_async() -> None:
    assert_type(await fetch("u"), int)
    assert_type(await fetch.aenqueue("u"), Handle[int])
    assert_type(await (await fetch.aenqueue("u")).aresult(), int)


def wrong() -> None:
    fetch.enqueue()  # type: ignore[call-arg]
    fetch.enqueue(1)  # type: ignore[arg-type]
    fetch.enqueue("u", dept=2)  # type: ignore[call-arg]
    fetch.enqueue("u", 1, 2)  # type: ignore[call-arg]
    send.using(delay="1m").enqueue(to=5)  # type: ignore[arg-type]
