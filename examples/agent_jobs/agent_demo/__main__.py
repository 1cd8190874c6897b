"""Everything in one command: both kinds of workers, signups, a burst of events, failures, schedules, and checks."""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from agent_demo.checks import Findings, checks, ticks
from agent_demo.processes import HERE, JsonClient, Processes
from agent_demo.webhook import Webhook, serving
from app_core import DAY, AppCore

FLAKY, DOWN = "user-flaky", "user-down"
ALWAYS = 1_000_000
WRONG_ACTION = "exploded"


class Scale(NamedTuple):
    """How much happens. `samples` is how many ticks of the schedule of every second are waited for."""

    signups: int
    users: int
    messages: int
    activities: int
    samples: int


FULL = Scale(signups=50, users=20, messages=15, activities=100, samples=8)
SHORT = Scale(signups=10, users=5, messages=8, activities=20, samples=3)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    # A shell starts background jobs with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    folder: Path = asked.folder.resolve()
    _clear(folder)
    scale = SHORT if asked.short else FULL
    core = AppCore(folder / "agent.db")
    # The first two attempts fail, each with one repetition of its own. The other user's webhook is down for good.
    with serving(Webhook({FLAKY: 4, DOWN: ALWAYS})) as webhook:
        found = run(folder, core, webhook, scale)
    results = list(checks(found, core, webhook))
    core.close()
    say("\nChecks:")
    for text, passed in results:
        say(f"  {'OK    ' if passed else 'FAILED'}  {text}")
    good = sum(passed for _, passed in results)
    say(f"{good} of {len(results)} checks passed in {time.monotonic() - began:.0f} seconds")
    return 0 if good == len(results) else 1


def run(folder: Path, core: AppCore, webhook: Webhook, scale: Scale) -> Findings:
    """Start everything, let it all happen, and stop."""
    _furnish(core)
    store = str(folder / "agent.db")
    processes = Processes(
        folder,
        WORKER_QUEUE_TYPE="sqlite",
        WORKER_QUEUE_URL=store,
        WORKER_CONCURRENCY="5",
        WORKER_LOG_LEVEL="INFO",
        WORKER_SAMPLES="1s",
        APP_CORE_DB=store,
        AGENT_WEBHOOK=webhook.url,
    )
    with stopping(processes) as codes:
        processes.start("scheduled", "-m", "workers.scheduled", "--no-http")
        processes.start("events", "-m", "workers.events", "--no-http")
        processes.start("page", "page.py", "--port", "0", "--log", str(folder / "page-own.log"))
        page = JsonClient(processes.announced("page", r"the page is at (\S+)"))
        processes.announced("events", r"worker (events-1) is ready")
        processes.until(lambda: bool(ticks(core)), "the first scheduled job has run")
        say(f"Scheduled workers, event workers and the page run. Everything is in {folder}.")
        found = drive(processes, page, core, scale)
    return found._replace(codes=codes)


def drive(processes: Processes, page: JsonClient, core: AppCore, scale: Scale) -> Findings:
    users = [
        page.post("/signup", {"email": f"user{number}@example.org"})[1]["user_id"] for number in range(scale.signups)
    ]
    again, _ = page.post("/signup", {"email": "user0@example.org"})
    refused, why = page.post("/events", {"name": "user.signup", "data": {"user_id": 7}})
    say(f"{len(users)} signups; a signup without an email is refused: {refused} {why['error'].splitlines()[0]}")

    published = 0
    for number in range(scale.messages):
        for user in users[: scale.users]:
            body = {"name": "user.message", "data": {"user_id": user, "text": f"message {number}"}, "key": user}
            published += page.post("/events", body)[0] == HTTPStatus.CREATED
        if number == scale.messages // 2:
            processes.kill("events")
            say("(the event workers are killed with SIGKILL, and events go on being published)")
    for number in range(scale.activities):
        page.post("/events", {"name": "custom.event", "data": {"action": "edited", "number": number}})
    page.post("/events", {"name": "custom.event", "data": {"action": WRONG_ACTION}})
    for user in (users[0], FLAKY, DOWN):
        page.post("/events", {"name": "user.notice", "data": {"user_id": user, "text": "hello"}})
    once = [
        page.post("/events", {"name": "custom.event", "data": {"action": "shared"}, "idempotency_key": "once"})[1]
        for _ in range(2)
    ]
    processes.start("events", "-m", "workers.events", "--port", "0")
    say(f"{published} messages of {scale.users} users, {scale.activities} activities, and three notices are published")

    for name in ("daily_cleanup", "custom_task"):
        processes.pitboss("schedules", "run", name)
    say("pitboss schedules run daily_cleanup; … run custom_task")
    api = JsonClient(processes.announced("events", r"the HTTP API is at (http://[\d.:]+)"))
    api.post("/api/events", {"name": "custom.event", "data": {"action": "opened"}})
    expected = Findings(
        users, again, refused, published, scale, once_ids={one["id"] for one in once}, down=DOWN, flaky=FLAKY
    )
    processes.until(lambda: expected.arrived(core), "everything has arrived in the app core")
    return expected._replace(schedules=processes.pitboss("schedules", "list"))


@contextmanager
def stopping(processes: Processes) -> Iterator[dict[str, int]]:
    """Stops all at the end of the block; then the dict has the exit codes."""
    codes = dict[str, int]()
    try:
        yield codes
    finally:
        codes |= processes.stop()


def _furnish(core: AppCore) -> None:
    """What the daily clean-up will find."""
    for number in range(6):
        core.add_session(f"user-{number}", expires_in=-60 if number % 2 else DAY)
        core.add_conversation(f"user-{number}", f"talk {number}", age=(number % 3) * 20 * DAY)


def _clear(folder: Path) -> None:
    """Delete the files of an earlier run, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in [*folder.glob("agent.db*"), *folder.glob("*.log"), folder / "logs"]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer events, for tests")
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="where the database and the logs go")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
