"""An app whose tasks are messages of a queue. Its handler writes what it does to a file."""

import os

from pitboss import App, ctx

app = App(name="sources")
QUEUE = "work"
HANDLER = "work"
ATTEMPTS = 2
app.queue(QUEUE, capacity=100_000)


class Refused(Exception):
    """The message cannot be worked on, however often it is tried."""


def leave(word: str) -> None:
    """One line in one write, so that lines of several processes do not mix: what was done, for which sending."""
    assert ctx.message is not None
    line = f"{word} {ctx.message.headers['sending']} {ctx.id} {ctx.token}\n"
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.task(queue=QUEUE, max_attempts=ATTEMPTS, backoff="50ms")
async def work(number: int, kind: str, padding: str) -> int:
    if kind == "bad":
        leave("failed")
        raise Refused(f"message {number} is refused")
    if kind == "flaky" and ctx.attempt == 1:
        leave("raised")
        raise ConnectionError("the first attempt fails")
    leave("ended")
    return number
