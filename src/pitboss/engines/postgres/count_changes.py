"""Counts of tasks that change in a transaction, and the queues to ring by it."""

from collections import Counter

from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.states import FINISHED, State

# Queue, state, batch, and where it counts in the flows: handler, and what became of the run.
_Change = tuple[str, str, str | None, str | None, str | None]


class CountChanges:
    """Written with the members of the transaction, or by itself. Waiters on queues of `pools` are rung too."""

    def __init__(self) -> None:
        self._changes: Counter[_Change] = Counter()
        self._ring: set[str] = set()
        # The moment of the transaction, once it is known.
        self.now: Moment | None = None
        self.pools: set[str] = set()

    def moved(
        self,
        queue: str,
        old: str,
        new: str,
        batch: str | None,
        *,
        ring: bool = False,
        handler: str | None = None,
        run: str | None = None,
    ) -> None:
        """If the task has ended, or `run` says what became of its run, that counts in the flows of the `handler`."""
        handler = handler if run is not None or new in FINISHED else None
        self._changes[queue, old, batch, None, None] -= 1
        self._changes[queue, new, batch, handler, run] += 1
        if new == State.PENDING or ring:
            self._ring.add(queue)

    def columns(self) -> dict[str, object]:
        changes = [(*key, n) for key, n in self._changes.items() if n]
        return {
            "queues": texts([queue for queue, *_ in changes]),
            "states": texts([state for _, state, *_ in changes]),
            "numbers": numbers([n for *_, n in changes]),
            "batches": texts([batch for _, _, batch, *_ in changes]),
            "handlers": texts([handler for _, _, _, handler, _, _ in changes]),
            "counted_at": self.now,
            "runs": texts([run for _, _, _, _, run, _ in changes]),
            "ring": texts(sorted(self._ring)),
            "pools": texts(sorted(self.pools)),
        }

    def write(self, sql: Statements) -> Script[None]:
        if self._changes or self._ring or self.pools:
            yield sql.ask("count_add", **self.columns()).unheard()
