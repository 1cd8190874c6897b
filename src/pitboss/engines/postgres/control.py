"""What operators do to many tasks at once. The leader's row is locked first, then lanes and batches, then tasks in the
order of their ids, then keys in theirs."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pitboss.engines.postgres.dialect import compiled
from pitboss.engines.postgres.gate import Gate
from pitboss.engines.postgres.lead import check_term
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Ask, Script, Statements
from pitboss.model.batch import OVER
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.queue import Changed


def cancel(say: Statements, wanted: Filter, reason: str, limit: int, now: Moment | None) -> Script[Changed]:
    moment = yield from current(say, now)
    term = compiled(wanted, moment)
    found = yield Ask(say.text("task_cancellable", condition=term.sql), [*term.values, limit + 1])
    gate = yield from _locked_batches(say, found[:limit])
    ids = texts([row[0] for row in found[:limit]])
    rows = yield Ask(say.text("task_lock_cancellable", condition=term.sql), [*term.values, ids])
    changed, asked = yield from cancel_locked(say, gate, [row[0] for row in rows], reason or "cancelled", moment)
    return Changed(changed=changed, asked=asked, more=len(found) > limit)


def cancel_locked(say: Statements, gate: Gate, ids: list[str], reason: str, now: Moment) -> Script[tuple[int, int]]:
    """Cancel tasks that are locked, and their batches before them: how many ended, how many were asked to."""
    rows = yield say.ask("task_cancel", now, ids=texts(ids), reason=reason)
    yield from gate.changed({batch: -changed for batch, changed, _ in rows if batch is not None}, now)
    return sum(row[1] for row in rows), sum(row[2] for row in rows)


def expire(say: Statements, ids: Sequence[str], now: Moment | None) -> Script[None]:
    """Cancel items of batches that are past their expiry."""
    moment = yield from current(say, now)
    looked = yield say.ask("claim_read", ids=texts(ids))
    gate = yield from _locked_batches(say, [(row[0], row[4]) for row in looked])
    rows = yield say.ask("task_lock_expired", moment, ids=texts(ids))
    yield from cancel_locked(say, gate, [row[0] for row in rows], "expired", moment)


def retry(say: Statements, wanted: Filter, keep: bool, limit: int, now: Moment | None) -> Script[Changed]:
    moment = yield from current(say, now)
    term = compiled(wanted, moment)
    found = yield Ask(say.text("task_retryable", condition=term.sql), [*term.values, limit + 1])
    gate = yield from _locked_batches(say, found[:limit])
    ids = texts([row[0] for row in found[:limit]])
    rows = yield Ask(say.text("task_lock_retryable", condition=term.sql), [*term.values, ids])
    changed, refused = yield from revive_locked(say, gate, [(row[0], row[1]) for row in rows], keep, moment)
    return Changed(changed=changed, refused=refused, more=len(found) > limit)


def revive_locked(
    say: Statements, gate: Gate, tasks: list[tuple[str, str | None]], keep: bool, now: Moment
) -> Script[tuple[int, tuple[str, ...]]]:
    """Let ended tasks (with their keys) live again, which are locked, and their batches before them: how many, and whom
    another task's key refuses. A batch that had ended goes back in line."""
    refused = yield from _without_key(say, tasks, now)
    ids = [task for task, _ in tasks if task not in refused]
    rows = yield say.ask("task_retry", now, ids=texts(ids), keep=keep, running=gate.running)
    if ids:
        yield say.ask("attempt_forget", tasks=texts(ids))
    revived = {batch: count for batch, count, _ in rows if batch is not None}
    for batch in sorted(revived):
        if gate.batches[batch].status in OVER:
            yield from gate.back_in_line(gate.batches[batch])
    yield from gate.changed(revived, now)
    for lane in sorted({gate.batches[batch].lane for batch in revived}):
        yield from gate.promote(lane, now)
    return sum(row[1] for row in rows), tuple(sorted(refused))


def prune(
    say: Statements, wanted: Filter, before: Moment | None, limit: int, now: Moment | None, term: int | None
) -> Script[Changed]:
    if term is not None:
        yield from check_term(say, now, term)
    moment = yield from current(say, now)
    chosen = compiled(wanted, moment)
    text = say.text("task_prunable", condition=chosen.sql)
    found = yield Ask(text, [before, moment, *chosen.values, limit + 1])
    ((changed, _),) = yield say.ask("task_remove", now, ids=texts([row[0] for row in found[:limit]]))
    return Changed(changed=changed, more=len(found) > limit)


def current(say: Statements, now: Moment | None) -> Script[Moment]:
    """The moment that a filter on ages is measured at."""
    if now is not None:
        return now
    ((moment,),) = yield say.ask("server_now")
    found: Moment = moment
    return found


def _locked_batches(say: Statements, tasks: Iterable[tuple[str, str | None]]) -> Script[Gate]:
    """Lock the lanes and batches of these tasks, before the tasks themselves."""
    gate = Gate(say, lanes=True)
    yield from gate.lock(Counter(batch for _, batch in tasks if batch is not None))
    return gate


def _without_key(say: Statements, tasks: list[tuple[str, str | None]], now: Moment | None) -> Script[set[str]]:
    """Take the keys of tasks that will live again; answers those whose key another task has."""
    first: dict[str, str] = {}
    for task, key in tasks:
        if key is not None:
            first.setdefault(key, task)
    if not first:
        return set()
    keys = sorted(first)
    yield say.ask("key_take", now, keys=texts(keys), tasks=texts([first[key] for key in keys]))
    rows = yield say.ask("key_holder", keys=names(keys))
    holders: dict[str, str] = {row[0]: row[1] for row in rows}
    return {task for task, key in tasks if key is not None and holders.get(key) != task}
