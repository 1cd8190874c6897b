"""How a handler's tasks are retried and how long they may run."""

from math import inf
from sys import float_info

import msgspec

from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput

MAX_CRASHES = 3


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delay before the next attempt: base × factor^(failed attempts - 1), at most `cap`, spread by ±jitter."""

    base: Span = 5 * SECOND
    factor: float = 3.0
    cap: Span = 3600 * SECOND
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if not (0 <= self.base <= self.cap and 1 <= self.factor < inf and 0 <= self.jitter <= 1):
            raise InvalidInput(
                f"{self} is not a usable backoff",
                why="it needs 0 <= base <= cap, a finite factor >= 1 and jitter between 0 and 1",
                fix="correct the values, or leave them out for the defaults",
            )

    def delay(self, failed: int, luck: float) -> Span:
        """Delay after `failed` failed attempts; `luck` in [0, 1) picks the place within the jitter."""
        plain = min(self.base * self._growth(max(failed, 1) - 1), float(self.cap))
        return round(plain * (1 + self.jitter * (2 * luck - 1)))

    def _growth(self, steps: int) -> float:
        try:
            return float(self.factor**steps)
        except OverflowError:
            return float_info.max


def backoff(base: Time = "5s", *, factor: float = 3.0, cap: Time = "1h", jitter: float = 0.25) -> Backoff:
    """A backoff as people write it: `backoff("10s", factor=2, cap="10m")`."""
    longest = span(cap, what="backoff's cap")
    return Backoff(base=span(base, what="backoff's base"), factor=factor, cap=longest, jitter=jitter)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What differs for one error category. `retry=None` leaves it to the error itself."""

    retry: bool | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A handler's policy. A task may override `max_attempts` and `timeout` for itself.

    A task is handed on to another resource `max_rotations` times without spending an attempt; after that it spends one.
    """

    max_attempts: int = 5
    backoff: Backoff = Backoff()
    timeout: Span | None = None
    rules: dict[str, Rule] = {}
    max_rotations: int = 10

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.max_rotations < 0 or (self.timeout is not None and self.timeout <= 0):
            raise InvalidInput(
                f"max_attempts={self.max_attempts}, timeout={self.timeout}, max_rotations={self.max_rotations} "
                "is not a usable policy",
                why="a task needs at least one attempt and some time to run, and rotations are not negative",
                fix="use max_attempts >= 1, max_rotations >= 0 and a positive timeout, or None for no time limit",
            )

    def rule(self, category: str) -> Rule:
        return self.rules.get(category, _PLAIN)


_PLAIN = Rule()
