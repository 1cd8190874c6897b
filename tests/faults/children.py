"""Processes of our own that start together and report in the end."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.faults.recording import ROOT


class Child:
    """A module of ours run as a program; it says "ready", waits for a line, works, and prints its result."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"process {self.pid} said nothing more:\n{self.process.communicate()[1]}")
        return line.strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def result(self, seconds: float) -> str:
        """What it printed last, once it has ended well."""
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, err
        return out.strip().rpartition("\n")[2]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def together(module: str, many: Sequence[Sequence[str]]) -> Iterator[list[Child]]:
    """Started, ready, and told to go at the same time."""
    children = [Child(module, *arguments) for arguments in many]
    try:
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell("go")
        yield children
    finally:
        for child in children:
            child.end()
