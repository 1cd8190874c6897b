"""Whether a task matches a filter. Every engine's SQL must give the same answer."""

import operator
from typing import Literal

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.filter import Filter, Term, glob, json_candidates
from pitboss.model.ids import TaskId, first_id
from pitboss.model.states import State
from pitboss.model.task import Task

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def matches(wanted: Filter, task: Task, now: Moment) -> bool:
    """True if every term matches. A comparison with a field that the task does not have never does, not even
    negated."""
    return all(_holds(term, task, now) for term in wanted.terms)


def waited(task: Task, now: Moment) -> Span | None:
    """How long it waited, or has waited, since it was due; None while it is held or not due."""
    due = task.created_at if task.run_at is None else max(task.run_at, task.created_at)
    if task.started_at is not None:
        return max(0, task.started_at - due)
    return now - due if task.state == "pending" else None


def ran(task: Task, now: Moment) -> Span | None:
    """How long its last run took, or has taken so far; None while it waits to run, and if it never ran."""
    if task.started_at is None:
        return None
    if task.state is State.RUNNING:
        return now - task.started_at
    return None if task.finished_at is None else task.finished_at - task.started_at


def id_bound(term: Term, now: Moment) -> tuple[Literal["<", ">="], TaskId]:
    """An age is a range of ids: tasks of the term's ages have ids below the bound, or from it on."""
    moment = now - term.number
    # The ids of one millisecond are of one age.
    millis = -(-moment // 1000) if term.op in (">", "<=") else moment // 1000 + 1
    older = (term.op in (">", ">=")) != term.negated
    return "<" if older else ">=", first_id(millis)


def _holds(term: Term, task: Task, now: Moment) -> bool:
    if term.field == "args":
        return _json_at(task.params, term.path, term.values) != term.negated
    if term.field == "text":
        return _mentions(task, term.values[0]) != term.negated
    if term.field == "age":
        op, bound = id_bound(term, now)
        return task.id < bound if op == "<" else task.id >= bound
    if term.op != "in":
        number = _number(term.field, task, now)
        return number is not None and _COMPARE[term.op](number, term.number) != term.negated
    return any(glob(value, text) for value in term.values for text in _texts(term.field, task)) != term.negated


def _number(field: str, task: Task, now: Moment) -> int | None:
    if field == "wait":
        return waited(task, now)
    if field == "ran":
        return ran(task, now)
    if field == "finished":
        return None if task.finished_at is None else now - task.finished_at
    number: int | None = getattr(task, field)
    return number


def _texts(field: str, task: Task) -> tuple[str, ...]:
    match field:
        case "tag":
            return task.tags
        case "task":
            return (task.handler,)
        case "error":
            return (task.error.type, task.error.category) if task.error else ()
        case "fingerprint":
            return (task.error.fingerprint,) if task.error else ()
        case "key":
            return (task.unique_key,) if task.unique_key is not None else ()
        case "order":
            return (task.order_key,) if task.order_key is not None else ()
    value = getattr(task, field)
    return () if value is None else (str(value),)


def _mentions(task: Task, text: str) -> bool:
    texts = (task.handler, task.params, task.reason or "", task.error.message if task.error else "")
    return any(text in one for one in texts)


def _json_at(params: str, path: tuple[str, ...], values: tuple[str, ...]) -> bool:
    found: object = msgspec.json.decode(params)
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    text = msgspec.json.encode(found, order="sorted").decode()
    return any(text in json_candidates(value) for value in values)
