"""The queues that a claim looks at: the tasks that wait in them, and the starts that their rates still allow."""

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
# How many tasks that cannot start a claim looks past in a queue whose rate is used up.
_PASSED = 100


class OpenQueue:
    """A queue that is not paused, during one claim. `room` is what its rate still allows; None is without limit.

    `pool` is the resource pool that it is bound to; `no_members`: none of its members is ready any more. `remote`: all
    its handlers are, so that only a slot that names it gets its tasks. `helped` says of which keys of other slots a
    slot takes tasks too ('all', 'ownerless', 'none'); None: the queue has no partitions.
    """

    __slots__ = (
        *("due", "helped", "max_passed", "max_per_key", "name", "no_members", "passed", "pending", "pool", "rate"),
        *("remote", "room", "scheduled"),
    )

    def __init__(
        self,
        name: str,
        rate: str | None,
        pool: str | None,
        helped: str | None,
        max_per_key: int | None,
        pending: int,
        scheduled: int,
        remote: int = 0,
    ) -> None:
        self.name, self.pool, self.pending, self.scheduled, self.remote = name, pool, pending, scheduled, remote
        self.helped, self.max_per_key = helped, max_per_key
        self.rate: tuple[Window, ...] = () if rate is None else rate_of(rate)
        self.room: int | None = None
        self.due: Moment | None = None
        self.no_members = False
        self.passed, self.max_passed = 0, _PASSED if pool is None else PASSED_BY

    def release_due(self, act: Act, wanted: int, *, batches: bool) -> None:
        """Make due tasks pending, and find out when the next one is due. `batches`: some may be items of batches."""
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
    def divided(self) -> bool:
        """Whether it has partitions."""
        return self.helped is not None

    @property
    def may_give(self) -> bool:
        return self.pending > 0 and not self.no_members

    def skip_rest(self) -> None:
        """It can give nothing more for this slot."""
        self.passed = self.max_passed

    def measure_room(self, act: Act) -> None:
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
        return opens_at(self.rate, act.rows("start_list", self.name))


def opens_at(rate: Iterable[Window], starts: Iterable[Any]) -> Moment:
    """When every window allows a start, from the rows of past starts, newest first."""
    past = list(starts)
    return max((_window_opens(window, past) for window in rate), default=0)


def _window_opens(window: Window, past: Iterable[Any]) -> Moment:
    """When the start that is `count` starts back leaves the window."""
    back = 0
    for at, n in past:
        back += n
        if back >= window.count:
            return int(at) + window.per
    return 0


def open_queues(act: Act, slots: Iterable[Slot]) -> dict[str, OpenQueue]:
    """By name, the queues of these slots that are not paused and have tasks waiting, or partitions."""
    asked = {slot.queues: None for slot in slots}
    names = {name: None for queues in asked for name in queues or ()}
    if None in asked:
        found = [OpenQueue(*row) for row in act.rows("claim_queues")]
        return {queue.name: queue for queue in found if not queue.remote or queue.name in names}
    rows: Iterable[Any] = (act.one("claim_queue", name) for name in names)
    return {row[0]: OpenQueue(*row) for row in rows if row is not None}
