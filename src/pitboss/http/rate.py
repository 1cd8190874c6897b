"""How many requests a caller may make. Counted by each server process for itself."""

from collections import OrderedDict
from typing import NamedTuple

from pitboss.model.duration import SECOND, Moment
from pitboss.model.limits import Window

_MOST_CALLERS = 10_000


class Allowance(NamedTuple):
    """Whether the request may pass, how many are left, and in how many seconds the window begins anew."""

    granted: bool
    limit: int
    window: int
    remaining: int
    reset: int


class RateLimit:
    """Fixed windows, one for each caller: simple to explain in headers. The work itself is limited by queues."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._used: OrderedDict[str, tuple[Moment, int]] = OrderedDict()

    def take(self, caller: str, now: Moment) -> Allowance:
        per, most = self._window.per, self._window.count
        began, used = self._used.pop(caller, (now, 0))
        if now - began >= per:
            began, used = now, 0
        granted = used < most
        self._used[caller] = (began, used + granted)
        while len(self._used) > _MOST_CALLERS:
            self._used.popitem(last=False)
        reset = -(-(began + per - now) // SECOND)
        return Allowance(granted, most, max(1, per // SECOND), most - used - granted, max(1, reset))

    def give_back(self, caller: str) -> None:
        """What was taken last does not count."""
        began, used = self._used.get(caller, (0, 0))
        if used:
            self._used[caller] = (began, used - 1)
