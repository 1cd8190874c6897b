"""Requests made from the OpenAPI document until there are enough: `python -m benchmarks.http_fuzz`.

Every round has a new seed and an empty store, on the memory engine, SQLite and PostgreSQL in turn. The first round on
each makes up every name, the later ones name a task, a type and a worker that exist, so that requests get further. It
ends with 1 if the server broke a promise: an answer that is not in the document, a wrong request that was taken, a
right one that was refused, any 5xx.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.http.fuzzing import CONFIG, TYPES, Findings, fuzz
from tests.http.site import Site
from tests.servers.postgres import PostgresServer

ENGINES = ("memory", "sqlite", "postgres")
EXAMPLES = 60


def knowing(site: Site, folder: Path) -> Path:
    """The settings, with the names of what exists."""
    tasks = site.http.get("/api/tasks").json()["data"]["tasks"]
    claimed = next(task["id"] for task in tasks if task["status"] == "claimed")
    names = {"task_id": claimed, "name": TYPES[0], "worker_id": "0"}
    lines = [f'"path.{name}" = "{value}"' for name, value in names.items()]
    path = folder / "schemathesis.toml"
    path.write_text("\n".join(["[parameters]", *lines, "", CONFIG.read_text()]))
    return path


def one_round(url: str, seed: int, folder: Path, *, known: bool) -> tuple[Findings, Counter[int]]:
    with Site(url=url) as site:
        if known:
            for name in TYPES:
                new = {"name": name, "version": "1", "param_schema": {"type": "object"}}
                site.http.post("/api/task-types/register", json=new)
                for number in range(20):
                    site.http.post("/api/tasks", json={"type": name, "params": {"known": number}})
            for _ in range(10):
                site.http.post("/api/tasks/claim", json={"worker_id": "0"})
        config = knowing(site, folder) if known else CONFIG
        return fuzz(site, examples=EXAMPLES, seed=seed, config=config), site.answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    asked = parser.parse_args()
    total, failures, errors, codes, number = 0, 0, 0, Counter[int](), 0
    engines = asked.engine or ENGINES
    with PostgresServer(durable=False) as server:
        while total < asked.requests or number < 2 * len(engines):
            engine, seed, began = engines[number % len(engines)], asked.seed + number, time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/store.db"}
                url = urls.get(engine) or server.create_database()
                found, answers = one_round(url, seed, Path(folder), known=number >= len(engines))
            total, failures, errors = total + found.requests, failures + found.failures, errors + found.server_errors
            codes += answers
            took = time.monotonic() - began
            print(
                f"{engine}, seed {seed}: {found.requests:,} requests in {took:.0f} s, {found.failures} failures",
                flush=True,
            )
            if found.failures or found.server_errors:
                print(found.text)
            number += 1
    told = ", ".join(f"{count:,} × {code}" for code, count in sorted(codes.items()))
    print(f"{total:,} requests, {failures} failures, {errors} server errors\n{told}")
    return 1 if failures or errors else 0


if __name__ == "__main__":
    sys.exit(main())
