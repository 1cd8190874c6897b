"""The long reliability proofs, one after the other, with a summary: `make soak`, or `make soak ARGS="power-loss"`.

They are tests of tests/faults, tests/manager, tests/races and tests/simulate, run longer. The figures of the last run
are in docs/explanation/reliability.md and docs/supervision.md.
"""

import asyncio
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

from benchmarks.http_fuzz import REQUESTS, rounds
from benchmarks.schedule_soak import schedules
from benchmarks.source_soak import full as sources_full
from benchmarks.source_soak import sources
from benchmarks.supervision import recovery, rolling_restarts
from tests.faults.batch_kills import killed_at_steps
from tests.faults.crowd import crowded, crowded_around_batches, deadlocks
from tests.faults.event_kills import Kills, killed_while_publishing
from tests.faults.failure_kills import killed_at_steps as killed_at_failures
from tests.faults.line import complaints, stand_in_line, table
from tests.faults.order_crowd import crowded_in_order
from tests.faults.partition_kills import troubled as troubled_partitions
from tests.faults.power import Start, lose_power
from tests.faults.remote_race import race
from tests.faults.test_postgres_outages import cut_off, halted, killed, troubled
from tests.faults.test_power_loss import LOADS
from tests.races.scene import Scene
from tests.servers.postgres import PostgresServer
from tests.simulate.guilt_world import BARS, PRECISION, WORLDS, scored
from tests.simulate.partition_world import PartitionWorld
from tests.simulate.resource_world import World

SECONDS = 60.0
TASKS = 5000
EVENTS = 10_000
TARGETS = 20_000
# How many joins, restarts and kills a run on a busy machine must have measured to prove anything.
MEASURED_AT_LEAST = 3
POOLS = 5000
HISTORIES = 1000
GUILTY = 200
DIVISIONS = 2000
SEED = int.from_bytes(os.urandom(4))
Report = tuple[str, list[str]]


def power_loss(folder: Path) -> Report:
    """3,000 losses of power over 20 recordings, some of which begin where another was cut off."""
    rng, crashes, unsynced, faults = Random(SEED), 0, 0, list[str]()
    survivor = Start()
    for number in range(20):
        load = list(LOADS.values())[number % len(LOADS)]
        start = survivor if number % 5 == 4 else Start()
        losses = lose_power(folder / str(number), rng, 150, *load, start=start)
        survivor = losses.survivor
        crashes, unsynced, faults = crashes + losses.crashes, unsynced + losses.unsynced, faults + losses.faults
    return f"{crashes} losses of power, {unsynced} with unsynced changes (seed {SEED})", faults


def large_log(folder: Path) -> Report:
    """The shipped checkpoint, reached by writing more than the 16 MiB that it waits for."""
    losses = lose_power(folder, Random(SEED), 200, "--acts", "150", "--size", "60000")
    told = (
        f"{losses.crashes} losses of power, {losses.unsynced} with unsynced changes, {losses.checkpoints} checkpoints"
    )
    return told, losses.faults + ([] if losses.checkpoints > 1 else ["the log was never emptied"])


def line(folder: Path) -> Report:
    turns = stand_in_line(folder, SECONDS)
    print(table(turns))
    acts = sum(one.acts for one in turns)
    worst = max(one.wait(0.99) for one in turns) * 1000
    return f"{acts} turns of 8 processes in {SECONDS:g} s, p99 of the worst {worst:.0f} ms", complaints(turns)


def crowd(_: Path) -> Report:
    with PostgresServer() as server:
        return _counted(*crowded(server.create_database(), SECONDS))


def batch_crowd(_: Path) -> Report:
    with PostgresServer() as server:
        return _counted(*crowded_around_batches(server.create_database(), SECONDS))


def _counted(done: Counter[str], faults: list[str]) -> Report:
    return ", ".join(f"{name} {number}" for name, number in sorted(done.items())), faults


def batch_kills(folder: Path) -> Report:
    """A kill at every step of the work on batches; `make test` tries one step in five."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for name, url in (("sqlite", f"sqlite:///{folder}/store.db"), ("postgres", server.create_database())):
            killed = asyncio.run(killed_at_steps(url, stride=1))
            told.append(f"{name}: {len(killed.places)} kills at {len(set(killed.places))} places")
            faults += [f"{name}: {fault}" for fault in killed.faults]
    return "; ".join(told), faults


def failure_kills(folder: Path) -> Report:
    """A kill at every step, also between statements, of declaring, publishing, firing and every way to fail."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for name, url in (("sqlite", f"sqlite:///{folder}/store.db"), ("postgres", server.create_database())):
            killed = asyncio.run(killed_at_failures(url, stride=1))
            told.append(f"{name}: {len(killed.places)} kills at {len(set(killed.places))} places")
            faults += [f"{name}: {fault}" for fault in killed.faults]
    return "; ".join(told), faults


def events(folder: Path) -> Report:
    """Events for five handlers, while publisher, workers and managers are killed again and again."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for name, url in (("sqlite", f"sqlite:///{folder}/events.db"), ("postgres", server.create_database())):
            ended = killed_while_publishing(url, folder / name, EVENTS, Kills(15, 40, 12), SEED, limit=3600.0)
            told.append(f"{name}: {EVENTS} events, {ended}")
            faults += [f"{name}: {fault}" for fault in ended.faults]
    return f"{'; '.join(told)} (seed {SEED})", faults


def partitions(folder: Path) -> Report:
    """Workers and managers join, leave, are killed, paused and restarted while they work on divided queues."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for mode in ("balanced", "static"):
            ended = troubled_partitions(server.create_database(), folder / mode, mode, TARGETS, 5, SEED, ttl=10.0)
            told.append(f"{mode}: {ended}")
            faults += [f"{mode}: {fault}" for fault in (*ended.faults, *ended.unmeasured(MEASURED_AT_LEAST))]
    return f"{'; '.join(told)} (seed {SEED})", faults


