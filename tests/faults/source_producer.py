"""Messages for a source, and the Node program that publishes them (benchmarks/producer)."""

import fcntl
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.faults.recording import ROOT

PROGRAM = ROOT / "benchmarks" / "producer"
BUILD = ROOT / "build" / "producer"
# What the handler does with a message of this kind; a malformed one becomes no task.
GOOD, FLAKY, BAD, MALFORMED = "good", "flaky", "bad", "malformed"
_TOO_LARGE = 300_000


class Prepared(NamedTuple):
    """A message before it is sent. Every second one has an id."""

    number: int
    id: str | None
    kind: str
    body: str


class Pace(NamedTuple):
    """`total` messages in bursts at `rate` per second, one burst every `period` seconds."""

    total: int
    burst: int
    period: float
    rate: int = 1000

    @property
    def seconds(self) -> float:
        return self.total / self.burst * self.period


def prepared(count: int) -> list[Prepared]:
    return [_prepared(number) for number in range(count)]


def _prepared(number: int) -> Prepared:
    known = f"message-{number}" if number % 2 else None
    # Pairs, so that messages with and without an id share each fate.
    pair = number // 2
    if pair % 50 == 7:
        return Prepared(number, known, MALFORMED, _malformed(number, pair // 50))
    kind = BAD if pair % 50 == 3 else FLAKY if pair % 50 in (11, 31) else GOOD
    return Prepared(number, known, kind, json.dumps({"number": number, "kind": kind, "padding": "x" * 40}))


def _malformed(number: int, which: int) -> str:
    ways = (f'{{"number": {number}', f"[{number}]", json.dumps({"number": "many", "kind": GOOD}), '"text"')
    if which % 10 == 9:
        return json.dumps({"number": number, "kind": GOOD, "padding": "x" * _TOO_LARGE})
    return ways[which % len(ways)]


class Journal(NamedTuple):
    """What the producer has written. Each publication of a message is a sending with a number of its own."""

    bursts: int
    sent: dict[int, int]
    confirmed: set[int]

    @classmethod
    def read(cls, file: Path) -> "Journal":
        words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        kinds = Counter(line[0] for line in words)
        sent = {int(line[1]): int(line[2]) for line in words if line[0] == "sent"}
        return cls(kinds["burst"], sent, {int(line[1]) for line in words if line[0] == "confirmed"})


class Producer:
    """The program, from `start` to its end."""

    def __init__(self, folder: Path, url: str, queue: str, pace: Pace) -> None:
        self.messages = prepared(pace.total)
        self.journal = folder / "journal"
        self._file = folder / "messages"
        lines = [json.dumps({"id": one.id, "body": one.body}) for one in self.messages]
        self._file.write_text("\n".join(lines) + "\n")
        numbers = [str(one) for one in (pace.rate, pace.burst, pace.period)]
        self._command = ["node", str(installed()), url, queue, str(self._file), str(self.journal), *numbers]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    @property
    def ended(self) -> bool:
        """Whether every message is confirmed."""
        assert self._process is not None
        code = self._process.poll()
        if code not in (None, 0):
            raise AssertionError(f"the producer ended with {code}")
        return code == 0

    def bursts(self) -> int:
        return self.journal.read_bytes().count(b"burst") if self.journal.exists() else 0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def installed() -> Path:
    """The program, beside its library, which npm installs the first time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    wanted = (PROGRAM / "package.json").read_text()
    with (BUILD / "lock").open("w") as lock:
        # Tests run side by side.
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = BUILD / "installed.json"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.copy(PROGRAM / "package.json", BUILD)
            command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run(command, cwd=BUILD, check=True, stdout=subprocess.DEVNULL)
            stamp.write_text(wanted)
        program = BUILD / "producer.mjs"
        shutil.copy(PROGRAM / "producer.mjs", program)
    return program
