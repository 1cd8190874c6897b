"""At most one claim per task is live, and only its holder writes."""

from collections.abc import Iterator
from itertools import accumulate, pairwise

from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.task import Token
from pitboss.testing.checker.evidence import Evidence, GivenClaim, SettleCall
from pitboss.testing.checker.sessions import SessionLife
from pitboss.testing.checker.violation import Violation, of_task, session_story
from pitboss.testing.history import FOREVER

ONE_CLAIM = "at most one live claim per task"
FENCED = "every accepted write carries the newest claim of a live session, or one whose own time limit is not over"
ANSWERS = "a settlement is refused only for a reason, and a refusal is final"


def check_claims(seen: Evidence) -> Iterator[Violation]:
    for task in seen.ids:
        yield from of_task(seen.calls, task, _faults(seen, task))
    yield from _check_sessions(seen)


def _faults(seen: Evidence, task: TaskId) -> Iterator[tuple[str, str]]:
    given = seen.given.get(task, [])
    yield from _numbers(given)
    yield from _overlaps(seen, task, given)
    for one in given:
        session = one.claim.token.session
        if not one.may_be_again and seen.lives[session].surely_dead(one.call.asked_at, one.call.begun):
            yield FENCED, f"claim {one.claim.token} was given to a session that was over"
    yield from _check_writes(seen, task, given)
    yield from _lost_while_alive(seen, task)


def _numbers(given: list[GivenClaim]) -> Iterator[tuple[str, str]]:
    for one, other in pairwise(given):
        again = other.may_be_again and one.claim.token == other.claim.token
        if one.claim.token.claim == other.claim.token.claim and not again:
            yield ONE_CLAIM, f"claim number {one.claim.token.claim} was given twice"
    latest = 0
    for one in given:
        if one.call.ended < latest:
            yield FENCED, f"claim {one.claim.token} was given before a claim with a smaller number"
        latest = max(latest, one.call.begun)


def _overlaps(seen: Evidence, task: TaskId, given: list[GivenClaim]) -> Iterator[tuple[str, str]]:
    for one, other in pairwise(given):
        if one.claim.token.claim != other.claim.token.claim and not _may_be_over(seen, task, one, other):
            yield ONE_CLAIM, f"claim {other.claim.token} was given while {one.claim.token} was live"


def _may_be_over(seen: Evidence, task: TaskId, one: GivenClaim, other: GivenClaim) -> bool:
    before = other.call.ended
    for written in seen.written.get(task, ()):
        same = written.settlement.token == one.claim.token
        if same and not written.is_progress and not written.refused and written.call.begun < before:
            return True
    life, limit = seen.lives[one.claim.token.session], seen.time_limit(task, one.claim.token)
    if limit is None:
        over = life.may_be_dead(other.claim.claimed_at, before)
    else:
        over = other.claim.claimed_at >= limit.surely_until(other.call.begun)
    return over and seen.reclaims.may_have(one.call.begun, before)


def _check_writes(seen: Evidence, task: TaskId, given: list[GivenClaim]) -> Iterator[tuple[str, str]]:
    by_number = {one.claim.token.claim: one for one in given}
    numbers = sorted(by_number)
    ends = [by_number[number].call.ended for number in reversed(numbers)]
    # For each claim number: by when a later claim was surely given.
    later = dict(zip(numbers, [*list(accumulate(ends, min))[-2::-1], FOREVER], strict=True)) if numbers else {}
    earlier: list[SettleCall] = []
    for written in seen.written.get(task, ()):
        if written.applied and not _repeats(written, earlier):
            yield from _fence(seen, written, by_number, later)
            yield from _late(written, earlier)
        elif written.refused:
            yield from _refused_without_cause(seen, task, written, by_number, earlier)
        earlier.append(written)


def _repeats(written: SettleCall, earlier: list[SettleCall]) -> bool:
    """Whether this may repeat an earlier settlement."""
    return not written.is_progress and any(
        one.settlement.token == written.settlement.token and one.outcome == written.outcome and not one.refused
        for one in earlier
    )


