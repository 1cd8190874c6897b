"""Run a page of the documentation as a reader would: every block, in order, exactly as printed.

- `Write this into NAME:` before a block writes it to that file, `at the end of NAME:` appends it.
- `pitboss up` runs on a pseudo-terminal of its own until the next `pitboss up` or the end of the page. A console block
  without a command is what that manager prints next.
- Other commands run in a shell in the folder where the last one ended, and must succeed within a minute. A command that
  only reads is repeated until it prints what the page shows, because a page may say "after six seconds".
- `python -m pitboss.remote` runs until the end of the page, and must start.
- `localhost:8000` is the port of the test: others may run at the same time. `curl` waits until the API answers.
- `make` is not run; its target must exist.
"""

import os
import platform
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0
READING = re.compile(r"pitboss (status|\w+ (list|show))\b")
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[78])|\r")
# Differs from run to run: ids, times of day, durations, process ids, versions, and which proxy served a task.
VARIES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12}\b|\d\d:\d\d:\d\d|\b(?:\d+(?:\.\d+)?(?:ms|s|m|h))+\b|(?<=pid )\d+"
    r"|(?<=pitboss )\d\S+|10\.0\.0\.\d"
)
NUMBERS = re.compile(rf"{VARIES.pattern}|\d+")


class Block(NamedTuple):
    before: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in re.findall(r"([^\n]*)\n+```(\w+)\n(.*?)```", page.read_text(), re.DOTALL)]


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the lines that it prints; no command before lines of a running manager."""
    if block.language == "sh":
        for part in re.split(r"^(pitboss up.*|make .*|python -m pitboss.remote .*)$", block.text, flags=re.MULTILINE):
            if part.strip():
                yield part, []
        return
    for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
        first, *rest = part.splitlines() or [""]
        if first.startswith("$ "):
            yield first[2:], rest
        elif part:
            yield "", part.splitlines()


class Manager:
    """`pitboss up` on a terminal; leaving it is Ctrl-C."""

    def __init__(self, command: str, cwd: Path, env: dict[str, str]) -> None:
        self._terminal, inner = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=cwd, env=env, stdin=inner, stdout=inner, stderr=inner
        )
        os.close(inner)
        self._said = ""

    def until(self, printed: Callable[[str], bool]) -> None:
        """Wait for what it says after the last wait."""
        ends = time.monotonic() + LIMIT
        while not printed(self._said):
            assert time.monotonic() < ends, f"the page and the manager differ; it said:\n{self._said}"
            self._read()
        self._said = ""

    def _read(self) -> None:
        if not select.select([self._terminal], [], [], 1.0)[0]:
            return
        try:
            self._said += ESCAPES.sub("", os.read(self._terminal, 65_536).decode(errors="replace"))
        except OSError:  # it ended, and so did its terminal
            raise AssertionError(f"the manager ended; it said:\n{self._said}") from None

    def stop(self) -> None:
        """Ctrl-C. What it still says is read, because a full terminal would block it."""
        self._process.send_signal(signal.SIGINT)
        try:
            self.until(lambda said: "stopped after" in said)
            assert self._process.wait(LIMIT) == 0
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._terminal)


class Reader:
    """Follows one page in an empty folder."""

    def __init__(self, folder: Path, env: dict[str, str], varies: re.Pattern[str] = VARIES) -> None:
        self._folder, self._varies = folder, varies
        self._env = {**clean(), **env}
        self._manager: Manager | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._port = self._env.setdefault("PITBOSS_HTTP__PORT", str(_free_port()))
        self._env["TASKMANAGER_API_URL"] = f"http://localhost:{self._port}/api"

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.terminate()
            assert worker.wait(LIMIT) == 0
        if self._manager:
            self._manager.stop()

    def follow(self, page: Path) -> None:
        for block in blocks(page):
            if named := re.search(r"(into|at the end of) `([\w.]+)`", block.before):
                with (self._folder / named[2]).open("x" if named[1] == "into" else "a") as file:
                    file.write(block.text if named[1] == "into" else f"\n\n{block.text}")
                continue
            if block.language == "toml":
                self._check_settings(block.text)
                continue
            assert block.language in ("sh", "console"), f"a block that the test cannot follow: {block}"
            for command, printed in commands(block):
                self._do(command, printed)

    def _check_settings(self, text: str) -> None:
        """Settings that the page shows without having them used must at least be accepted."""
        folder = self._folder / "shown settings"
        folder.mkdir()
        (folder / "pitboss.toml").write_text(text)
        command = ["pitboss", "config", "show"]
        subprocess.run(command, cwd=folder, env=self._env, check=True, capture_output=True, timeout=LIMIT)

    def _do(self, command: str, printed: list[str]) -> None:
        if command.startswith("make "):
            target = command.split()[1]
            subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True, timeout=LIMIT)
        elif command.startswith("pitboss up"):
            if self._manager:
                self._manager.stop()
            self._manager = Manager(command, self._folder, self._env)
            self._manager.until(lambda said: "is ready" in said and self._all_in(printed, said))
        elif command.startswith("python -m pitboss.remote"):
            self._start_worker(command)
        elif not command:
            assert self._manager, f"no manager runs that could print {printed}"
            self._manager.until(lambda said: self._all_in(printed, said))
        else:
            self._run(command, printed)

    def _start_worker(self, command: str) -> None:
        log = self._folder / "remote.log"
        with log.open("wb") as out:
            words = ["bash", "-c", f"exec {command}"]
            self._workers.append(subprocess.Popen(words, cwd=self._folder, env=self._env, stdout=out, stderr=out))
        ends = time.monotonic() + LIMIT
        while "Worker started" not in log.read_text():
            assert time.monotonic() < ends, f"the worker did not start:\n{log.read_text()}"
            assert self._workers[-1].poll() is None, f"the worker ended:\n{log.read_text()}"
            time.sleep(0.1)

    def _run(self, command: str, printed: list[str]) -> None:
        ends = time.monotonic() + LIMIT
        said = self._shell(command)
        while not self._as_printed(printed, said):
            repeated = READING.match(command) and time.monotonic() < ends
            assert repeated, f"the page and `{command}` differ; it said:\n{said}"
            said = self._shell(command)

    def _shell(self, command: str) -> str:
        here = self._folder / ".here"
        if command.startswith("curl "):
            self._await_api()
        script = f"set -e\n{command.replace('localhost:8000', f'localhost:{self._port}')}\npwd > '{here}'"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"`{command}` ended with {done.returncode}:\n{done.stdout}"
        self._folder = Path(here.read_text().strip())
        here.unlink()
        return done.stdout

    def _await_api(self) -> None:
        ends = time.monotonic() + LIMIT
        while time.monotonic() < ends:
            try:
                urllib.request.urlopen(f"http://localhost:{self._port}/readyz", timeout=5).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the API does not answer")

    def _as_printed(self, printed: list[str], said: str) -> bool:
        if not printed or "…" in printed:
            return self._all_in(printed, said)
        return self._lines("\n".join(printed)) == self._lines(said)

    def _all_in(self, printed: list[str], said: str) -> bool:
        return Counter(self._lines("\n".join(printed))) - Counter({"…": 1}) <= Counter(self._lines(said))

    def _lines(self, text: str) -> list[str]:
        """Lines without what differs from run to run."""
        plain = self._varies.sub("#", text.replace(platform.node(), "box1"))
        return [" ".join(line.split()) for line in plain.splitlines() if line.strip()]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def clean() -> dict[str, str]:
    """The environment of the tests, without settings of the person who runs them, and with the package under test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PITBOSS_")}
    for name in ("FORCE_COLOR", "NO_COLOR"):
        kept.pop(name, None)
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "COLUMNS": "160", "TERM": "xterm"}
