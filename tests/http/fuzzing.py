"""schemathesis against a running site: right and wrong requests made from the OpenAPI document, and every check."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.http.site import Site

CONFIG = Path(__file__).with_name("schemathesis.toml")
TYPES = ("echo", "video.scrape")


class Findings(NamedTuple):
    """`text` is the whole report."""

    requests: int
    server_errors: int
    failures: int
    text: str


def prepare(site: Site) -> str:
    """Task types, tasks, a claim and a key that opens everything: without a key `ignored_auth` would find nothing."""
    key = site.key("admin", name="fuzzer")
    headers = {"X-API-Key": key}
    for name in TYPES:
        new = {"name": name, "version": "1", "param_schema": {"type": "object"}}
        site.http.post("/api/task-types/register", json=new, headers=headers).raise_for_status()
        for number in range(5):
            task = {"type": name, "params": {"number": number}}
            site.http.post("/api/tasks", json=task, headers=headers).raise_for_status()
    site.http.post("/api/tasks/claim", json={"worker_id": "0"}, headers=headers).raise_for_status()
    return key


def fuzz(site: Site, *, examples: int, seed: int, workers: int = 1, config: Path = CONFIG) -> Findings:
    """All phases and all checks; `examples` for each operation and phase."""
    key, before = prepare(site), site.answers.total()
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(config),
        "run",
        f"{site.url}/openapi.json",
    ]
    command += ["--header", f"X-API-Key:{key}", "--max-examples", str(examples)]
    command += ["--seed", str(seed), "--workers", str(workers), "--continue-on-failure", "--no-shrink", "--no-color"]
    command += ["--request-timeout", "60", "--generation-database", "none", "--suppress-health-check", "all"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = re.search(r"found (\d+) unique failure", done.stdout)
    failures = int(found[1]) if found else int(done.returncode != 0)
    # A queue may be full.
    errors = sum(count for code, count in site.answers.items() if code >= 500 and code != 503)
    return Findings(site.answers.total() - before, errors, failures, done.stdout)
