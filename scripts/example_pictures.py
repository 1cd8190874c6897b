"""A picture of the dashboard while each example runs, for its README. The examples are really run, one after the other:

python -m scripts.example_pictures                 all, into docs/pictures
python -m scripts.example_pictures agent_jobs      only this one
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from scripts.camera import LOOKS, chromium, looking, take

ROOT = Path(__file__).resolve().parent.parent
PICTURES, WORK = ROOT / "docs" / "pictures", ROOT / "build" / "example_pictures"
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
_LIMIT, _LOOK = 180.0, 0.2


class Example(NamedTuple):
    """How it is run, the file of its store, and after how many ended tasks the picture is taken."""

    store: str
    ended: int
    options: tuple[str, ...] = ()
    page: str = ""
    most: int = 1400
    keys: bool = False


EXAMPLES = {
    "agent_jobs": Example("agent.db", 420),
    "media_pipeline": Example("media.db", 5, page="/tasks", most=1020),
    "state_scraper": Example("scraper.db", 60, ("--sqlite",)),
    "story_checker": Example("pitboss.db", 45),
    "video_metadata": Example("pitboss.db", 40, keys=True),
}


def shoot(name: str, example: Example, out: Path) -> None:
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with running(name, example, folder) as process:
        store = folder / example.store
        wait("its store is there", store.exists, process)
        key = viewer_key(store, process) if example.keys else ""
        headers = {"X-API-Key": key} if key else {}
        with (
            served(store, folder / "dashboard.log") as url,
            httpx.Client(base_url=url, headers=headers, trust_env=False) as http,
            chromium() as browser,
            looking(browser, url, LOOKS[0]) as page,
        ):
            if key:
                page.context.add_cookies([{"name": "pitboss_key", "value": key, "url": f"{url}/ui"}])
            page.goto(f"{url}/ui{example.page}")
            wait(f"{example.ended} tasks have ended", lambda: ended(http) >= example.ended, process)
            take(page, f"{url}/ui{example.page}", LOOKS[0], out / f"example-{name}.webp", most=example.most)


@contextmanager
def running(name: str, example: Example, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """To its end: what it checks at its end must be right too."""
    command = [str(ROOT / "examples" / name / "run"), *example.options, "--folder", str(folder)]
    with (folder.parent / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, "PYTHON": sys.executable}, stdout=log, stderr=log)
    try:
        yield process
        code = process.wait(_LIMIT)
        print(f"{name}: {'all right' if not code else f'ended with {code}, see {log.name}'}")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@contextmanager
def served(store: Path, path: Path) -> Iterator[str]:
    command = [PITBOSS, "serve", "--store", f"sqlite:///{store}", "--port", "0", "--quiet"]
    with path.open("w") as log:
        process = subprocess.Popen(command, cwd=path.parent, stdout=log, stderr=log)
    try:
        wait("the dashboard is served", lambda: "the HTTP API is at" in path.read_text(), process)
        found = re.search(r"the HTTP API is at (http://[\d.:]+)", path.read_text())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)


def viewer_key(store: Path, process: "subprocess.Popen[bytes]") -> str:
    """The server wants one where keys exist, and the example makes its own first."""
    command = [PITBOSS, "keys", "create", "camera", "--role", "viewer", "--store", f"sqlite:///{store}"]
    made: list[str] = []

    def make() -> bool:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        made.append(done.stdout.strip())
        return not done.returncode

    wait("a key is made", make, process)
    return made[-1]


def ended(http: httpx.Client) -> int:
    queues = http.get("/api/queues").raise_for_status().json()["data"]["queues"]
    return sum(one["counts"].get(state, 0) for one in queues for state in ("completed", "failed"))


def wait(what: str, there: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + _LIMIT
    while not there():
        if process.poll() is not None or time.monotonic() > ends:
            raise SystemExit(f"not so: {what}")
        time.sleep(_LOOK)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=PICTURES)
    asked.add_argument("names", nargs="*", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    given = asked.parse_args()
    for name in given.names or EXAMPLES:
        shoot(name, EXAMPLES[name], given.out)


if __name__ == "__main__":
    main()
