"""Order keys: the first unfinished task with a key is in line as usual, and those behind it are held.

Each key has a row that names its first task. An act that puts, ends or retries tasks with order keys locks these rows:
after queues, batches and members, before tasks, and all of them by key. Each of its statements has its own snapshot, so
behind the locks it sees every task that another act has put in line.
"""

from collections.abc import Iterable, Mapping, Sequence

from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.task import NewTask


def first_in_line(tasks: Iterable[NewTask]) -> dict[str, TaskId]:
    """The order keys of new tasks, each with the first task that has it."""
    first: dict[str, TaskId] = {}
    for task in tasks:
        if task.order_key is not None:
            first.setdefault(task.order_key, task.id)
    return first


def locking(sql: Statements, new: Mapping[str, TaskId], stored: Sequence[TaskId] = ()) -> Ask:
    """Lock these keys, and those of stored tasks. Its rows are keys that were free: `advance` must correct them unless
    the task that they got is the first one by now."""
    keys = list(new)
    return sql.ask("order_lock", ids=texts(stored), keys=texts(keys), tasks=texts([new[key] for key in keys]))


def advance(sql: Statements, keys: Iterable[str], now: Moment | None) -> Script[list[Row]]:
    """Where the first task of a locked key has ended, let the next one wait: its id, state and reason."""
    wanted = set(keys)
    if not wanted:
        return []
    return (yield sql.ask("order_next", now, keys=names(wanted)))


class LockedOrder:
    """The order keys of a transaction that changes stored tasks, and may put others."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._keys: set[str] = set()
        self._new: list[Row] = []

    def lock(self, stored: Mapping[TaskId, str | None], new: Iterable[NewTask] = ()) -> Script[None]:
        """Lock the order keys of stored tasks, and of tasks that may be put. Sent with the next statement."""
        keyed = {task: key for task, key in stored.items() if key is not None}
        first = first_in_line(new)
        self._keys = set(keyed.values())
        if keyed or first:
            yield locking(self._sql, first, sorted(keyed)).into(self._new)

    def advance(self, now: Moment | None, keys: Iterable[str] | None = None) -> Script[None]:
        """Let the next ones wait: of these keys, or of all, before the transaction ends."""
        chosen = self._keys | {key for (key,) in self._new} if keys is None else keys
        yield from advance(self._sql, chosen, now)
