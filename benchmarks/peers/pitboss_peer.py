"""Pitboss: `pitboss up` with two workers and otherwise its defaults. Rows, results and attempts are kept."""

import asyncio

from benchmarks.peers.base import TEXT, Peer, store, tool
from benchmarks.tally import mark
from pitboss import App, wiring
from pitboss.model.filter import by
from pitboss.model.states import State

app = App(store())


@app.task
async def noop(n: int, text: str) -> None:
    mark(n)


class Pitboss(Peer):
    packages = ("pitboss",)
    sizes = (1000, 10_000)

    def __init__(self) -> None:
        self._runner, self._engine = asyncio.Runner(), wiring.make_engine(store())

    def prepare(self) -> None:
        self._runner.run(self._engine.open())

    def one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            noop.enqueue(n, TEXT)

    def many(self, first: int, count: int, size: int) -> None:
        for begin in range(first, first + count, size):
            numbers = range(begin, min(begin + size, first + count))
            noop.enqueue_many({"n": n, "text": TEXT} for n in numbers)

    def workers(self) -> list[list[str]]:
        return [[tool("pitboss"), "up", f"{__name__}:app", "--workers", "2", "--quiet"]]

    def left(self) -> int:
        unfinished = by(state=[state for state in State if not state.finished])
        return self._runner.run(self._engine.count(unfinished)).number

    def close(self) -> None:
        app.close()
        self._runner.run(self._engine.close())
        self._runner.close()


def make() -> Peer:
    return Pitboss()
