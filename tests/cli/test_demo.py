"""`make demo`: what a newcomer sees first."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_demo_shows_every_kind_of_task_and_ends_by_itself() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "demo.sh"],
        env={**os.environ, "DEMO_SECONDS": "10", "PITBOSS_HTTP__ENABLED": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for said in (
        "In a second terminal",
        "done     greet",
        "done     order",
        "done     invoice",
        "done     look_up",
        "done     count_stock",
        "done     tell_the_warehouse",
        "the HTTP API is at",
        "stopped after",
    ):
        assert said in done.stderr, said
    worker = (ROOT / "build" / "demo" / "remote_worker.log").read_text()
    assert "Worker started" in worker, worker
