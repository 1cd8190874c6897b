"""Reading tasks by the ranges of a plan (`engines.ranges`)."""

from collections.abc import Sequence

from pitboss.engines.postgres import rows
from pitboss.engines.postgres.dialect import compiled, possible
from pitboss.engines.postgres.rows import texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements, current
from pitboss.engines.protocol import Page
from pitboss.engines.ranges import Plan, Question, Range, counted, counted_by_queue, plan
from pitboss.engines.sqlfilter import Condition
from pitboss.model.duration import Moment
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import moment_of

_ANY = Condition("true", [])
_NONE = "SELECT NULL::uuid AS id, NULL::tid AS place WHERE false"


def find(
    sql: Statements, wanted: Filter, limit: int, after: str | None, oldest_first: bool, most: int, now: Moment | None
) -> Script[Page]:
    moment = yield from current(sql, now)
    most, wanted = max(most, limit), possible(wanted)
    ranges = yield from _planned(sql, plan(wanted, moment, most, ordered=True))
    condition = compiled(wanted, moment)
    candidates = _candidates(sql, ranges, after, oldest_first)
    order = "ASC" if oldest_first else "DESC"
    text = sql.text("task_find", condition=condition.sql, candidates=candidates.sql, order=order)
    values = [*candidates.values, most, *condition.values, limit + 1, *candidates.values, most - 1, limit]
    found = yield Ask(text, values)
    tasks = [rows.task(row[1:]) for row in found if row[1] is not None]
    if len(tasks) > limit:
        return Page(tasks[:limit], tasks[limit - 1].id)
    # The last task that was looked at, and the next one, if there is one.
    ends: list[str] = found[0][0] or []
    return Page(tasks, ends[0], moment_of(ends[0])) if len(ends) > 1 else Page(tasks, None)


def count(sql: Statements, wanted: Filter, most: int, now: Moment | None) -> Script[Count]:
    if counted_by_queue(wanted):
        return counted(wanted, (yield sql.ask("queue_counts")))
    moment = yield from current(sql, now)
    wanted = possible(wanted)
    ranges = yield from _planned(sql, plan(wanted, moment, most, ordered=False))
    return (yield from _count(sql, ranges, compiled(wanted, moment), most))


def failures(sql: Statements, most: int) -> Script[list[FailureCount]]:
    found = yield sql.ask("failure_list", most=most + 1)
    return [
        FailureCount(
            fingerprint=mark,
            handler=handler,
            count=Count(min(looked, most), looked > most),
            first=first,
            last=last,
            newest=newest,
        )
        for mark, handler, looked, first, last, newest in found
    ]


def _candidates(sql: Statements, ranges: Sequence[Range], after: str | None, oldest_first: bool) -> Condition:
    """All tasks of the ranges, each range in the order of the page: so they are merged, and read no further than
    needed."""
    order, sign = ("ASC", ">") if oldest_first else ("DESC", "<")
    beyond, start = ("", ()) if after is None else (f"AND id {sign} %s::uuid", (after,))
    parts = []
    for one in ranges:
        part = f"SELECT id, ctid AS place FROM {sql.quoted}.tasks WHERE {_where(sql, one)} {beyond}"
        # OFFSET 0: the server must not read all tasks by id instead, and compare each one with the range.
        part = part if one.by_id else f"SELECT * FROM ({part} OFFSET 0) AS loose"
        parts.append(f"({part} ORDER BY id {order})")
    return Condition(" UNION ALL ".join(parts or [_NONE]), [value for one in ranges for value in (*one.values, *start)])


def _count(sql: Statements, ranges: Sequence[Range], condition: Condition, most: int) -> Script[Count]:
    if not ranges:
        return Count()
    parts = [
        f"(SELECT {condition.sql} AS matched FROM {sql.quoted}.tasks WHERE {_where(sql, one)} LIMIT %s)"
        for one in ranges
    ]
    values = [value for one in ranges for value in (*condition.values, *one.values, most + 1)]
    ((looked, number),) = yield Ask(sql.text("task_count", candidates=" UNION ALL ".join(parts)), [*values, most + 1])
    return Count(min(number, most), looked > most)


def _planned(sql: Statements, steps: Plan) -> Script[list[Range]]:
    try:
        asked = next(steps)
        while True:
            asked = steps.send((yield from _answer(sql, asked)))
    except StopIteration as end:
        found: list[Range] = end.value
        return found


def _answer(sql: Statements, asked: Question) -> Script[Sequence[Row]]:
    match asked.about:
        case "counts":
            return (yield sql.ask("queue_counts"))
        case "priorities":
            return (yield sql.ask("task_priorities", queues=texts(asked.names)))
        case "failures":
            return (yield sql.ask("failure_groups"))
        case "unknown":
            return (yield sql.ask("task_unknown_handlers"))
        case "size":
            size = yield from _count(sql, asked.ranges, _ANY, asked.most)
            return [(size.number + size.more,)]


def _where(sql: Statements, one: Range) -> str:
    return one.where.replace("?", "%s").replace("{order_heads}", f"{sql.quoted}.order_heads")
