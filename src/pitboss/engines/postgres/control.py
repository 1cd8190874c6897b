"""What operators do to many tasks at once. The leader's row is locked first, then tasks in the order of their ids, then
keys in theirs."""

from pitboss.engines.postgres.dialect import compiled
from pitboss.engines.postgres.lead import check_term
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Ask, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.queue import Changed


def cancel(say: Statements, wanted: Filter, reason: str, limit: int, now: Moment | None) -> Script[Changed]:
    found = yield (yield from _matching(say, "cancellable", wanted, limit, now))
    ids = texts([row[0] for row in found[:limit]])
    ((changed, asked),) = yield say.ask("cancel", now, ids=ids, reason=reason or "cancelled")
    return Changed(changed=changed, asked=asked, more=len(found) > limit)


def retry(say: Statements, wanted: Filter, keep: bool, limit: int, now: Moment | None) -> Script[Changed]:
    found = yield (yield from _matching(say, "retryable", wanted, limit, now))
    refused = yield from _without_key(say, [(row[0], row[1]) for row in found[:limit]], now)
    ids = [row[0] for row in found[:limit] if row[0] not in refused]
    ((changed, _),) = yield say.ask("revive", now, ids=texts(ids), keep=keep)
    if ids:
        yield say.ask("trim", tasks=texts(ids))
    return Changed(changed=changed, refused=tuple(sorted(refused)), more=len(found) > limit)


def prune(
    say: Statements, wanted: Filter, before: Moment | None, limit: int, now: Moment | None, term: int | None
) -> Script[Changed]:
    if term is not None:
        yield from check_term(say, now, term)
    moment = yield from current(say, now)
    chosen = compiled(wanted, moment)
    text = say.text("prunable", condition=chosen.sql)
    found = yield Ask(text, [before, moment, *chosen.values, limit + 1])
    ((changed,),) = yield say.ask("prune", now, ids=texts([row[0] for row in found[:limit]]))
    return Changed(changed=changed, more=len(found) > limit)


def current(say: Statements, now: Moment | None) -> Script[Moment]:
    """The moment that a filter on ages is measured at."""
    if now is not None:
        return now
    ((moment,),) = yield say.ask("now")
    found: Moment = moment
    return found


def _matching(say: Statements, name: str, wanted: Filter, limit: int, now: Moment | None) -> Script[Ask]:
    term = compiled(wanted, (yield from current(say, now)))
    return Ask(say.text(name, condition=term.sql), [*term.values, limit + 1])


def _without_key(say: Statements, tasks: list[tuple[str, str | None]], now: Moment | None) -> Script[set[str]]:
    """Take the keys of tasks that will live again; answers those whose key another task has."""
    first: dict[str, str] = {}
    for task, key in tasks:
        if key is not None:
            first.setdefault(key, task)
    if not first:
        return set()
    keys = sorted(first)
    yield say.ask("retake", now, keys=texts(keys), tasks=texts([first[key] for key in keys]))
    rows = yield say.ask("holders", keys=names(keys))
    holders: dict[str, str] = {row[0]: row[1] for row in rows}
    return {task for task, key in tasks if key is not None and holders.get(key) != task}