def order_crowd(folder: Path) -> Report:
    """Four processes around three order keys."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        dsn = server.create_database()
        for name, url in (("sqlite", f"sqlite:///{folder}/order.db"), ("postgres", dsn)):
            place = folder / name
            place.mkdir()
            crowd = asyncio.run(crowded_in_order(url, place, SECONDS, SEED))
            told.append(f"{name}: {crowd.done['claimed']} claims, {crowd.done['lost']} lost, {crowd.looks} looks")
            faults += [f"{name}: {fault}" for fault in crowd.faults]
        found = deadlocks(dsn)
    return f"{'; '.join(told)} (seed {SEED})", faults + ([f"{found} deadlocks"] if found else [])


def outages(_: Path) -> Report:
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for trouble, times in ((killed, 5), (cut_off, 12), (halted, 2)):
            came = troubled(server, server.create_database(), trouble, times, TASKS)
            told.append(f"{trouble.__name__} {times}×: {came.ended} ended, {came.runs} runs")
            faults += came.faults + ([] if came.ended == TASKS else [f"{came.ended} of {TASKS} ended"])
    return "; ".join(told), faults


def simulated_pools(_: Path) -> Report:
    """Random pools in virtual time: no limit is exceeded, and no member is idle that a task could have."""
    uses, faults = 0, list[str]()
    for seed in range(POOLS):
        world = World(seed)
        faults += [f"seed {seed}: {fault}" for fault in world.run()]
        uses += world.log.count()
    return f"{POOLS} pools, {uses} uses", faults


def simulated_histories(_: Path) -> Report:
    """The dispatcher in virtual time, with calls that get lost and hosts that stop; each history is checked."""
    losses, faults = 0, list[str]()
    for seed in range(HISTORIES):
        scene = Scene(seed)
        faults += [f"seed {seed}: {violation}" for violation in scene.run()]
        losses += scene.losses.bitten
    return f"{HISTORIES} histories, {losses} losses", faults


def simulated_guilt(_: Path) -> Report:
    """Members at fault among innocent ones: how many are found within 25 uses, and how many are found wrongly."""
    told, faults = list[str](), list[str]()
    for (name, plan), (rate, recall) in product(WORLDS.items(), BARS.items()):
        score = scored(plan._replace(rate=rate), GUILTY)
        told.append(f"{name}, failing {rate:.0%}: {score}")
        faults += [told[-1]] if score.precision < PRECISION or score.recall < recall else []
    return "; ".join(told), faults


def simulated_partitions(_: Path) -> Report:
    """Managers that come, go, die and stand still: no key has two live owners, and few keys move."""
    measured, faults = Counter[str](), list[str]()
    for seed in range(DIVISIONS):
        world = PartitionWorld(seed)
        faults += [f"seed {seed}: {fault}" for fault in world.run()]
        measured += world.measured
    told = ", ".join(f"{count} × {what}" for what, count in sorted(measured.items()))
    return f"{DIVISIONS} histories; {told}", faults


def remote_race(folder: Path) -> Report:
    """Two remote workers, one stopped past its claims, and the server killed twice, on both stores."""
    told, faults = [], list[str]()
    with PostgresServer() as server:
        for name, url in (("sqlite", f"sqlite:///{folder}/race.db"), ("postgres", server.create_database())):
            ended = race(folder / name, url, tasks=TASKS, kills=2)
            told.append(f"{name}: {len(ended.accepted)} accepted in {ended.runs} runs, {ended.late} late")
            faults += [f"{name}: {fault}" for fault in ended.faults(TASKS)]
    return "; ".join(told), faults


def http_fuzz(_folder: Path) -> Report:
    """Requests made from the OpenAPI document, right and wrong ones, on every engine."""
    done = list(rounds(REQUESTS, SEED))
    faults = [f"{one.engine}, seed {one.seed}: {one.faults} failures" for one in done if one.faults]
    return f"{sum(one.found.requests for one in done)} requests in {len(done)} rounds (seed {SEED})", faults


PROOFS: dict[str, Callable[[Path], Report]] = {
    "power-loss": power_loss,
    "large-log": large_log,
    "line": line,
    "crowd": crowd,
    "batch-crowd": batch_crowd,
    "batch-kills": batch_kills,
    "failure-kills": failure_kills,
    "events": events,
    "partitions": partitions,
    "order-crowd": order_crowd,
    "outages": outages,
    "remote-race": remote_race,
    "http-fuzz": http_fuzz,
    "simulated-pools": simulated_pools,
    "simulated-histories": simulated_histories,
    "simulated-guilt": simulated_guilt,
    "simulated-partitions": simulated_partitions,
    "rolling": rolling_restarts,
    "recovery": recovery,
    "schedules": schedules,
    "sources": sources,
    "sources-full": sources_full,
}


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(PROOFS)
    if unknown:
        print(f"no such proof: {', '.join(sorted(unknown))}; there are {', '.join(PROOFS)}")
        return 2
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    failed = 0
    for name in wanted or PROOFS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pitboss-soak-") as folder:
            told, faults = PROOFS[name](Path(folder))
        failed += bool(faults)
        print(f"{'FAILED' if faults else 'ok':<7} {name:<19} {time.monotonic() - begun:5.0f} s  {told}")
        print("".join(f"        {fault}\n" for fault in faults[:10]), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
