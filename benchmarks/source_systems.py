"""The systems that are compared on RabbitMQ, and how one measurement of one of them is made."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compare import disturbance, run_station, say, shared_memory
from benchmarks.figures import brief
from benchmarks.peers.base import STORE, VARIANT
from benchmarks.peers.rabbitmq import BROKER
from benchmarks.systems import Sizes, System
from benchmarks.tally import VARIABLE
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

Answer = dict[str, Any]
_SIZES = Sizes(0, 0, 0, 0)
_UP = "`pitboss up --workers 2 --quiet`, else defaults (prefetch 500)"
_KEPT = "acknowledged when stored; rows, results and attempts kept"


def _ours(store: str, variant: str = "") -> System:
    name = f"pitboss-{store}{f'-{variant}' if variant else ''}"
    return System(name, "pitboss_source_peer", "pitboss", store, _SIZES, "", _UP, _KEPT, variant)


def _dramatiq(variant: str, best: str) -> System:
    processes, threads, prefetch = variant.split(".")
    command = f"`dramatiq -p {processes} -t {threads}`, prefetch {prefetch}"
    kept = "acknowledged after the run; nothing kept"
    name = f"dramatiq-{processes}×{threads}-{prefetch}"
    return System(name, "dramatiq_rabbitmq_peer", "dramatiq-rabbitmq", "none", _SIZES, best, command, kept, variant)


SYSTEMS = (_ours("sqlite"), _ours("postgres"), _ours("sqlite", "ids"), _ours("postgres", "ids"))
# Processes, threads, prefetch; the first is the best that was found, the second its defaults for two cores.
PEERS = (_dramatiq("2.4.1000", "best found"), _dramatiq("2.8.16", "its defaults"))


class Sizing(NamedTuple):
    """How much of each."""

    backlogs: tuple[int, ...]
    store: int
    publish: int


class Bench:
    """Makes measurements: each has an empty virtual host of the broker and an empty store."""

    def __init__(self, broker: RabbitServer, postgres: PostgresServer, foreign: float, retries: int) -> None:
        self._broker, self._postgres, self._foreign, self._retries = broker, postgres, foreign, retries
        self.repeated = 0

    def measure(self, system: System, phase: str, **sizes: int) -> Answer:
        """Repeated if other processes were busy; the least disturbed one."""
        tries = [self._measure(system, phase, sizes)]
        while disturbance(tries[-1]) > self._foreign and len(tries) <= self._retries and "sections" in tries[-1]:
            self.repeated += 1
            tries.append(self._measure(system, phase, sizes))
        best = min(tries, key=disturbance)
        best["disturbed"] = disturbance(best) > self._foreign
        say(f"  {phase:8} {system.name:20} {'/'.join(map(str, sizes.values())):8} {brief(best)}")
        return best

    def _measure(self, system: System, phase: str, sizes: dict[str, int]) -> Answer:
        with (
            tempfile.TemporaryDirectory(prefix="pitboss-bench-") as name,
            self._store(system.server, Path(name)) as (url, pids),
            self._vhost() as vhost,
            shared_memory() as tally,
        ):
            order = {
                "module": f"benchmarks.peers.{system.module}",
                "phase": phase,
                "sizes": sizes,
                "folder": name,
                "driver": os.getpid(),
                "broker": [self._broker.pid, *pids],
            }
            environment = {STORE: url, VARIANT: system.variant, VARIABLE: str(tally), BROKER: self._broker.url(vhost)}
            return run_station(system, order, environment)

    @contextmanager
    def _vhost(self) -> Iterator[str]:
        name = self._broker.make_vhost()
        yield name
        self._broker.delete_vhost(name)

    @contextmanager
    def _store(self, kind: str, folder: Path) -> Iterator[tuple[str, list[int]]]:
        if kind == "postgres":
            dsn = self._postgres.create_database()
            yield dsn, [self._postgres.pid]
            # Dropped, because autovacuum of its tables would disturb the next system.
            self._postgres.drop_database(dsn)
        else:
            yield f"sqlite:///{folder / 'bench.db'}", []
