"""Sources on RabbitMQ beside Dramatiq: `python -m benchmarks.source_bench [--quick] [--parts peers,memory,idle]`.

It is a part of `make bench`, and writes `benchmarks/sources.md`. Systems take turns, medians of the repetitions; every
measurement has an empty store and an empty virtual host of one RabbitMQ server.
"""

import argparse
import contextlib
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.circumstances import machine, servers
from benchmarks.compare import say
from benchmarks.environments import BUILD, ROOT, interpreter
from benchmarks.resource_report import table
from benchmarks.source_app import CAPACITY
from benchmarks.source_rest import idle, memory
from benchmarks.source_systems import PEERS, SYSTEMS, Bench, Sizing
from benchmarks.systems import System
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer

PAGE = ROOT / "benchmarks" / "sources.md"
PARTS = ("peers", "memory", "idle")
SIZING, QUICK = Sizing((2000, 20_000), 50_000, 10_000), Sizing((2000,), 5000, 1000)
MILLION, MEMORY_SECONDS, IDLE_SECONDS = 1_000_000, 30.0, 60.0
STORES = ["sqlite", "postgres"]
_PAGE_TITLE = "# Sources: what was measured on RabbitMQ\n"


class Bar(NamedTuple):
    """A requirement, and the figure of one system."""

    what: str
    least: float
    figure: float

    def __str__(self) -> str:
        verdict = "met" if self.figure >= self.least else "**missed**"
        return f"{self.what}: {self.figure:,.2f} (at least {self.least:g}), {verdict}"


class Rates:
    """Every figure of every system, by its name."""

    def __init__(self) -> None:
        self._found = defaultdict[tuple[str, str], list[float]](list)
        self.troubles: list[str] = []

    def add(self, system: System, name: str, answer: dict[str, Any]) -> None:
        if "sections" not in answer:
            text = str(answer.get("error") or answer.get("stalled")).strip().splitlines()[-1]
            self.troubles.append(f"{system.name}, {name}: {text}")
            return
        for section, figures in answer["sections"].items():
            label = name if section in ("backlog", "store") else section
            self._found[system.name, label].append(figures["rate"])
            if "cpu_per_task" in figures:
                self._found[system.name, f"{label}, µs"].append(sum(figures["cpu_per_task"].values()))
            if figures.get("lost") or figures.get("twice"):
                self.troubles.append(f"{system.name}, {name}: {figures['lost']} lost, {figures['twice']} twice")

    def median(self, system: str, name: str) -> float:
        found = self._found.get((system, name))
        return statistics.median(found) if found else float("nan")

    def text(self, system: str, name: str) -> str:
        found = self._found.get((system, name), [])
        if not found:
            return "–"
        spread = f" ({min(found):,.0f}–{max(found):,.0f})" if len(found) > 1 else ""
        return f"{statistics.median(found):,.0f}{spread}"

    def as_json(self) -> dict[str, list[float]]:
        return {" / ".join(key): value for key, value in self._found.items()}


def peers(given: argparse.Namespace) -> str:
    """The comparison as text."""
    sizing = QUICK if given.quick else SIZING
    systems, rates = [*SYSTEMS, *PEERS], Rates()
    for system in systems:
        interpreter(system.environment)
    with contextlib.ExitStack() as stack:
        broker, postgres = stack.enter_context(RabbitServer()), stack.enter_context(PostgresServer())
        bench = Bench(broker, postgres, given.foreign, given.retries)
        for repetition in range(given.repetitions):
            say(f"repetition {repetition + 1} of {given.repetitions}")
            # The order turns round each time: the first one meets what the measurement before it left behind.
            _measure(bench, systems[:: -1 if repetition % 2 else 1], sizing, rates)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "sources.json").write_text(json.dumps(rates.as_json(), indent=1))
    return _peers_text(rates, systems, sizing, bench.repeated)


def _measure(bench: Bench, systems: Iterable[System], sizing: Sizing, rates: Rates) -> None:
    chosen = list(systems)
    for size in sizing.backlogs:
        for system in chosen:
            rates.add(system, _backlog(size), bench.measure(system, "backlog", backlog=size))
    for system in (one for one in chosen if one.ours):
        rates.add(system, "stored", bench.measure(system, "store", backlog=sizing.store))
    # Ids are of no account here, nor is the number of threads.
    for system in (one for one in chosen if one in (*SYSTEMS[:2], PEERS[0])):
        rates.add(system, "publish", bench.measure(system, "publish", publish=sizing.publish, workers=int(system.ours)))


