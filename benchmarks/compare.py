"""Compares Pitboss with its peers: `python -m benchmarks.compare [--only a,b] [--repetitions 3] [--quick]`.

Each measurement has a fresh store and its own process in the system's environment. Systems take turns within a phase,
so that a slow moment of the machine affects all of them. The report compares medians of the repetitions. If other
processes of the machine were busy, the measurement is repeated.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from benchmarks import raw, report
from benchmarks.environments import BUILD, ROOT, interpreter
from benchmarks.figures import all_ran_once, brief
from benchmarks.peers.base import STORE, VARIANT
from benchmarks.procfs import Load
from benchmarks.redis_server import RedisServer
from benchmarks.systems import QUICK, SYSTEMS, System
from benchmarks.tally import VARIABLE
from tests.servers.postgres import PostgresServer

PHASES = ("enqueue", "drain", "e2e", "idle")
_LIMIT_SECONDS = 600
_SHM = Path("/dev/shm")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    names = ", ".join(system.name for system in SYSTEMS)
    parser.add_argument("--only", metavar="A,B", help=f"only these systems: {names}")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help="measure the Pitboss of another checkout as well, in turn with ours",
    )
    parser.add_argument("--phases", metavar="A,B", default=",".join(PHASES), help="only these phases (default: all)")
    parser.add_argument("--repetitions", type=int, help="default 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="a few systems and fewer tasks: about three minutes")
    parser.add_argument("--scale", type=float, help="multiplies the number of tasks (default 1, quick 0.25)")
    parser.add_argument("--foreign", type=float, default=0.3, help="cores that other processes may use (default 0.3)")
    parser.add_argument("--retries", type=int, help="repeats of a disturbed measurement (default 3, quick 1)")
    parser.add_argument("--output", type=Path, help="the report (default benchmarks/results.md, quick build/bench/)")
    chosen = parser.parse_args()
    for name, usual, quick in (("repetitions", 3, 1), ("scale", 1.0, 0.25), ("retries", 3, 1)):
        if getattr(chosen, name) is None:
            setattr(chosen, name, quick if chosen.quick else usual)
    chosen.output = chosen.output or (BUILD / "quick.md" if chosen.quick else ROOT / "benchmarks" / "results.md")
    return chosen


def chosen_systems(given: argparse.Namespace) -> list[System]:
    known = {system.name: system for system in SYSTEMS}
    names = given.only.split(",") if given.only else QUICK if given.quick else known
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no such system: {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in names]
    if given.before is None:
        return chosen
    folder = str(given.before.resolve(strict=True))
    return [one for system in chosen for one in (system, *_before(system, folder))]


def _before(system: System, folder: str) -> list[System]:
    return [system._replace(name=f"{system.name}-before", environment=folder)] if system.ours else []


class Servers:
    """Starts the servers that the chosen systems need, and makes a fresh store for every measurement."""

    def __init__(self, systems: list[System], stack: contextlib.ExitStack) -> None:
        needed = {system.server for system in systems}
        self._postgres = stack.enter_context(PostgresServer()) if "postgres" in needed else None
        self._redis = stack.enter_context(RedisServer()) if "redis" in needed else None

    @contextlib.contextmanager
    def store(self, kind: str, folder: Path) -> Iterator[tuple[str, list[int]]]:
        """A store's URL and the pids of its server."""
        if self._postgres is not None and kind == "postgres":
            dsn = self._postgres.create_database()
            try:
                yield dsn, [self._postgres.pid]
            finally:
                # Dropped, because autovacuum of its tables would disturb the next system.
                drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(dsn.rpartition("/")[2]))
                with psycopg.connect(self._postgres.dsn, autocommit=True) as connection:
                    connection.execute(drop)
        elif self._redis is not None and kind == "redis":
            self._redis.ask("FLUSHALL")
            yield self._redis.url, [self._redis.pid]
        else:
            yield f"sqlite:///{folder / 'bench.db'}", []


