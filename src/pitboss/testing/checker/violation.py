"""A broken promise, and the calls that show it."""

from collections.abc import Iterable, Iterator

import msgspec

from pitboss.model.ids import TaskId
from pitboss.testing import history as acts
from pitboss.testing.history import FOREVER, Call

MOST_LINES = 60


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that the history shows to be broken. `lines` are the calls that show it."""

    invariant: str
    what: str
    task: TaskId | None = None
    queue: str | None = None
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.invariant}: {self.what}", *(f"    {line}" for line in self.lines)])


def of_task(calls: Iterable[Call], task: TaskId, faults: Iterable[tuple[str, str]]) -> Iterator[Violation]:
    """One violation for each fault (invariant, what); all show the same calls."""
    found = list(faults)
    lines = story(calls, task) if found else ()
    for invariant, what in found:
        yield Violation(invariant=invariant, what=f"task {task}: {what}", task=task, lines=lines)


def story(calls: Iterable[Call], task: TaskId) -> tuple[str, ...]:
    """The calls that name a task or may have changed it, one line each."""
    calls = list(calls)
    sessions = {session for call in calls for session in _sessions(call, task)}
    lines = [line for call in calls for line in _lines(call, task, sessions)]
    if len(lines) > MOST_LINES:
        lines = [f"… {len(lines) - MOST_LINES} earlier calls left out …", *lines[-MOST_LINES:]]
    return tuple(lines)


def session_story(calls: Iterable[Call], session: int) -> tuple[str, ...]:
    """The calls that open, renew and end a session."""
    return tuple(
        line
        for call in calls
        if isinstance(call.act, acts.OpenSession | acts.Renew | acts.EndSession)
        for line in _session_lines(call, call.act, {session})
    )


def shown(call: Call, text: str) -> str:
    end = "…" if call.ended == FOREVER else str(call.ended)
    at = "" if call.asked_at is None else f" at {call.asked_at}"
    return f"{call.begun}-{end} {call.process} {call.phase}{at} {text}{f' ({call.error})' if call.error else ''}"


def _sessions(call: Call, task: TaskId) -> Iterable[int]:
    match call.act:
        case acts.Claim(claimed=claimed) if claimed is not None:
            return [claim.token.session for claim in claimed.claims if claim.id == task]
        case acts.Settle(settlements=settlements):
            return [one.token.session for one in settlements if one.id == task]
    return []


def _lines(call: Call, task: TaskId, sessions: set[int]) -> Iterable[str]:
    match call.act:
        case acts.Put():
            return _put_lines(call, call.act, task)
        case acts.Claim():
            return _claim_lines(call, call.act, task)
        case acts.Settle():
            return _settle_lines(call, call.act, task)
        case acts.Cancel() | acts.Retry() | acts.Prune():
            return _operator_lines(call, call.act, task)
        case acts.OpenSession() | acts.Renew() | acts.EndSession():
            return _session_lines(call, call.act, sessions)
        case acts.Reclaim(reclaimed=done):
            return [shown(call, f"reclaim → {done}")] if done is None or done.lost or done.cancelled else []
    return []


def _session_lines(
    call: Call, act: acts.OpenSession | acts.Renew | acts.EndSession, sessions: set[int]
) -> Iterable[str]:
    match act:
        case acts.OpenSession(session=session) if session is not None and session.number in sessions:
            yield shown(call, f"open session {session.number} until {session.expires_at}")
        case acts.Renew(session=number, renewal=renewal) if number in sessions:
            yield shown(call, f"renew session {number} → {renewal.expires_at if renewal else '?'}")
        case acts.EndSession(session=number) if number in sessions:
            yield shown(call, f"end session {number}")


def _put_lines(call: Call, act: acts.Put, task: TaskId) -> Iterable[str]:
    for index, new in enumerate(act.tasks):
        placed = act.placed[index] if act.placed else None
        if task in (new.id, placed.id if placed else None):
            yield shown(call, f"put {new.id} key={new.unique} → {placed or '?'}")


def _claim_lines(call: Call, act: acts.Claim, task: TaskId) -> Iterable[str]:
    if act.claimed is None and call.unknown:
        yield shown(call, f"claim for session {act.request.session}")
    for claim in act.claimed.claims if act.claimed else ():
        if claim.id == task:
            figures = f"attempt={claim.attempt} losses={claim.losses} at {claim.claimed_at}"
            yield shown(call, f"claim {claim.token} {figures}")


def _settle_lines(call: Call, act: acts.Settle, task: TaskId) -> Iterable[str]:
    for index, one in enumerate(act.settlements):
        if one.id == task or task in [new.id for new in one.transition.follow_ups]:
            answer = act.answers[index] if act.answers else "?"
            yield shown(call, f"settle {one.token} {one.transition.outcome} to {one.transition.state} → {answer}")


def _operator_lines(call: Call, act: acts.Cancel | acts.Retry | acts.Prune, task: TaskId) -> Iterable[str]:
    if act.changed is not None and not (act.changed.changed or act.changed.asked):
        return
    ids = [value for term in act.wanted.terms if term.field == "id" for value in term.values]
    if not ids or task in ids:
        yield shown(call, f"{type(act).__name__.lower()} → {act.changed}")
