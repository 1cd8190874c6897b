"""Reading tasks by the ranges of a plan (`engines.ranges`), on a reader's connection."""

import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any

from pitboss.engines.protocol import Page
from pitboss.engines.ranges import Plan, Question, Range, counted, counted_by_queue, plan
from pitboss.engines.sqlfilter import Condition
from pitboss.engines.sqlite.act import json_list
from pitboss.engines.sqlite.filters import matching
from pitboss.engines.sqlite.rows import TASK_COLUMNS, task_of
from pitboss.model.duration import Moment
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import moment_of
from pitboss.model.task import Task

_ROWS = f"SELECT {TASK_COLUMNS} FROM pitboss_tasks WHERE rowid IN (SELECT value FROM json_each(?))"
# One candidate after the other, as far as they are fetched: whether it matches is only then compared.
_LOOK = """
    SELECT id, place, (SELECT {condition} FROM pitboss_tasks WHERE rowid = place) FROM (
        SELECT id, rowid AS place FROM pitboss_tasks {index} WHERE {where} {beyond} ORDER BY id {order} LIMIT ?
    )
"""
_COUNT = """
    SELECT count(*), coalesce(sum(matched), 0) FROM (
        SELECT {condition} AS matched FROM pitboss_tasks {index} WHERE {where} LIMIT ?
    )
"""
_ANY = Condition("1", [])


class Ledger:
    """One read: a connection, the statements and the moment."""

    def __init__(self, connection: sqlite3.Connection, sql: dict[str, str], now: Moment) -> None:
        self._connection, self._sql, self._now = connection, sql, now

    def find(self, wanted: Filter, limit: int, after: str | None, oldest_first: bool, most: int) -> Page:
        most = max(most, limit)
        found, looked, last = list[int](), 0, ""
        for task, place, matched in self._candidates(wanted, after, oldest_first, most):
            if looked == most:
                return Page(self._tasks(found, oldest_first), last, moment_of(last))
            looked, last = looked + 1, task
            if matched and len(found) == limit:
                page = self._tasks(found, oldest_first)
                return Page(page, page[-1].id)
            if matched:
                found.append(place)
        return Page(self._tasks(found, oldest_first), None)

    def count(self, wanted: Filter, most: int) -> Count:
        if counted_by_queue(wanted):
            return counted(wanted, self._rows("count_list"))
        condition = matching(wanted, self._now)
        return self._count(self._planned(plan(wanted, self._now, most, ordered=False)), condition, most)

    def failures(self, most: int) -> list[FailureCount]:
        return [self._failures(mark, handler, most) for mark, handler in self._failure_groups()]

    def _failures(self, mark: str | None, handler: str, most: int) -> FailureCount:
        ((looked, first, last, newest),) = self._rows("failure_look", mark, handler, most + 1)
        count = Count(min(looked, most), looked > most)
        return FailureCount(fingerprint=mark, handler=handler, count=count, first=first, last=last, newest=newest)

    def _candidates(
        self, wanted: Filter, after: str | None, oldest_first: bool, most: int
    ) -> Iterator[tuple[str, int, int | None]]:
        condition = matching(wanted, self._now)
        ranges = self._planned(plan(wanted, self._now, most, ordered=True))
        order, sign = ("ASC", ">") if oldest_first else ("DESC", "<")
        beyond, start = ("", []) if after is None else (f"AND id {sign} ?", [after])
        streams = [
            self._connection.execute(
                _LOOK.format(condition=condition.sql, index=_hint(one), where=_where(one), beyond=beyond, order=order),
                [*condition.values, *one.values, *start, most + 1],
            )
            for one in ranges
        ]
        return merge(*streams, key=itemgetter(0), reverse=not oldest_first)

    def _count(self, ranges: Sequence[Range], condition: Condition, most: int) -> Count:
        looked = number = 0
        for one in ranges:
            text = _COUNT.format(condition=condition.sql, index=_hint(one), where=_where(one))
            values = [*condition.values, *one.values, most + 1 - looked]
            row = self._connection.execute(text, values).fetchone()
            looked, number = looked + row[0], number + row[1]
            if looked > most:
                break
        return Count(min(number, most), looked > most)

    def _planned(self, steps: Plan) -> list[Range]:
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self._answer(asked))
        except StopIteration as end:
            found: list[Range] = end.value
            return found

    def _answer(self, asked: Question) -> Sequence[tuple[Any, ...]]:
        match asked.about:
            case "counts":
                return self._rows("count_list")
            case "priorities":
                return self._rows("task_priorities", json_list(asked.names))
            case "failures":
                return list(self._failure_groups())
            case "unknown":
                return self._rows("task_unknown_handlers")
            case "size":
                size = self._count(asked.ranges, _ANY, asked.most)
                return [(size.number + size.more,)]

    def _failure_groups(self) -> Iterator[tuple[str | None, str]]:
        """Fingerprints and handlers: one step of the index for each."""
        found = self._rows("failure_first")
        while found:
            yield found[0]
            found = self._rows("failure_next", *found[0])

    def _tasks(self, places: Sequence[int], oldest_first: bool) -> list[Task]:
        found = [task_of(row) for row in self._connection.execute(_ROWS, [json_list(places)])]
        return sorted(found, key=lambda task: task.id, reverse=not oldest_first)

    def _rows(self, name: str, *values: object) -> list[Any]:
        return self._connection.execute(self._sql[name], values).fetchall()


def _hint(one: Range) -> str:
    return f"INDEXED BY pitboss_tasks_{one.name}" if one.name else ""


def _where(one: Range) -> str:
    return one.where.replace("{order_heads}", "pitboss_order_heads")
