"""Logs the attempts that failed: those that failed for good as errors, those that are tried again as warnings."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from pitboss.manager.announcer import Log, task_facts
from pitboss.model.duration import spoken
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim
from pitboss.model.text import counted, one_line

# The lines of a level that may be written at once, and then each second. The others are counted.
BURST = 50
PER_SECOND = 2
_LONGEST_ERROR = 300
_GROUPS = 5


class TaskLog:
    """`note` gets every settlement, `flush` is called about once a second. `time` is monotonic, in seconds.

    Without `log` it does nothing. A task that was lost with its worker has no line here: the end of the worker has one
    for all of them.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.log: Log | None = None
        self._failed = _Budget(time())
        self._retried = _Budget(time())

    def note(self, claim: Claim, settlement: Settlement) -> None:
        change = settlement.transition
        if change.state is State.COMPLETED or self.log is None:
            return
        if change.state is State.FAILED:
            if self._failed.allows(claim, settlement, self._time()):
                self.log.error("task failed", **_facts(claim, settlement), reason=change.reason)
        elif change.charged and not change.state.finished and self._retried.allows(claim, settlement, self._time()):
            again = f"in {spoken(change.delay)}" if change.delay else "at once"
            self.log.warning("task failed and is tried again", **_facts(claim, settlement), again=again)

    def flush(self) -> None:
        """Say how many lines were left out."""
        if self.log is None:
            return
        for budget, write, what in (
            (self._failed, self.log.error, "failed"),
            (self._retried, self.log.warning, "failed and are tried again"),
        ):
            if budget.left_out:
                more = counted(budget.left_out.total(), "more task")
                groups = [f"{count:,} × {group}" for group, count in budget.left_out.most_common(_GROUPS)]
                write(f"{more} {what}; pitboss dead list and pitboss tasks show have them all", most=groups)
                budget.left_out.clear()


class _Budget:
    """How many lines of a level may be written now, and what was left out, by handler and error."""

    def __init__(self, now: float) -> None:
        self._tokens, self._at = float(BURST), now
        self.left_out: Counter[str] = Counter()

    def allows(self, claim: Claim, settlement: Settlement, now: float) -> bool:
        self._tokens = min(BURST, self._tokens + (now - self._at) * PER_SECOND)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return True
        error = settlement.transition.error
        self.left_out[f"{claim.handler} {error.type or error.category}" if error else claim.handler] += 1
        return False


def _facts(claim: Claim, settlement: Settlement) -> dict[str, Any]:
    error = settlement.transition.error
    text = one_line(f"{error.type or error.category}: {error.message}", _LONGEST_ERROR) if error else ""
    known = {**task_facts(claim), "queue": claim.queue, "worker": settlement.worker, "error": text}
    return {key: value for key, value in known.items() if value}
