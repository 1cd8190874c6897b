"""When, where and how a comparison was made: the text before the tables."""

import argparse
import os
import platform
import sqlite3
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.servers.postgres import find_binaries


def circumstances(given: argparse.Namespace, repeated: int, disturbed: int) -> str:
    """The whole text."""
    quick = " **A quick run with fewer tasks: only rough.**" if given.scale < 1 else ""
    return f"""\
{datetime.now(UTC):%Y-%m-%d}. {machine()}; {servers()}. Producer, workers and server share the cores.{quick}

A task is a no-op that takes an int and a text of 60 characters. Two worker processes; {given.repetitions} \
repetition(s) in which the systems take turns; medians (smallest–largest). Absolute figures apply to this run on this \
machine: compare the ratios. PostgreSQL has its defaults (fsync and synchronous_commit on), SQLite WAL with \
synchronous=FULL. Redis has its built-in defaults: it answers **before anything is on the disk**, and loses what came \
after its last snapshot if the machine fails.

- *enqueue n*: n tasks per call, one producer, no workers. ≈: the system has no call for many; several sent at once.
- *drain*: a backlog first, then the workers; from the first to the last task that ran. *With start-up*: from the \
start of the processes. *Settled after*: from the last task that ran to the moment when all are done in the store.
- *end to end*: one producer puts all tasks in its best way while workers run; from its first call to the last task.
- *pickup*: one task on an idle system, from before the call that enqueues it to the start of its handler; pauses of \
20 to 120 ms between samples.
- *idle CPU*: manager and workers with nothing to do; next to it the database server or broker (100 % is one core).
- *MB*: PSS at the end of a drain, of all processes that run tasks, and of all their managers.
- *CPU µs/task*: of every process: producer and server while enqueueing in the best way, manager, workers and server \
while running (after the first tenth, so without start-up).
- *bare SQL*: the same row changes with nothing on top and one client; in *drain*, claim and settle of 1000 each.

A task counts as run when its handler runs. Every handler writes the time to shared memory, in the same way for all \
systems (`benchmarks/tally.py`). This also shows that each task ran exactly once. {repeated} measurement(s) were \
repeated because other processes used more than {given.foreign:g} cores meanwhile; {disturbed} stayed disturbed.
"""


def machine() -> str:
    names = Path("/etc/os-release").read_text().splitlines()
    system = next((line.partition("=")[2].strip('"') for line in names if line.startswith("PRETTY_NAME=")), "Linux")
    cpu = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in cpu if line.startswith("model name")), platform.machine())
    disk = _said("df", "--output=fstype", tempfile.gettempdir()).split()[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = os.cpu_count()
    return f"{cores} cores ({model}), {memory:.0f} GB, {system}, Python {platform.python_version()}, stores on {disk}"


def servers() -> str:
    postgres = _said(str(find_binaries() / "postgres"), "--version").split()
    redis = next((word for word in _said("redis-server", "--version").split() if word.startswith("v=")), "v=?")
    return f"SQLite {sqlite3.sqlite_version}, PostgreSQL {postgres[2]}, Redis {redis[2:]}"


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return "? ? ?"
