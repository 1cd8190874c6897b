"""What a person sees of the tasks that end while `pitboss up` runs: a line each, as long as they can be read."""

from collections import Counter
from collections.abc import Callable

from pitboss.cli.words import counted, one_line, took
from pitboss.model.duration import spoken
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim

_LINES_PER_SECOND = 20
# So many of an id's last characters name a task: they are random.
_ENOUGH = 12


class Journal:
    """Counts everything; tells what there is room for. `time` is in seconds and only grows."""

    def __init__(self, tell: Callable[[str, str], None], time: Callable[[], float], *, quiet: bool, full: bool) -> None:
        self._tell, self._time = tell, time
        self._quiet, self._full = quiet, full
        self.ended: Counter[str] = Counter()
        self._second = 0
        self._told = 0
        self._untold = 0

    def note(self, claim: Claim, settlement: Settlement) -> None:
        """A task has ended, or goes back to wait."""
        change = settlement.transition
        self.ended["retried" if change.charged and change.state in _WAITING else change.state] += 1
        if self._quiet:
            return
        if change.state is State.COMPLETED:
            if self._full:
                self._line("done", f"{claim.handler}  {took(settlement.ran)}", "")
        elif change.error is not None or change.state is State.CANCELLED:
            self._line(*_trouble(claim, settlement))

    def summary(self, seconds: float) -> str:
        """The last line."""
        parts = [f"{self.ended[State.COMPLETED]:,} done", f"{self.ended[State.FAILED]:,} failed"]
        if self.ended["retried"]:
            parts.append(f"{self.ended['retried']:,} tried again")
        if self.ended[State.CANCELLED]:
            parts.append(f"{self.ended[State.CANCELLED]:,} cancelled")
        return f"stopped after {took(round(seconds * 1_000_000))}: {', '.join(parts)}"

    def _line(self, word: str, text: str, style: str) -> None:
        second = int(self._time())
        if second != self._second:
            self._second, self._told = second, 0
            if self._untold:
                self._tell(f"         … and {counted(self._untold, 'more task')} in between", "bright_black")
                self._untold = 0
        if self._told >= _LINES_PER_SECOND:
            self._untold += 1
            return
        self._told += 1
        self._tell(f"{word:<8} {text}", style)


_WAITING = (State.PENDING, State.SCHEDULED)


def _trouble(claim: Claim, settlement: Settlement) -> tuple[str, str, str]:
    change = settlement.transition
    error = change.error
    cause = one_line(f"{error.type or error.category}: {error.message}", 120) if error else change.reason or ""
    name = f"{claim.handler}  {took(settlement.ran)}".rstrip()
    if change.state is State.CANCELLED:
        return "cancelled", f"{name}  {cause}", "bright_black"
    if change.state is State.FAILED:
        return "failed", f"{name}  {cause}  (pitboss tasks show {claim.id[-_ENOUGH:]})", "red"
    again = f"again in {spoken(change.delay)}" if change.delay else "again at once"
    return "again", f"{name}  {cause}  ({again})", "yellow"
