"""Counts of tasks that change in a transaction, and the queues to ring by it."""

from collections import Counter

from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.states import State


class CountChanges:
    """Written with the members of the transaction, or by itself. Waiters on queues of `pools` are rung too."""

    def __init__(self) -> None:
        self._changes: Counter[tuple[str, str, str | None]] = Counter()
        self._ring: set[str] = set()
        self.pools: set[str] = set()

    def moved(self, queue: str, old: str, new: str, batch: str | None, *, ring: bool = False) -> None:
        self._changes[queue, old, batch] -= 1
        self._changes[queue, new, batch] += 1
        if new == State.PENDING or ring:
            self._ring.add(queue)

    def columns(self) -> dict[str, object]:
        changes = [(*key, n) for key, n in self._changes.items() if n]
        return {
            "queues": texts([queue for queue, _, _, _ in changes]),
            "states": texts([state for _, state, _, _ in changes]),
            "numbers": numbers([n for _, _, _, n in changes]),
            "batches": texts([batch for _, _, batch, _ in changes]),
            "ring": texts(sorted(self._ring)),
            "pools": texts(sorted(self.pools)),
        }

    def write(self, sql: Statements) -> Script[None]:
        if self._changes or self._ring or self.pools:
            yield sql.ask("count_add", **self.columns()).unheard()
