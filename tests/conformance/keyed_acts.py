"""What is done to queues with partitions, on several engines at once."""

from itertools import count
from typing import Any

from pitboss.model.declared import Declared
from pitboss.model.event import EventType
from pitboss.model.partition import PartitionChange, Partitioning
from pitboss.model.queue import QueueSettings
from tests.conformance.acts import BOUND, FETCH
from tests.conformance.declared_acts import DeclaredActs

DIVIDED = ("q3", BOUND)
KEYS = ("1", "2", "é")
PARAMS = ['{"n":1}', '{"n":"1"}', '{"n":2}', '{"n":"é"}', '{"n":2}', '{"n":"é"}', "[]", '"é"']
NUMBERS = [None, 0, 0, 1, 2]
NODES = ("n", "n", "m")
PLACES = [(0,), (0, 1), (1, 2), (0, 1, 2), (2,), ()]
OWNERS = ("default/0", "default/1", "default/2", "other/0")
# Sessions of one process, of others, and of those that do not say which process they are.
PIDS = [0, 7, 7, 8]
SPECS = [
    None,
    QueueSettings(partitions=Partitioning(by="{n}")),
    QueueSettings(partitions=Partitioning(by="{n}"), max_per_key=1),
    QueueSettings(partitions=Partitioning(by="{n}", mode="balanced"), max_per_key=2),
    QueueSettings(partitions=Partitioning(by="{n}", mode="static", table={0: ("1",), 1: ("2", "é")})),
    QueueSettings(partitions=Partitioning(by="{n}", mode="static", table={0: ("1",)}, on_missing="steal")),
    QueueSettings(partitions=Partitioning(by="{n}/{n}", mode="static", on_missing="steal"), max_per_key=1),
]
KEY_CHANGES = [
    PartitionChange(owner="default/0"),
    PartitionChange(owner="default/1"),
    PartitionChange(pinned="default/1"),
    PartitionChange(owner="default/2", pinned="default/2"),
    PartitionChange(pinned=None),
]


class KeyedActs(DeclaredActs):
    """The acts of `DeclaredActs`, with slots of workers and partitions of two queues, one of them bound to a pool."""

    def begin(self) -> None:
        super().begin()
        # A declaration that was there before comes back only if its sessions are gone, so each one is new.
        self._versions = count()
        # Those that were taken last.
        self.numbers: list[int] = [0]

    def divide(self, which: int, who: int) -> None:
        chosen = [SPECS[which % len(SPECS)], SPECS[which // 3 % len(SPECS)]]
        queues = {name: settings for name, settings in zip(DIVIDED, chosen, strict=True) if settings is not None}
        version = EventType(f"v{next(self._versions)}", "{}")
        declared, session = Declared(app="keys", queues=queues, events=(version,)), self._session(who)
        self.arena.act(lambda store: store.declare(declared, session=session))

    def seat(self, who: int, node: str, places: tuple[int, ...], which: int) -> bool:
        """Whether the session was alive."""
        session, queues = self._session(who), DIVIDED[: which % 3] or None
        pool = "other" if which % 7 == 0 else "default"
        taken = self.arena.act(lambda store: store.take_slots(session, pool, node, places, queues=queues))
        if isinstance(taken, list) and pool == "default":
            self.numbers = [slot.number for slot in taken] or self.numbers
        return isinstance(taken, list)

    def assign(self, queue: str, owners: dict[str, str], back: int) -> None:
        """As the leader does, or as one does that leads no more."""
        term = self.term - back
        self.arena.act(lambda store: store.assign(queue, owners, term=term))

    def change_key(self, queue: str, key: str, change: PartitionChange) -> None:
        self._audited("partition", lambda store: store.change_partition(queue, key, change))

    def share_out(self, who: int, places: tuple[int, ...], owners: dict[str, str]) -> None:
        """All that a slot needs to own keys: it leads, takes slots, and gives keys away."""
        self.lead(who, "campaign", 0)
        self.seat(who, "n", places, 1)
        for queue in DIVIDED:
            self.assign(queue, owners, 0)

    def put_keyed(self, chosen: list[dict[str, Any]], which: int) -> None:
        """Tasks with keys, in both queues; those that need a member are of the handler that says so."""
        for number, one in enumerate(chosen):
            queue, params = DIVIDED[number % 2], PARAMS[(which + number) % len(PARAMS)]
            handler = FETCH if queue == BOUND else one["handler"]
            self.put([one | {"queue": queue, "params": params, "handler": handler}], None, None)
