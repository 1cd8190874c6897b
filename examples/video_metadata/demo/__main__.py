"""Everything in one command: a stand-in video API, `pitboss serve`, two workers, a hundred tasks, and an audit."""

import argparse
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from demo import load
from demo.audit import audit
from demo.checks import Findings, causes, checks
from demo.processes import HERE, Workers, create_key, serving_tasks
from demo.taskmanager import TaskManager
from demo.video_api import Rules, VideoAPI, serving
from worker import YouTubeWorker

PER_SECOND = 10
LIMIT = 60.0
LOOK = 0.25
KILLED = "worker-2"
OPEN = ("pending", "claimed")


class Scale(NamedTuple):
    """How much there is to do. The quota is for a part of it, and comes back after seconds instead of a day."""

    searches: int
    metadata: int
    quota: int
    day: float
    pause: float
    troubles: Mapping[int, int]

    @property
    def rules(self) -> Rules:
        return Rules(quota=self.quota, day=self.day, per_second=3 * PER_SECOND, troubles=self.troubles)


FULL = Scale(searches=40, metadata=60, quota=2000, day=2.0, pause=2.5, troubles={17: 500, 23: 503, 29: 429})
SHORT = Scale(searches=8, metadata=14, quota=500, day=1.2, pause=1.5, troubles={7: 429, 10: 500, 16: 503})


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    # A shell starts background jobs with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    folder: Path = asked.folder.resolve()
    _clear(folder)
    scale = SHORT if asked.short else FULL
    api = VideoAPI(scale.rules)
    store = f"sqlite:///{folder / 'pitboss.db'}"
    worker_key = create_key(store, "worker", "worker", "producer")
    own_key = create_key(store, "demo", "producer", "viewer")
    with serving(api) as video_url, serving_tasks(store, folder) as url:
        say(f"Pitboss is {url}, the video API {video_url}. Everything is in {folder}.")
        workers = Workers(folder, _environment(url, worker_key, video_url, scale))
        found = run(api, scale, TaskManager(url, own_key), workers)
    _write(folder, api, found)
    code = summary(api, found)
    say(f"{time.monotonic() - began:.0f} seconds")
    return code


def run(api: VideoAPI, scale: Scale, manager: TaskManager, workers: Workers) -> Findings:
    """Start workers, create tasks, kill a worker on the way, and wait for the end of all tasks."""
    try:
        planned = enqueue(api, scale, manager)
        for name in ("worker-1", KILLED):
            workers.start(name)
        watch(manager, workers, until=planned // 4)
        held = workers.kill(KILLED, lambda: holding(manager, KILLED))
        say(f"({KILLED} is killed with SIGKILL while it holds task {held}; worker-3 takes its place)")
        workers.start("worker-3")
        watch(manager, workers)
        tasks = manager.tasks()
    finally:
        codes = workers.stop()
    figures = audit(api.arrivals, quota_pause=scale.pause)
    return Findings(tasks, planned, KILLED, held, codes, figures, api.units(), scale.quota, PER_SECOND)


def enqueue(api: VideoAPI, scale: Scale, manager: TaskManager) -> int:
    """Register the types and create the tasks; gives their number."""
    manager.register(YouTubeWorker.task_types)
    refused = manager.refusal("/tasks", {"type": "youtube.search", "params": {"search_query": "a", "max_results": 51}})
    say(f"A task with max_results 51 is refused: {refused.status_code} {refused.json()['details']['why']}")
    ids = manager.create_together(load.metadata(scale.metadata, api.catalogue))
    ids += manager.create(load.searches(scale.searches))
    say(f"{len(ids)} tasks: {scale.searches} searches and {scale.metadata} for metadata")
    return len(set(ids))


def watch(manager: TaskManager, workers: Workers, until: int | None = None) -> None:
    """Show the counts as they change, until that many tasks have ended, or all."""
    ends, shown = time.monotonic() + LIMIT, ""
    while time.monotonic() < ends and workers.running():
        counts = Counter(task["status"] for task in manager.tasks())
        line = ", ".join(f"{counts[name]} {name}" for name in (*OPEN, "completed", "failed"))
        if line != shown:
            shown = line
            say(f"  {line}")
        ended = counts["completed"] + counts["failed"]
        if ended >= (counts.total() if until is None else until):
            return
        time.sleep(LOOK)
    raise RuntimeError("the tasks did not end in time, or no worker runs: see the logs of the workers")


def holding(manager: TaskManager, worker: str) -> str | None:
    """The task that a worker has claimed."""
    claimed = manager.call("GET", "/tasks?status=claimed")["tasks"]
    return next((str(task["id"]) for task in claimed if task["claimed_by"] == worker), None)


def summary(api: VideoAPI, found: Findings) -> int:
    """Print what happened, what the far side saw, and whether all is as it should be."""
    counts = Counter((task["type"], task["status"]) for task in found.tasks)
    say("\nTasks:")
    for (type_, status), count in sorted(counts.items()):
        say(f"  {type_:<17} {status:<10} {count:>4}")
    for task in found.tasks:
        if task["status"] == "failed":
            say(f"  failed: {task['error_message']}")
    missing = causes(found.tasks)
    say(f"  videos without metadata: {', '.join(f'{count} {cause}' for cause, count in missing.items())}")
    _show_far_side(api, found)
    results = list(checks(found, api.catalogue))
    say("\nChecks:")
    for text, passed in results:
        say(f"  {'ok    ' if passed else 'FAILED'}  {text}")
    good = sum(passed for _, passed in results)
    say(f"{good} of {len(results)} checks passed")
    return 0 if good == len(results) else 1


def _show_far_side(api: VideoAPI, found: Findings) -> None:
    say("\nBy the far side's own log:")
    say("  client                                 requests  connections  most in a second  asked to pause")
    for client, seen in found.figures.items():
        say(f"  {client:<38} {seen.requests:>8} {seen.connections:>12} {seen.most:>17} {seen.refused:>15}")
    statuses = Counter(f"{one.status} {one.reason}".strip() for one in api.arrivals)
    say(f"  answers: {', '.join(f'{count} × {status}' for status, count in statuses.most_common())}")
    say(f"  units of each quota of {found.quota:,}: {', '.join(f'{units:,}' for units in found.units)}")


def _environment(url: str, key: str, video_url: str, scale: Scale) -> dict[str, str]:
    return {
        "TASKMANAGER_API_URL": url,
        "TASKMANAGER_API_KEY": key,
        "POLL_INTERVAL": "1",
        "WORKER_CLAIM_TIMEOUT": "2",
        "YOUTUBE_API_URL": video_url,
        "YOUTUBE_API_KEY": Rules.key,
        "YOUTUBE_REQUESTS_PER_SECOND": str(PER_SECOND),
        "YOUTUBE_LONGEST_WAIT": "1",
        "YOUTUBE_QUOTA_PAUSE": str(scale.pause),
    }


def _write(folder: Path, api: VideoAPI, found: Findings) -> None:
    (folder / "requests.jsonl").write_text("".join(f"{json.dumps(one._asdict())}\n" for one in api.arrivals))
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in found.tasks))


def _clear(folder: Path) -> None:
    """Delete the files of an earlier run, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in [*folder.glob("*.db*"), *folder.glob("*.log"), *folder.glob("*.jsonl"), folder / "logs"]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer tasks, for tests")
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="where the store and the logs go")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