class Comparison:
    def __init__(self, given: argparse.Namespace, servers: Servers) -> None:
        self._given, self._servers = given, servers
        self.repeated = 0

    def measure(self, system: System, phase: str) -> dict[str, Any]:
        """One phase of one system, repeated if other processes were busy; returns the least disturbed measurement."""
        tries: list[dict[str, Any]] = []
        while True:
            tries.append(self._measure(system, phase))
            quiet = disturbance(tries[-1]) <= self._given.foreign
            if quiet or len(tries) > self._given.retries or "error" in tries[-1]:
                break
            self.repeated += 1
        best = min(tries, key=disturbance)
        best["disturbed"] = disturbance(best) > self._given.foreign
        say(f"  {phase:8} {system.name:20} {brief(best)}")
        return best

    def measure_raw(self, kind: str) -> dict[str, float]:
        """Rows per second of the store itself, repeated if other processes were busy."""
        tries: list[tuple[float, dict[str, float]]] = []
        while len(tries) <= self._given.retries and (not tries or tries[-1][0] > self._given.foreign):
            before = Load.now(os.getpid())
            rates = asyncio.run(raw.measure(kind, self._given.scale))
            tries.append((Load.now(os.getpid()).foreign_since(before), rates))
        self.repeated += len(tries) - 1
        best = min(tries, key=lambda one: one[0])[1]
        say(f"  raw      {kind:20} " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in best.items()))
        return best

    def _measure(self, system: System, phase: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="pitboss-bench-") as name:
            folder = Path(name)
            with self._servers.store(system.server, folder) as (url, pids), shared_memory() as tally:
                order = {
                    "module": f"benchmarks.peers.{system.module}",
                    "phase": phase,
                    "sizes": self._sizes(system),
                    "folder": name,
                    "driver": os.getpid(),
                    "broker": pids,
                }
                return run_station(system, order, {STORE: url, VARIANT: system.variant, VARIABLE: str(tally)})

    def _sizes(self, system: System) -> dict[str, int]:
        scale = self._given.scale
        numbers = {name: max(20, round(count * scale)) for name, count in system.sizes._asdict().items()}
        long = scale >= 1
        return {**numbers, "samples": 200 if long else 50, "idle_seconds": 10 if long else 3}


@contextlib.contextmanager
def shared_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pitboss-tally-", dir=_SHM if _SHM.is_dir() else None) as folder:
        yield Path(folder) / "tally"


def run_station(system: System, order: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    command = [str(interpreter(system.environment)), "-m", "benchmarks.station", json.dumps(order)]
    surroundings = {
        **os.environ,
        **environment,
        "PYTHONPATH": system.environment if "/" in system.environment else str(ROOT),
    }
    try:
        done = subprocess.run(
            command,
            cwd=order["folder"],
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_LIMIT_SECONDS} s"}
    if done.returncode:
        return {"error": done.stderr[-3000:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def disturbance(answer: dict[str, Any]) -> float:
    """Cores that other processes used in the worst of its sections."""
    sections = answer.get("sections")
    return max(section["foreign"] for section in sections.values()) if sections else float("inf")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    given = options()
    systems = chosen_systems(given)
    for system in systems:
        interpreter(system.environment)
    results: dict[str, Any] = {system.name: {phase: [] for phase in PHASES} for system in systems}
    kinds = [kind for kind in ("sqlite", "postgres") if f"pitboss-{kind}" in results]
    limits: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        comparison = Comparison(given, Servers(systems, stack))
        for repetition in range(given.repetitions):
            say(f"repetition {repetition + 1} of {given.repetitions}")
            for kind in kinds:
                limits[kind].append(comparison.measure_raw(kind))
            for phase in given.phases.split(","):
                # The order turns round each time: the first one meets what the measurement before it left behind.
                for system in systems[:: -1 if repetition % 2 else 1]:
                    results[system.name][phase].append(comparison.measure(system, phase))
    text = report.written(given, systems, results, limits, comparison.repeated)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "results.json").write_text(json.dumps({"results": results, "raw": limits}, indent=1))
    print(text)
    say(f"written to {given.output}")
    return 0 if all_ran_once(results) else 1


if __name__ == "__main__":
    sys.exit(main())
