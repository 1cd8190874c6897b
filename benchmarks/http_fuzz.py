"""Requests made from the OpenAPI document until there are enough: `python -m benchmarks.http_fuzz`.

Every round has a new seed and an empty store, on the memory engine, SQLite and PostgreSQL in turn. The first round on
each makes up every name, the later ones name a task, a type and a worker that exist, so that requests get further. It
ends with 1 if the server broke a promise: an answer that is not in the document, a wrong request that was taken, a
right one that was refused, a 5xx other than 503 for a full queue.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.http.fuzzing import CONFIG, TYPES, Findings, fuzz
from tests.http.site import Site
from tests.servers.postgres import PostgresServer

ENGINES = ("memory", "sqlite", "postgres")
EXAMPLES = 60
REQUESTS = 20_000
WORKER = "0"


class Round(NamedTuple):
    engine: str
    seed: int
    seconds: float
    found: Findings
    answers: Counter[int]

    @property
    def faults(self) -> int:
        return self.found.failures + self.found.server_errors


def rounds(requests: int, seed: int, engines: Sequence[str] = ENGINES) -> Iterator[Round]:
    """At least two on each engine, and as many as it takes to make this many requests."""
    made = 0
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(durable=False)) if "postgres" in engines else None
        for number in range(1_000):
            if made >= requests and number >= 2 * len(engines):
                return
            engine = engines[number % len(engines)]
            with tempfile.TemporaryDirectory(prefix="pitboss-fuzz-") as folder:
                urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/store.db"}
                url = server.create_database() if server and engine == "postgres" else urls[engine]
                done = _round(engine, url, seed + number, Path(folder), known=number >= len(engines))
            made += done.found.requests
            yield done


def _round(engine: str, url: str, seed: int, folder: Path, *, known: bool) -> Round:
    began = time.monotonic()
    with Site(url=url) as site:
        config = _with_names(site, folder) if known else CONFIG
        found = fuzz(site, examples=EXAMPLES, seed=seed, config=config)
        return Round(engine, seed, time.monotonic() - began, found, site.answers)


def _with_names(site: Site, folder: Path) -> Path:
    """Make a task, a type and a worker, and settings that name them."""
    post, name = site.http.post, TYPES[0]
    post("/api/task-types/register", json={"name": name, "version": "1", "param_schema": {"type": "object"}})
    post("/api/tasks", json={"type": name, "params": {"known": True}})
    post("/api/workers/register", json={"worker_id": WORKER})
    task = post("/api/tasks/claim", json={"worker_id": WORKER}).json()["id"]
    names = {"task_id": task, "name": name, "worker_id": WORKER}
    lines = [f'"path.{place}" = "{value}"' for place, value in names.items()]
    path = folder / "schemathesis.toml"
    path.write_text("\n".join(["[parameters]", *lines, "", CONFIG.read_text()]))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    asked = parser.parse_args()
    requests, faults, codes = 0, 0, Counter[int]()
    for one in rounds(asked.requests, asked.seed, asked.engine or ENGINES):
        requests, faults, codes = requests + one.found.requests, faults + one.faults, codes + one.answers
        told = f"{one.found.requests:,} requests in {one.seconds:.0f} s, {one.faults} failures"
        print(f"{one.engine}, seed {one.seed}: {told}", flush=True)
        if one.faults:
            print(one.found.text)
    print(f"{requests:,} requests, {faults} failures")
    print(", ".join(f"{count:,} × {code}" for code, count in sorted(codes.items())))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
