"""Does the server ever see a limit passed, with no option set? `python -m benchmarks.limits_at_the_server`

Two `pitboss up` managers, five kinds of clients, cold and warm workers, both stores. Each member is a proxy of its own,
and each proxy logs when requests reach it. That log alone says whether a limit was passed. Nothing here uses the
helpers of the tests beyond starting a PostgreSQL server.

How much of the limits was used is a ratio of times: the soonest that the limits allow, over what it took. For
`lease.http()` a use takes no time in that bound. For a client of the user's own a use lasts from its grant to the end
of its task, so the bound replays the times that the store recorded.
"""

import argparse
import asyncio
import heapq
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.servers.postgres import PostgresServer

COUNT, PER, GAP = 5, 10.0, 0.7
MEMBERS = 6
SERVICE = (0.005, 0.06)
PATIENCE = 4.0
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
HEAD = f"""
from pitboss import App, Lease

app = App()
proxies = app.resources("proxies", rate="{COUNT}/{PER:g}s", min_delay="{GAP * 1000:g}ms")
"""
BODIES = {
    "lease.http()": """
@app.task
async def get(number: int, proxy: Lease = proxies.lease()) -> int:
    async with proxy.http() as client:
        return (await client.get(f"http://site.test/item/{number}")).status_code
""",
    "httpx": """
import httpx

@app.task
async def get(number: int, proxy: Lease = proxies.lease()) -> int:
    async with httpx.AsyncClient(proxy=proxy.url) as client:
        return (await client.get(f"http://site.test/item/{number}")).status_code
""",
    "requests": """
import requests

@app.task
def get(number: int, proxy: Lease = proxies.lease()) -> int:
    through = {"http": proxy.url}
    return requests.get(f"http://site.test/item/{number}", proxies=through, timeout=30).status_code
""",
    "urllib": """
import urllib.request

@app.task
def get(number: int, proxy: Lease = proxies.lease()) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.url}))
    return opener.open(f"http://site.test/item/{number}", timeout=30).status
""",
    "Playwright": """
from playwright.async_api import async_playwright, Browser

@app.worker_state()
async def browser():
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                  "--disable-component-update", "--disable-sync"],
        )
        yield started
        await started.close()

@app.task
async def get(number: int, proxy: Lease = proxies.lease(), chromium: Browser = browser()) -> int:
    context = await chromium.new_context(proxy={"server": proxy.url})
    try:
        page = await context.new_page()
        answer = await page.goto(f"http://site.test/item/{number}")
        return answer.status
    finally:
        await context.close()
""",
}


class Run(NamedTuple):
    """One run: the client, whether the workers are warm when the backlog comes, and the store."""

    client: str
    warm: bool
    store: str


RUNS = tuple(
    Run(client, warm, store)
    for store in ("sqlite", "postgres")
    for client, warm in (
        ("lease.http()", False),
        ("lease.http()", True),
        ("httpx", False),
        ("requests", True),
        ("urllib", False),
        ("Playwright", True),
    )
)


# The far side, in a process of its own.


async def serve(log: Path) -> None:
    """A proxy per member that answers by itself; each line of the log is a member's port and the time of arrival."""
    lucky = random.Random(7)
    with log.open("a", buffering=1) as lines:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            port = writer.get_extra_info("sockname")[1]
            try:
                while line := await reader.readline():
                    arrived = time.monotonic()
                    if b"/item/" in line:
                        lines.write(f"{port} {arrived:.6f}\n")
                    while (await reader.readline()).strip():
                        pass
                    await asyncio.sleep(lucky.uniform(*SERVICE))
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok")
                    await writer.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()

        servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(MEMBERS)]
        print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
        await asyncio.Event().wait()


# One run.


class Seen(NamedTuple):
    """The result of a run. `lost` are tasks that did not complete."""

    uses: int
    lost: int
    took: float
    bound: float
    passed: list[str]


def measured(run: Run, url: str, tasks: int) -> Seen:
    folder = Path(tempfile.mkdtemp(prefix="limits-"))
    chromium = shutil.which("chromium")
    (folder / "app.py").write_text(f"CHROMIUM = {chromium!r}\n{HEAD}{BODIES[run.client]}")
    # From here on only what a user has: the command line, and files.
    env = {**os.environ, "PITBOSS_STORE": url, "PITBOSS_SECRETS_KEY_FILE": str(folder / "key")}
    with ExitStack() as stack:
        far = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.limits_at_the_server", "--serve", str(folder / "arrivals")],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(far.kill)
        assert far.stdout is not None
        ports = far.stdout.readline().split()
        (folder / "proxies.txt").write_text("".join(f"127.0.0.1:{port}\n" for port in ports))
        pitboss(folder, env, "resources", "import", "proxies", "proxies.txt")
        script = folder / "fill.py"
        script.write_text(f"from app import get\nget.enqueue_many([{{'number': n}} for n in range({tasks})])\n")
        if not run.warm:
            subprocess.run([sys.executable, "fill.py"], cwd=folder, env=env, check=True)
        managers = [manager(folder, env, number) for number in range(2)]
        for one in managers:
            stack.callback(one.wait, 60)
            stack.callback(one.send_signal, signal.SIGINT)
        if run.warm:
            wait_for_workers(folder)
            subprocess.run([sys.executable, "fill.py"], cwd=folder, env=env, check=True)
        wait_for_arrivals(folder / "arrivals", tasks)
        time.sleep(PATIENCE)
    records = json.loads(pitboss(folder, env, "tasks", "list", "--limit", "5000", "--json"))["tasks"]
    seen = judged(run, folder / "arrivals", records)
    shutil.rmtree(folder)
    return seen


