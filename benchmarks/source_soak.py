"""A source of RabbitMQ under faults: `make soak ARGS="sources sources-full"`, or `python -m benchmarks.source_soak`.

A Node producer feeds 20,000 messages with an id and 20,000 without, at 1,000 per second, in bursts over more than
four minutes, while workers, manager, delivery process and broker are killed, the delivery process is stopped, and
connections are cut. `--short` takes about half a minute for each store; `--stores sqlite` names the stores.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.source_check import BROKER_FAULT
from tests.faults.source_full import full_for_long
from tests.faults.source_kills import troubled
from tests.faults.source_producer import Pace
from tests.servers.postgres import PostgresServer

STORES = ("sqlite", "postgres")
PACE = Pace(total=40_000, burst=1000, period=6.3)
KINDS = (
    "source killed",
    "cut",
    "worker killed",
    BROKER_FAULT,
    "manager killed",
    "source stopped",
    "cut",
    "source killed",
    "closed by the broker",
    "worker killed",
    BROKER_FAULT,
    "source killed",
    "manager killed",
    "cut",
    "source stopped",
)
SHORT_PACE = Pace(total=3000, burst=300, period=2.0)
SHORT_KINDS = ("source killed", "worker killed", "cut", BROKER_FAULT)
# RabbitMQ looks once a minute for messages that are held for too long.
TIMEOUT, FULL_SECONDS = 60.0, 130.0
SEED = int.from_bytes(os.urandom(4))
Report = tuple[str, list[str]]


def sources(folder: Path, *, short: bool = False, stores: Sequence[str] = STORES) -> Report:
    """Nothing that the broker confirmed is lost, what has an id ends once, and dead letters are complete."""
    pace, kinds = (SHORT_PACE, SHORT_KINDS) if short else (PACE, KINDS)
    told, wrong = list[str](), list[str]()
    for name in stores:
        with _store(name, folder) as url:
            began = time.monotonic()
            verdict, _ = troubled(url, folder / name, pace, kinds, SEED)
        told.append(f"{name}, {time.monotonic() - began:.0f} s: {verdict.told}")
        wrong += [f"{name}: {one}" for one in verdict.faults]
    return f"{'; '.join(told)} (seed {SEED})", wrong


def full(folder: Path, *, stores: Sequence[str] = STORES) -> Report:
    """A full queue, for longer than the broker lets a consumer hold a message."""
    told, wrong = list[str](), list[str]()
    for name in stores:
        with _store(name, folder) as url:
            verdict = full_for_long(url, folder / f"full-{name}", TIMEOUT, FULL_SECONDS)
        told.append(f"{name}: full for {FULL_SECONDS:g} s, time-out {TIMEOUT:g} s: {verdict.told}")
        wrong += [f"{name}: {one}" for one in verdict.faults]
    return "; ".join(told), wrong


@contextmanager
def _store(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        with tempfile.TemporaryDirectory(dir=folder) as place:
            yield f"sqlite:///{place}/store.db"
    else:
        with PostgresServer() as server:
            yield server.create_database()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--short", action="store_true", help="3,000 messages and four faults")
    options.add_argument("--full", action="store_true", help="only the queue that is full for long")
    options.add_argument("--stores", default=",".join(STORES))
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pitboss-soak-") as folder:
        stores = asked.stores.split(",")
        place = Path(folder)
        told, wrong = full(place, stores=stores) if asked.full else sources(place, short=asked.short, stores=stores)
    print(told)
    print("".join(f"FAULT {fault}\n" for fault in wrong[:20]), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
