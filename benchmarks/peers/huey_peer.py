"""Huey on Redis or SQLite: two consumers with 8 threads each, results off, task log off (`-q`)."""

import huey as package

from benchmarks.peers.base import TEXT, Peer, store, tool, variant
from benchmarks.tally import mark

_SQLITE = "sqlite:///"

huey = (
    package.SqliteHuey("bench", filename=store().removeprefix(_SQLITE), fsync=True, results=False)
    if variant() == "sqlite"
    else package.RedisHuey("bench", url=store(), results=False)
)


@huey.task()
def noop(n: int, text: str) -> None:
    mark(n)


class Huey(Peer):
    packages = ("huey",) if variant() == "sqlite" else ("huey", "redis", "hiredis")

    def prepare(self) -> None:
        huey.flush()

    def one(self, first: int, count: int) -> None:
        for n in range(first, first + count):
            noop(n, TEXT)

    def workers(self) -> list[list[str]]:
        command = [tool("huey_consumer"), f"{__name__}.huey", "--workers", "8", "--worker-type", "thread", "--quiet"]
        return [command, command]

    def left(self) -> int:
        return int(huey.pending_count())

    def close(self) -> None:
        huey.storage.close()


def make() -> Peer:
    return Huey()