def manager(folder: Path, env: dict[str, str], number: int) -> subprocess.Popen[bytes]:
    output = (folder / f"manager-{number}.log").open("wb")
    command = [PITBOSS, "up", "app.py"]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)


def pitboss(folder: Path, env: dict[str, str], *words: str) -> str:
    return subprocess.run([PITBOSS, *words], cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


def wait_for_workers(folder: Path) -> None:
    logs = [folder / f"manager-{number}.log" for number in range(2)]
    deadline = time.monotonic() + 60
    while not all(" is ready" in log.read_text() for log in logs):
        assert time.monotonic() < deadline, [log.read_text() for log in logs]
        time.sleep(0.1)
    time.sleep(2)


def wait_for_arrivals(log: Path, tasks: int) -> None:
    """Until every task has arrived, or nothing has come for a while."""
    count, since = -1, time.monotonic()
    while count < tasks and time.monotonic() - since < 3 * PER + 30:
        now = log.read_text().count("\n") if log.exists() else 0
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.1)


# The verdict.


def judged(run: Run, log: Path, records: Sequence[dict[str, str]]) -> Seen:
    arrivals: dict[str, list[float]] = {}
    for line in log.read_text().splitlines():
        port, at = line.split()
        arrivals.setdefault(port, []).append(float(at))
    passed = [text for port, times in arrivals.items() for text in passes(port, sorted(times))]
    every = sorted(at for times in arrivals.values() for at in times)
    done = [one for one in records if one["state"] == "completed"]
    if run.client == "lease.http()":
        took, bound = every[-1] - every[0], soonest([0.0] * len(every))
    else:
        spans = sorted((moment(one["started_at"]), moment(one["finished_at"])) for one in done)
        took = max(end for _, end in spans) - spans[0][0]
        bound = soonest([end - start for start, end in spans])
    return Seen(len(every), len(records) - len(done), took, bound, passed)


def passes(port: str, times: Sequence[float]) -> list[str]:
    gaps = [f"{port}: a gap of {b - a:.3f} s" for a, b in pairwise(times) if b - a < GAP]
    pairs = zip(times, times[COUNT:], strict=False)
    return gaps + [f"{port}: {COUNT + 1} uses in {b - a:.3f} s" for a, b in pairs if b - a < PER]


def soonest(lasting: Sequence[float]) -> float:
    """How long the limits make these uses take if each goes to the first member that is free."""
    free = [(0.0, number) for number in range(MEMBERS)]
    ends: dict[int, list[float]] = {number: [] for number in range(MEMBERS)}
    last = 0.0
    for length in lasting:
        start, number = heapq.heappop(free)
        mine = ends[number]
        mine.append(start + length)
        last = max(last, start + length)
        full = mine[-COUNT] + PER if len(mine) >= COUNT else 0.0
        heapq.heappush(free, (max(mine[-1] + GAP, full), number))
    return last


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="the least length of a run")
    parser.add_argument("--only", help="clients, with commas")
    parser.add_argument("--store", help="sqlite or postgres")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
    chosen = [
        run
        for run in RUNS
        if (options.only is None or run.client in options.only.split(","))
        and (options.store is None or run.store == options.store)
    ]
    tasks = MEMBERS * COUNT * (int(options.seconds / PER) + 1)
    bad = 0
    print(
        f"{'client':<14}{'workers':<9}{'store':<10}{'uses':>5}{'passed':>8}{'lost':>6}{'took':>9}{'bound':>9}{'used':>8}"
    )
    with ExitStack() as stack:
        server: PostgresServer | None = None
        for run in chosen:
            url = f"sqlite:///{tempfile.mkdtemp(prefix='limits-')}/store.db"
            if run.store == "postgres":
                server = server or stack.enter_context(PostgresServer())
                url = server.create_database()
            seen = measured(run, url, tasks)
            bad += bool(seen.passed or seen.lost)
            print(
                f"{run.client:<14}{'warm' if run.warm else 'cold':<9}{run.store:<10}{seen.uses:>5}{len(seen.passed):>8}"
                f"{seen.lost:>6}{seen.took:>8.1f}s{seen.bound:>8.1f}s{seen.bound / seen.took:>8.1%}",
                flush=True,
            )
            for text in seen.passed[:5]:
                print(f"    {text}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