def _fence(
    seen: Evidence, written: SettleCall, by_number: dict[int, GivenClaim], later: dict[int, int]
) -> Iterator[tuple[str, str]]:
    token, call = written.settlement.token, written.call
    one = by_number.get(token.claim)
    if one is None or one.claim.token != token:
        if not seen.unknown_claims.may_have(0, call.ended):
            yield FENCED, f"a write under {token} was accepted, but that claim was never given"
        return
    if later[token.claim] < call.begun:
        yield FENCED, f"a write under {token} ({written.outcome}) was accepted after a newer claim"
    limit = seen.time_limit(written.settlement.id, token)
    if limit is not None and limit.surely_over(call.asked_at):
        yield FENCED, f"a write under {token} ({written.outcome}) was accepted though its time limit was over"
    if limit is None and seen.lives[token.session].surely_dead(call.asked_at, call.begun):
        yield FENCED, f"a write under {token} ({written.outcome}) was accepted though its session was over"


def _late(written: SettleCall, earlier: list[SettleCall]) -> Iterator[tuple[str, str]]:
    for one in earlier:
        if one.settlement.token != written.settlement.token or one.call.ended > written.call.begun:
            continue
        if one.refused:
            yield ANSWERS, f"{written.outcome} under {one.settlement.token} was accepted after a refusal"
            return
        if not one.is_progress:
            yield FENCED, f"{written.outcome} under {one.settlement.token} was accepted after {one.outcome}"
            return


def _refused_without_cause(
    seen: Evidence, task: TaskId, written: SettleCall, by_number: dict[int, GivenClaim], earlier: list[SettleCall]
) -> Iterator[tuple[str, str]]:
    token, call = written.settlement.token, written.call
    one = by_number.get(token.claim)
    if not call.answered or one is None or one.claim.token != token or not _surely_live(seen, task, written):
        return
    mine = [other for other in seen.written[task] if other.settlement.token == token and not other.is_progress]
    if any(other.call.begun < call.ended and not other.refused for other in mine):
        return
    # A later claim, recorded or not, is only possible after this one was over or settled.
    if one.call.ended < call.begun and not any(other.refused for other in earlier if other in mine):
        yield ANSWERS, f"{written.outcome} under {token} was refused though the claim was live: {written.answer}"


def _surely_live(seen: Evidence, task: TaskId, written: SettleCall) -> bool:
    """Whether the claim lasted through the call, unless it was settled."""
    token, call = written.settlement.token, written.call
    limit = seen.time_limit(task, token)
    if call.answered_at is None:
        return False
    if limit is not None:
        return call.answered_at < limit.surely_until(call.begun)
    return not seen.lives[token.session].may_be_dead(call.answered_at, call.ended)


def _lost_while_alive(seen: Evidence, task: TaskId) -> Iterator[tuple[str, str]]:
    said = {written.settlement.token for written in seen.written.get(task, ()) if written.outcome == "lost"}
    for run in seen.record(task):
        if run.outcome != "lost" or run.session is None or any(token.claim == run.claim for token in said):
            continue
        limit = seen.time_limit(task, Token(run.session, run.claim))
        if limit is not None and run.ended_at < limit.surely_until(FOREVER):
            yield ONE_CLAIM, f"claim {run.claim} was taken back before its time limit"
        if not seen.may_run_out(task) and _was_alive(seen.lives[run.session], run.ended_at):
            yield ONE_CLAIM, f"claim {run.claim} was taken from session {run.session}, which was alive"


def _was_alive(life: SessionLife, at: Moment) -> bool:
    ended = life.end_begun < FOREVER and (life.end_asked_at is None or life.end_asked_at <= at)
    return at < life.confirmed_until and not ended


def _check_sessions(seen: Evidence) -> Iterator[Violation]:
    for number, life in seen.lives.by_number.items():
        if len(life.opened) > 1:
            yield _session_fault(seen, number, "was given out twice")
        if life.revived:
            yield _session_fault(seen, number, "was renewed after it was over")


def _session_fault(seen: Evidence, number: int, what: str) -> Violation:
    lines = session_story(seen.calls, number)
    return Violation(invariant=FENCED, what=f"session number {number} {what}", lines=lines)
