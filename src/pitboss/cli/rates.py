"""How fast counts grow while somebody watches."""

from collections import deque
from collections.abc import Hashable

from pitboss.model.duration import SECOND, Moment, Span

_HORIZON: Span = 5 * SECOND
# A rate is between two looks.
_LOOKS = 2


class Meter:
    """Rates over the last few seconds, each between two looks at least. A count that falls is counted anew: tasks were
    pruned, or the process is another one."""

    def __init__(self, horizon: Span = _HORIZON) -> None:
        self._horizon = horizon
        self._seen: dict[Hashable, deque[tuple[Moment, int]]] = {}

    def note(self, key: Hashable, at: Moment, count: int) -> None:
        """The count as it was at that moment; one that is not newer than the last says nothing."""
        seen = self._seen.setdefault(key, deque())
        if seen and at <= seen[-1][0]:
            return
        if seen and count < seen[-1][1]:
            seen.clear()
        seen.append((at, count))
        while len(seen) > _LOOKS and seen[1][0] <= at - self._horizon:
            seen.popleft()

    def rate(self, key: Hashable) -> float | None:
        """Per second; None until two moments are known."""
        seen = self._seen.get(key)
        if seen is None or len(seen) < _LOOKS:
            return None
        (began, first), (ended, last) = seen[0], seen[-1]
        return (last - first) * SECOND / (ended - began)
