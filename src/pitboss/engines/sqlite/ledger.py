"""Reading, on connections that cannot write. A read is short: one that stays open keeps the log from being reused."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from pitboss.engines.protocol import Page
from pitboss.engines.sqlite.act import json_list
from pitboss.engines.sqlite.filters import STATE_INDEXES, matching, names_batches, names_ids
from pitboss.engines.sqlite.rows import (
    STATES,
    TASK_COLUMNS,
    attempt_of,
    last_run,
    lead_of,
    queue_of,
    session_of,
    task_of,
)
from pitboss.engines.sqlite.schema import stored_version
from pitboss.engines.sqlite.sweep import HOUR
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.queue import HandlerInfo, Queue, Wish
from pitboss.model.session import Lead, Session
from pitboss.model.states import State
from pitboss.model.task import Attempt, Task

_FEW = 10_000
_KEPT = 100


class Reader:
    """One read: a connection, the statements and the moment."""

    def __init__(self, connection: sqlite3.Connection, sql: dict[str, str], now: Moment) -> None:
        self._connection, self._sql, self.now = connection, sql, now

    def get(self, ids: Sequence[str]) -> list[Task | None]:
        rows = self.rows("task_get", json_list(ids)) if ids else []
        found = {task.id: task for task in map(task_of, rows)}
        return [found.get(task) for task in ids]

    def find(self, wanted: Filter, limit: int, after: str | None, oldest_first: bool) -> Page:
        chosen = matching(wanted, self.now)
        where, values = self._within_state(wanted, chosen.sql), list(chosen.values)
        if after is not None:
            where += f" AND id {'>' if oldest_first else '<'} ?"
            values.append(after)
        order = "ASC" if oldest_first else "DESC"
        text = f"SELECT {TASK_COLUMNS} FROM pitboss_tasks {where} ORDER BY id {order} LIMIT ?"
        found = [task_of(row) for row in self._connection.execute(text, [*values, limit + 1])]
        page = found[:limit]
        return Page(page, page[-1].id if page and len(found) > limit else None)

    def count(self, wanted: Filter) -> int:
        if not wanted.terms:
            return self._number("count_total")
        chosen = matching(wanted, self.now)
        text = f"SELECT count(*) FROM pitboss_tasks {self._within_state(wanted, chosen.sql)}"
        n: int = self._connection.execute(text, chosen.values).fetchone()[0]
        return n

    def attempts(self, task: str) -> list[Attempt]:
        history = [attempt_of(row) for row in self.rows("attempt_list", task)]
        known = self.get([task])[0]
        last = last_run(known) if known is not None else None
        return [*history, *([last] if last else [])][-_KEPT:]

    def queues(self) -> list[Queue]:
        counts: dict[str, dict[State, int]] = {}
        for queue, state, n in self.rows("count_list"):
            counts.setdefault(queue, {})[STATES[state]] = n
        return [queue_of(row, counts.get(row[0], {})) for row in self.rows("queue_list")]

    def handlers(self) -> list[HandlerInfo]:
        return [
            HandlerInfo(name=name, queue=queue, policy=policy, schema=schema, resources=resources)
            for name, queue, policy, schema, resources in self.rows("handler_list")
        ]

    def sessions(self) -> list[Session]:
        return [session_of(row) for row in self.rows("session_list", self.now - HOUR)]

    def leader(self) -> Lead | None:
        return next((lead_of(row) for row in self.rows("leader_get", self.now)), None)

    def wishes(self, since: int) -> list[Wish]:
        return [
            Wish(key=key, value=value, version=version, by=by)
            for key, value, version, by in self.rows("wish_list", since)
        ]

    def schema_version(self) -> int:
        return stored_version(self._connection)

    def _within_state(self, wanted: Filter, where: str) -> str:
        """Point SQLite to the index of the only possible state, if it holds few tasks: the counts are exact."""
        states = wanted.states()
        if len(states) != 1 or names_ids(wanted) or names_batches(wanted):
            return f"WHERE {where}"
        (state,) = states
        few = state in STATE_INDEXES and self._number("count_state", state.value) <= _FEW
        named = f"INDEXED BY {STATE_INDEXES[state]} " if few else ""
        return f"{named}WHERE state = '{state.value}' AND {where}"

    def _number(self, name: str, *values: object) -> int:
        n: int = self._connection.execute(self._sql[name], values).fetchone()[0]
        return n

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._sql[name], values).fetchall()
