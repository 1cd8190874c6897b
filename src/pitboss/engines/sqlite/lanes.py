"""The queues that a claim looks at: what waits in them, and what their rates still allow."""

from collections.abc import Iterable
from typing import Any

from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.rows import rate_of
from pitboss.model.batching import PASSED_BY
from pitboss.model.duration import Moment
from pitboss.model.limits import Window, horizon
from pitboss.model.session import Slot

# Tasks that fall due together become pending in portions, so that no claim holds up the other writers for long.
_DUE_AT_ONCE = 1000
# So many tasks that cannot be given are passed by in one lane: for want of a rate, or of a member that fits.
_PASSED = 100


class Lane:
    """One open queue during one claim. `room` is what its windows still allow; None is without limit.

    `pool` is the resource pool that it is bound to; `dry` says that no member of it is left.
    """

    __slots__ = ("dry", "due", "most_passed", "name", "passed", "pending", "pool", "rate", "room", "scheduled")

    def __init__(self, name: str, rate: str | None, pool: str | None, pending: int, scheduled: int) -> None:
        self.name, self.pool, self.pending, self.scheduled = name, pool, pending, scheduled
        self.rate: tuple[Window, ...] = rate_of(rate)
        self.room: int | None = None
        self.due: Moment | None = None
        self.dry = False
        self.passed, self.most_passed = 0, _PASSED if pool is None else PASSED_BY

    def promote(self, act: Act, wanted: int, *, batches: bool) -> None:
        """Make pending what is due, and find the moment of the next. `batches`: items of batches may be among it."""
        if not self.scheduled:
            return
        self.due = self.next_scheduled(act)
        if self.due is None or self.due > act.now:
            return
        most = max(wanted, _DUE_AT_ONCE)
        items: list[Any] = list(act.rows("claim_due_items", self.name, act.now, most)) if batches else []
        n = act.run("claim_due", self.name, act.now, most)
        act.moved(self.name, "scheduled", "pending", n - sum(count for _, count in items))
        for batch, count in items:
            act.moved(self.name, "scheduled", "pending", count, batch)
        self.pending, self.scheduled = self.pending + n, self.scheduled - n
        self.due = self.next_scheduled(act)

    @property
    def gives(self) -> bool:
        return self.pending > 0 and not self.dry

    def close(self) -> None:
        """It has nothing more to give for this slot."""
        self.passed = self.most_passed

    def measure(self, act: Act) -> None:
        """How many more may start at this moment."""
        if self.rate:
            used = [self._starts_since(act, act.now - window.per) for window in self.rate]
            self.room = max(0, min(window.count - n for window, n in zip(self.rate, used, strict=True)))

    def started(self, act: Act, n: int) -> None:
        """Count starts, and forget those that no window looks back to."""
        if self.rate:
            act.run("start_forget", self.name, act.now - horizon(self.rate))
            act.run("start_add", self.name, act.now, n)

    def next_moment(self, act: Act) -> Moment | None:
        """When it may give something without a ring; not later than now if it could at once."""
        moments = [] if self.due is None else [max(self.due, act.now)]
        if self.pending and self.room == 0:
            moments.append(self._opens_at(act))
        return min(moments, default=None)

    def next_scheduled(self, act: Act) -> Moment | None:
        row: Any = act.one("claim_due_at", self.name)
        return None if row is None else row[0]

    def _starts_since(self, act: Act, moment: Moment) -> int:
        row: Any = act.one("start_count", self.name, moment)
        return 0 if row is None else row[0]

    def _opens_at(self, act: Act) -> Moment:
        return max((self._window_opens(act, window) for window in self.rate), default=0)

    def _window_opens(self, act: Act, window: Window) -> Moment:
        """When the start that is `count` starts back leaves the window."""
        back = 0
        for at, n in act.rows("start_list", self.name):
            back += n
            if back >= window.count:
                return int(at) + window.per
        return 0


def open_lanes(act: Act, slots: Iterable[Slot]) -> dict[str, Lane]:
    """By name, the queues of these slots that are not paused and have anything waiting."""
    names: dict[str, None] = {}
    for slot in slots:
        if slot.queues is None:
            return {row[0]: Lane(*row) for row in act.rows("claim_queues")}
        names.update(dict.fromkeys(slot.queues))
    rows: Iterable[Any] = (act.one("claim_queue", name) for name in names)
    return {row[0]: Lane(*row) for row in rows if row is not None}
