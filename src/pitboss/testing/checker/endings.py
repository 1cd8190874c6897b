"""A task ends once, with its accepted outcome; its record shows every run, and only charged outcomes cost attempts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pitboss.model.ids import TaskId
from pitboss.model.states import FINISHED, MOVES, WAITING, State
from pitboss.model.task import Attempt, Task
from pitboss.testing.checker.evidence import FULL_RECORD, Evidence, SettleCall
from pitboss.testing.checker.violation import Violation, of_task
from pitboss.testing.history import FOREVER

ENDS_ONCE = "a task ends exactly once, with its accepted outcome"
RECORDED = "every ended run is in the record, and nothing else"
CHARGED = "only charged outcomes cost an attempt, and only losses count as lost"


class Ending(NamedTuple):
    """What is known of how one claim ended. If no settlement was surely applied (`sure` None), `maybe` has them all."""

    claim: int
    sure: SettleCall | None
    maybe: tuple[SettleCall, ...]
    given: bool

    @property
    def surely_lost(self) -> bool:
        return self.sure is None and not self.maybe


class Range(NamedTuple):
    low: int
    high: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high


def check_endings(seen: Evidence) -> Iterator[Violation]:
    for task in seen.ids:
        yield from of_task(seen.calls, task, _faults(seen, task))


def _faults(seen: Evidence, task: TaskId) -> Iterator[tuple[str, str]]:
    known = seen.tasks.get(task)
    endings, faults = _endings(seen, task, known)
    yield from faults
    yield from _reopened(seen, task, endings)
    if known is None:
        return
    yield from _last_claim(seen, known, endings)
    yield from _final_state(seen, known, endings.get(known.claim))
    if len(seen.record(task)) < FULL_RECORD:
        yield from _record(seen, known, endings)
    yield from _charges(seen, known, endings)


def _endings(seen: Evidence, task: TaskId, known: Task | None) -> tuple[dict[int, Ending], list[tuple[str, str]]]:
    """How each claim ended, and contradictions in that."""
    faults: list[tuple[str, str]] = []
    given = {one.claim.token.claim for one in seen.given.get(task, ())}
    written: dict[int, list[SettleCall]] = {}
    for one in seen.written.get(task, ()):
        if not one.is_progress:
            written.setdefault(one.settlement.token.claim, []).append(one)
    newest = max([*given, *written, known.claim if known else 0], default=0)
    endings = {}
    for claim in range(1, newest + 1):
        applied = [one for one in written.get(claim, ()) if one.applied]
        outcomes = {one.outcome for one in applied}
        if len(outcomes) > 1:
            faults.append((ENDS_ONCE, f"claim {claim} was accepted as {' and as '.join(sorted(outcomes))}"))
        unknown = tuple(one for one in written.get(claim, ()) if one.unknown)
        endings[claim] = Ending(claim, applied[0] if applied else None, unknown, claim in given)
    return endings, faults


def _reopened(seen: Evidence, task: TaskId, endings: dict[int, Ending]) -> Iterator[tuple[str, str]]:
    """After a final outcome, the next claim needs an operator's retry in between."""
    given = {one.claim.token.claim: one.call for one in seen.given.get(task, ())}
    for claim, ending in endings.items():
        sure = ending.sure
        if sure is None or sure.settlement.transition.state not in FINISHED or claim + 1 not in endings:
            continue
        until = given[claim + 1].ended if claim + 1 in given else FOREVER
        state = sure.settlement.transition.state
        if (state, State.PENDING) not in MOVES or not seen.retries.may_have(task, sure.call.begun, until):
            yield ENDS_ONCE, f"it was claimed again after it had {state} under claim {claim}"


def _last_claim(seen: Evidence, known: Task, endings: dict[int, Ending]) -> Iterator[tuple[str, str]]:
    if endings and known.claim < max(endings):
        yield RECORDED, f"the ledger shows claim {known.claim}, but claim {max(endings)} was given or written"
    unseen = [claim for claim, ending in endings.items() if not ending.given]
    if unseen and not seen.unknown_claims.may_have(0):
        yield RECORDED, f"claims {unseen} were never given to a session"


def _final_state(seen: Evidence, known: Task, ending: Ending | None) -> Iterator[tuple[str, str]]:
    """The ledger's state must be a possible result of the last claim. `ending` is None if there was no claim."""
    if ending is None:
        if known.state not in WAITING and known.state is not State.CANCELLED:
            yield ENDS_ONCE, f"the ledger shows it {known.state}, but it was never claimed"
        elif known.state is State.CANCELLED and not seen.may_be_cancelled(known.id, 0):
            yield ENDS_ONCE, "the ledger shows it cancelled, but no call cancelled it"
        return
    possible = _possible(seen, known, ending)
    if known.state not in possible:
        told = ending.sure.outcome if ending.sure else "nothing accepted"
        yield ENDS_ONCE, f"the ledger shows it {known.state}, but claim {ending.claim} ended with {told}"
    sure = ending.sure
    if sure and known.state is sure.settlement.transition.state and known.state in FINISHED:
        yield from _same_result(known, sure)


