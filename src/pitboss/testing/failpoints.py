"""Faults at named places in an engine: death, a lost answer, a pause. Only a fault that was hit counts as tested.

Pass a `Failpoints` to an engine as `failpoint=`. A name is a verb and a place in it:

`before`  nothing is done yet · `commit`  everything is written but not committed (SQL engines) ·
`after`  everything is durable, but the caller has no answer yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from pitboss.model.errors import InvalidInput, StoreUnavailable

Action = Literal["kill", "lost", "delay"]
VERBS = ("put", "claim", "renew", "settle", "reclaim", "campaign")
# Verbs of protocols that an engine may lack.
SCARCE_VERBS = (
    "declare_pool",
    "add_resources",
    "change_resources",
    "acquire",
    "release",
    "use",
    "create_batch",
    "act_on_batch",
)
DECLARED_VERBS = ("declare", "publish", "fire")
PARTITION_VERBS = ("take_slots", "assign")
OPERATION_VERBS = ("begin_operation", "advance_operation")
_EVERY = (*VERBS, *SCARCE_VERBS, *DECLARED_VERBS, *PARTITION_VERBS, *OPERATION_VERBS)
PLACES = ("before", "after")
SQL_PLACES = ("before", "commit", "after")


class Killed(BaseException):
    """Stands for the death of this process: code that catches it must drop the engine and all of its state.

    It is no `Exception`, so that no handler on the way takes it for an error and carries on.
    """


def names(*, sql: bool, verbs: Iterable[str] = _EVERY) -> list[str]:
    """Every failpoint that an engine has in these verbs."""
    return [f"{verb}.{place}" for verb in verbs for place in (SQL_PLACES if sql else PLACES)]


def _die() -> None:
    raise Killed


class Failpoints:
    """Planned faults. `die` ends the process: by default it only raises `Killed`; a child process of a test may pass
    `lambda: os.kill(os.getpid(), signal.SIGKILL)`. `pause` sleeps for a delay, really or not."""

    def __init__(
        self, *, die: Callable[[], None] = _die, pause: Callable[[float], object] = lambda seconds: None
    ) -> None:
        self._die, self._pause = die, pause
        self._plans: dict[str, tuple[Action, int, float]] = {}
        self.hits: Counter[str] = Counter()
        self.bitten: list[tuple[str, Action]] = []

    def plan(self, name: str, action: Action, *, nth: int = 1, seconds: float = 0.0) -> None:
        """Do this once, at the nth hit of the name from now on."""
        if name not in names(sql=True):
            raise InvalidInput(
                f"there is no failpoint {name!r:.80}",
                why="a fault at a place that no engine reaches never happens, so the test would prove nothing",
                fix=f"use one of {', '.join(names(sql=True))}",
            )
        self._plans[name] = (action, self.hits[name] + nth, seconds)

    def heal(self) -> None:
        """Drop the planned faults; keep the hits."""
        self._plans.clear()

    def __call__(self, name: str) -> None:
        self.hits[name] += 1
        action, nth, seconds = self._plans.get(name, ("delay", 0, 0.0))
        if self.hits[name] != nth:
            return
        del self._plans[name]
        self.bitten.append((name, action))
        if action == "kill":
            self._die()
        elif action == "delay":
            self._pause(seconds)
        else:
            raise StoreUnavailable(
                f"the answer was lost at {name}", why="a test asked for it", fix="repeat the call: that is safe"
            )


__all__ = [
    "DECLARED_VERBS",
    "OPERATION_VERBS",
    "PLACES",
    "SCARCE_VERBS",
    "SQL_PLACES",
    "VERBS",
    "Action",
    "Failpoints",
    "Killed",
    "names",
]
