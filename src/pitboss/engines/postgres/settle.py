"""Settling: groups of transitions, each task once per wave, follow-up tasks in the same act.

Plain claims are settled by one statement. For those that have a batch, a resource or an order key, and for failures
that something may follow, see `settle_bound`.
"""

from collections.abc import Sequence

from pitboss.engines.postgres.put import put
from pitboss.engines.postgres.rows import error_text, known_id, numbers, texts
from pitboss.engines.postgres.script import Again, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.outcome import Transition
from pitboss.model.settlement import (
    APPLIED,
    STALE_CLAIM,
    STALE_SESSION,
    STALE_TASK,
    STALE_TIME,
    SettleAnswer,
    Settlement,
)
from pitboss.model.states import WAITING, State

ANSWERS = {
    "apply": APPLIED,
    "progress": APPLIED,
    "repeat": APPLIED,
    "task": STALE_TASK,
    "session": STALE_SESSION,
    "claim": STALE_CLAIM,
    "time": STALE_TIME,
}
_CHARGED, _LOST, _CRASHED, _RECORDED, _ROTATED = 1, 2, 4, 8, 16
KEPT_RUNS = 100
ROUNDS = 10


def bound(settlements: Sequence[Settlement]) -> bool:
    """Whether a settlement names more to change than its task."""
    return any(
        one.batch
        or one.resource
        or one.report
        or one.transition.rotated
        or any(new.order_key is not None for new in one.transition.follow_ups)
        for one in settlements
    )


def simple(settlements: Sequence[Settlement]) -> bool:
    """Whether one statement writes them all: no task twice, no follow-up tasks."""
    return len({one.id for one in settlements}) == len(settlements) and not any(
        one.transition.follow_ups for one in settlements
    )


def settle(
    sql: Statements, settlements: Sequence[Settlement], now: Moment | None
) -> Script[list[SettleAnswer | None] | Again]:
    """Write them wave by wave, so that a task which is settled twice in one call is settled in that order.

    None for each that is not written, as something must be locked first. Where more than one statement is needed, the
    answer is `Again` instead.
    """
    answered: list[SettleAnswer | None] = [STALE_TASK] * len(settlements)
    alone = simple(settlements)
    left = [i for i, one in enumerate(settlements) if known_id(one.id)]
    while left:
        wave, left = next_wave(settlements, left)
        answers = yield from _write(sql, [settlements[i] for i in wave], now)
        if "bound" in answers and not alone:
            return Again()
        fresh = [settlements[i] for i, answer in zip(wave, answers, strict=True) if answer == "apply"]
        yield from after(sql, fresh, now)
        for i, answer in zip(wave, answers, strict=True):
            answered[i] = ANSWERS.get(answer)
    return answered


def next_wave(settlements: Sequence[Settlement], left: list[int]) -> tuple[list[int], list[int]]:
    """Which settlements come now, each task once, and which later."""
    seen: set[str] = set()
    wave: list[int] = []
    later: list[int] = []
    for i in left:
        (later if settlements[i].id in seen else wave).append(i)
        seen.add(settlements[i].id)
    # All writers lock tasks in the order of their ids.
    wave.sort(key=lambda i: settlements[i].id)
    return wave, later


def _write(sql: Statements, wave: list[Settlement], now: Moment | None) -> Script[list[str]]:
    """The answers for one wave. A row that changed while the statement waited for it is judged again."""
    answers = [""] * len(wave)
    left = list(range(len(wave)))
    for _ in range(ROUNDS):
        rows = yield sql.ask("settle", now, **columns([wave[i] for i in left]))
        for place, answer in rows:
            answers[left[place - 1]] = answer
        if len(rows) == len(left):
            break
        left = [i for i in left if not answers[i]]
    return [answer or "claim" for answer in answers]


def after(sql: Statements, fresh: list[Settlement], now: Moment | None) -> Script[None]:
    """What follows from settlements that have just been applied."""
    long = [one.id for one in fresh if one.token.claim > KEPT_RUNS and one.transition.state in WAITING]
    if long:
        yield sql.ask("attempt_forget", tasks=texts(long))
    follow_ups = [
        new for one in fresh if one.transition.state is not State.RUNNING for new in one.transition.follow_ups
    ]
    if follow_ups:
        # They may overfill a queue.
        yield from put(sql, follow_ups, now, ring=True)


def columns(wave: list[Settlement]) -> dict[str, object]:
    moves = [one.transition for one in wave]
    return {
        "sessions": numbers(sorted({one.token.session for one in wave})),
        "ids": texts([one.id for one in wave]),
        "tokens": numbers([one.token.session for one in wave]),
        "claims": numbers([one.token.claim for one in wave]),
        "states": texts([None if move.state is State.COMPLETED else move.state.value for move in moves]),
        "outcomes": texts([None if move.outcome == "completed" else move.outcome for move in moves]),
        "delays": numbers([move.delay for move in moves]),
        "results": texts([move.result for move in moves]),
        "errors": texts([error_text(move.error) for move in moves]),
        "prints": texts([None if move.error is None else move.error.fingerprint for move in moves]),
        "reasons": texts([move.reason for move in moves]),
        "flags": numbers([flags(move) for move in moves]),
        "shares": numbers([move.progress for move in moves]),
        "notes": texts([move.note for move in moves]),
        "workers": texts([one.worker for one in wave]),
        "rans": numbers([one.ran for one in wave]),
    }


def flags(move: Transition) -> int | None:
    """What the transition counts as; None for a plain end, which its state tells."""
    counted = _CHARGED * move.charged + _LOST * move.lost + _CRASHED * move.crashed + _RECORDED * move.recorded
    plain = move.state in (State.COMPLETED, State.RUNNING) and not move.lost and not move.crashed
    return None if plain else counted + _ROTATED * move.rotated