def _same_result(known: Task, sure: SettleCall) -> Iterator[tuple[str, str]]:
    wanted = sure.settlement.transition
    if known.outcome != wanted.outcome or (known.state is State.COMPLETED and known.result != wanted.result):
        yield (
            ENDS_ONCE,
            f"{wanted.outcome} with {wanted.result} was accepted, {known.outcome} with {known.result} is stored",
        )


def _possible(seen: Evidence, known: Task, ending: Ending) -> set[State]:
    if ending.sure:
        return _after(seen, known, ending.sure)
    possible: set[State] = {State.RUNNING, *_waiting(seen, known, 0)}
    if seen.may_run_out(known.id):
        possible.add(State.FAILED)
    for written in ending.maybe:
        possible |= _after(seen, known, written)
    return possible


def _after(seen: Evidence, known: Task, written: SettleCall) -> set[State]:
    """The possible states of a task after a settlement was applied."""
    state = written.settlement.transition.state
    if state in WAITING:
        return _waiting(seen, known, 0)
    revived = (state, State.PENDING) in MOVES and seen.retries.may_have(known.id, written.call.begun)
    return {state, *(_waiting(seen, known, written.call.begun) if revived else ())}


def _waiting(seen: Evidence, known: Task, after: int) -> set[State]:
    return {*WAITING, *([State.CANCELLED] if seen.may_be_cancelled(known.id, after) else [])}


def _record(seen: Evidence, known: Task, endings: dict[int, Ending]) -> Iterator[tuple[str, str]]:
    runs: dict[int, Attempt] = {}
    for run in seen.record(known.id):
        if run.claim in runs:
            yield RECORDED, f"claim {run.claim} is in the record twice"
        runs[run.claim] = run
        allowed = _recordable(endings.get(run.claim))
        if run.outcome not in allowed:
            yield (
                RECORDED,
                f"the record shows {run.outcome} for claim {run.claim}, but only {sorted(allowed)} is possible",
            )
    for claim, ending in endings.items():
        if claim not in runs and _must_be_recorded(known, ending):
            yield RECORDED, f"the run of claim {claim} ended, but is not in the record"


def _recordable(ending: Ending | None) -> set[str]:
    if ending is None:
        return set()
    if ending.sure:
        return {ending.sure.outcome}
    return {"lost", *(written.outcome for written in ending.maybe)}


def _must_be_recorded(known: Task, ending: Ending) -> bool:
    if ending.claim == known.claim and known.state is State.RUNNING:
        return False
    if ending.sure:
        transition = ending.sure.settlement.transition
        return transition.recorded or transition.state in FINISHED
    return ending.surely_lost


def _charges(seen: Evidence, known: Task, endings: dict[int, Ending]) -> Iterator[tuple[str, str]]:
    """From each claim to the next, and to the ledger, attempts and losses grow by what the runs between cost."""
    given = seen.given.get(known.id, [])
    points = [(one.claim.token.claim, one.claim.attempt - 1, one.claim.losses, one.call.ended) for one in given]
    running = known.state is State.RUNNING
    points.append((known.claim + (not running), known.attempts, known.losses, FOREVER))
    at, attempts, losses, begun = 1, 0, 0, 0
    for claim, next_attempts, next_losses, ended in points:
        between = [endings[number] for number in range(at, claim) if number in endings]
        cost, loss = _cost(seen, known, between), _loss(between)
        forgiven = seen.retries.may_have(known.id, begun, ended)
        if not _fits(attempts, next_attempts, cost, forgiven):
            yield CHARGED, f"attempts went from {attempts} to {next_attempts} before claim {claim}, expected {cost}"
        if not _fits(losses, next_losses, loss, forgiven):
            yield CHARGED, f"losses went from {losses} to {next_losses} before claim {claim}, expected {loss}"
        at, attempts, losses, begun = claim, next_attempts, next_losses, max(begun, ended)


def _fits(before: int, after: int, due: Range, forgiven: bool) -> bool:
    return after - before in due or (forgiven and 0 <= after <= before + due.high)


def _cost(seen: Evidence, known: Task, endings: Sequence[Ending]) -> Range:
    low = high = 0
    for ending in endings:
        could_cancel = seen.cancels.may_have(known.id, 0)
        if ending.sure:
            transition = ending.sure.settlement.transition
            charge = transition.charged or transition.state in FINISHED
            low, high = low + charge, high + (charge or could_cancel)
        else:
            high += bool(ending.maybe) or could_cancel or seen.may_run_out(known.id)
    return Range(low, high)


def _loss(endings: Sequence[Ending]) -> Range:
    low = high = 0
    for ending in endings:
        if ending.sure:
            lost = ending.sure.settlement.transition.lost
            low, high = low + lost, high + lost
        else:
            low, high = low + ending.surely_lost, high + 1
    return Range(low, high)
