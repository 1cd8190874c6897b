"""One claim while it is made: its slots, what it has found, and the members that it grants."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.claim_rows import Granted, PendingRow
from pitboss.engines.sqlite.grants import Grants
from pitboss.engines.sqlite.keyed import Keys
from pitboss.engines.sqlite.open_queue import OpenQueue
from pitboss.engines.sqlite.rows import names_of, want_of
from pitboss.model.picking import leased
from pitboss.model.resource import Shortage
from pitboss.model.session import ClaimRequest, Slot


class Sifted:
    """The pending tasks that a claim looked at: to take, past their expiry, of a handler that no session knows."""

    def __init__(self) -> None:
        self.taken: list[PendingRow] = []
        self.expired: list[PendingRow] = []
        self.unknown: list[PendingRow] = []
        self.cut = False


class Group:
    """Slots that want the same, filled as one: the tasks go to them in order.

    `takers` has the slot of each task to come; `slot` is the first one. `limited`: claims with a time limit of their
    own are among them.
    """

    __slots__ = ("ahead", "free", "handlers", "limited", "order", "queues", "slot", "takers")
    takers: Iterator[Slot]

    def __init__(self, slots: Sequence[Slot]) -> None:
        first = slots[0]
        self.slot = first
        self.queues, self.order, self.free, self.ahead = first.queues, first.order, first.free, first.ahead
        self.handlers = None if first.handlers is None else json_list(first.handlers)
        self.limited = first.lasts is not None
        self.takers = repeat(first)
        if len(slots) > 1:
            self.free = sum(slot.free for slot in slots)
            self.limited = any(slot.lasts is not None for slot in slots)
            self.takers = chain.from_iterable(repeat(slot, slot.free) for slot in slots)


class Round:
    """One claim while it is made. `keys` is None if none of its queues has partitions."""

    def __init__(
        self, act: Act, request: ClaimRequest, queues: dict[str, OpenQueue], wanted: int, *, batches: bool
    ) -> None:
        self.act, self.request, self.queues, self._wanted = act, request, queues, wanted
        divided = any(queue.divided for queue in queues.values())
        self.keys = Keys(act, request.session, queues, wanted, batches=batches) if divided else None
        self.granted: Granted = {}
        # Tasks of queues with partitions, and the slots that take them: written at the end, of all slots at once.
        self.late: list[tuple[PendingRow, Slot]] = []
        self._grants: Grants | None = None
        self._others: set[str] | None = None

    @property
    def others(self) -> set[str]:
        """The handlers that only other sessions and remote workers run: their tasks are passed by."""
        if self._others is None:
            rows: Iterable[Any] = (
                () if self.request.handlers is None else self.act.rows("handler_list_live", self.act.now)
            )
            self._others = {row[0] for row in rows}.difference(self.request.handlers or ())
        return self._others

    @property
    def grants(self) -> Grants:
        if self._grants is None:
            self._grants = Grants(self.act, self._wanted)
        return self._grants

    def grant(self, one: PendingRow, queue: OpenQueue, pool: str) -> bool:
        """Give the task a member; False if there is none for it."""
        grants = self.grants.of(pool)
        number = grants.grant(want_of(one.want), names_of(one.tried))
        if number is None:
            queue.no_members = grants.has_none()
            return False
        members = grants.members
        self.granted[one.row] = (number, leased(members.known[number], members.rules, self.act.now))
        return True

    def shortages(self) -> tuple[Shortage, ...]:
        """Write the members, and say why tasks went without one."""
        if self._grants is None:
            return ()
        self._grants.write()
        return tuple(self._grants.shortages())
