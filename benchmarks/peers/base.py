"""What a system implements to be measured. Standard library only."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

TEXT = "x" * 60
STORE = "BENCH_STORE"
VARIANT = "BENCH_VARIANT"


def store() -> str:
    """The store's URL; workers inherit the variable from the producer."""
    return os.environ[STORE]


def variant() -> str:
    return os.environ.get(VARIANT, "")


def tool(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).parent / name)


class Peer(ABC):
    """One system on one empty store. Tasks are numbered; task `n` is `noop(n, TEXT)` and marks its number."""

    packages: tuple[str, ...]
    """Distributions whose versions matter."""
    sizes: tuple[int, ...] = ()
    """Tasks per call, if the system can enqueue many at once."""

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the empty store, and connect."""

    @abstractmethod
    def one(self, first: int, count: int) -> None:
        """Put tasks one after the other, each accepted before the next is sent."""

    def many(self, first: int, count: int, size: int) -> None:
        """Put tasks, this many per call."""
        raise NotImplementedError

    def best(self, first: int, count: int) -> None:
        """Put tasks in the fastest way: 1000 per call if the system can."""
        if self.sizes:
            self.many(first, count, 1000)
        else:
            self.one(first, count)

    slow_publishers: frozenset[str] = frozenset()
    """Of these ways to publish, a tenth of the messages is enough."""

    def publishers(self) -> dict[str, Callable[[int, int], None]]:
        """Ways to publish messages to a broker, each until the broker has confirmed all."""
        raise NotImplementedError

    def hold(self) -> None:
        """Let tasks be stored, and not run."""
        raise NotImplementedError

    def stored(self) -> int:
        """How many tasks the store has."""
        raise NotImplementedError

    @abstractmethod
    def workers(self) -> list[list[str]]:
        """The commands that start two worker processes."""

    @abstractmethod
    def left(self) -> int:
        """How many tasks are not done in the store."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""