def _backlog(size: int) -> str:
    return f"{size:,} waiting"


def _peers_text(rates: Rates, systems: list[System], sizing: Sizing, repeated: int) -> str:
    names = [_backlog(size) for size in sizing.backlogs]
    columns = [*names, f"{names[-1]}, µs", "stored"]
    head = ["system", *names, "CPU µs/message", "stored and acknowledged", "how it was run"]
    rows = [[one.name, *(rates.text(one.name, name) for name in columns), one.workers] for one in systems]
    ways = ("raw", "outbox", "publish_to, many", "publish_to, one by one", "send")
    publishers = [one for one in systems if one in (*SYSTEMS[:2], PEERS[0])]
    sent = [[one.name, *(rates.text(one.name, way) for way in ways)] for one in publishers]
    bars = _bars(rates, names[-1])
    return "\n".join(
        [
            f"{repeated} measurement(s) were repeated because other processes were busy.\n",
            "### Consume, run, settle: messages per second\n",
            table(head, rows),
            "\n### Publish with confirms: messages per second\n",
            table(["system", *ways], sent),
            "\n### Requirements\n",
            *(f"- {bar}" for bar in bars),
            *(f"- without a figure: {trouble}" for trouble in rates.troubles),
        ]
    )


def _bars(rates: Rates, backlog: str) -> list[Bar]:
    bars = []
    for one in SYSTEMS[:2]:
        for peer in PEERS:
            ratio = rates.median(one.name, backlog) / rates.median(peer.name, backlog)
            bars.append(Bar(f"{one.name} against {peer.name} ({peer.best}), {backlog}", 1.5, ratio))
        for way in ("outbox", "raw"):
            ratio = rates.median(one.name, way) / rates.median(PEERS[0].name, "send")
            bars.append(Bar(f"{one.name} publishes ({way}) against send", 3, ratio))
        bars.append(Bar(f"{one.name}, stored and acknowledged per second", 8000, rates.median(one.name, "stored")))
    return bars


def memory_text(given: argparse.Namespace) -> str:
    messages, seconds = (20_000, 5.0) if given.quick else (MILLION, MEMORY_SECONDS)
    found = memory(STORES, messages, seconds)
    rows = [[kind, *(f"{size:.1f}" for size in sizes.values())] for kind, sizes in found.items()]
    told = table(["store", *next(iter(found.values()))], rows)
    return f"### Memory of the delivery process, MB\n\n{messages:,} messages wait; capacity {CAPACITY:,}.\n\n{told}"


def idle_text(given: argparse.Namespace) -> str:
    found = idle(STORES, 5.0 if given.quick else IDLE_SECONDS)
    rows = [[kind, *(f"{share:.2f}" for share in shares.values())] for kind, shares in found.items()]
    told = table(["store", *next(iter(found.values()))], rows)
    return f"### Processor time of an idle delivery process, % of a core\n\n{told}"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source_bench", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--repetitions", type=int, help="default 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small, once: about three minutes")
    parser.add_argument("--foreign", type=float, default=0.3, help="cores that other processes may use (default 0.3)")
    parser.add_argument("--retries", type=int, default=2, help="repeats of a disturbed measurement (default 2)")
    parser.add_argument("--output", type=Path, help="default benchmarks/sources.md, quick build/bench/sources.md")
    given = parser.parse_args()
    given.repetitions = given.repetitions or (1 if given.quick else 3)
    given.output = given.output or (BUILD / "sources.md" if given.quick else PAGE)
    return given


def main() -> int:
    given = options()
    makers = {"peers": peers, "memory": memory_text, "idle": idle_text}
    parts = [makers[name](given) for name in given.parts.split(",")]
    facts = f"{datetime.now(UTC):%Y-%m-%d}. {machine()}; {servers()}; {given.repetitions} repetition(s), medians.\n"
    text = "\n".join([_PAGE_TITLE, facts, *(f"{part}\n" for part in parts)])
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text)
    print(text)
    say(f"written to {given.output}")
    return 1 if "**missed**" in text else 0


if __name__ == "__main__":
    sys.exit(main())
