"""Ending claims that have a batch or a resource: settled, or lost with their session.

Locks are taken in one order: lanes, batches, pools, members, tasks. What is bound to what is said by settlements, or
looked up before.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pitboss.engines.postgres import members
from pitboss.engines.postgres.gate import Gate
from pitboss.engines.postgres.hands import Hands, Return
from pitboss.engines.postgres.rows import known_id, names, numbers, texts
from pitboss.engines.postgres.script import ALL, Again, Ask, Row, Script, Statements
from pitboss.engines.postgres.settle import ROUNDS, VERDICTS, after, columns, flags, next_wave
from pitboss.engines.postgres.tally import Tally
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.leasing import is_fault, tried_after
from pitboss.model.session import Reclaimed
from pitboss.model.settlement import STALE_TASK, SettleAnswer, Settlement
from pitboss.model.states import FINISHED, State

_PARKED, _PLAIN = 32, 8
_KEPT_RUNS = 100


class _Held(NamedTuple):
    """What a claim has, as it was looked up."""

    live: bool
    batch: str | None
    resource: str | None
    tried: tuple[str, ...]
    since: Moment


def settle_bound(
    say: Statements, settlements: Sequence[Settlement], now: Moment | None, *, lanes: bool
) -> Script[list[SettleAnswer] | Again]:
    """As `settle`, within a transaction; `Again` if lanes must be locked too."""
    return (yield from _Group(say, settlements, lanes=lanes).write(now))


class _Group:
    """Settlements of one transaction."""

    def __init__(self, say: Statements, settlements: Sequence[Settlement], *, lanes: bool) -> None:
        self._say, self._settlements = say, settlements
        self._gate, self._hands, self._tally = Gate(say, lanes=lanes), Hands(say), Tally()
        self._held: dict[TaskId, _Held] = {}
        self._ended: Counter[str] = Counter()

    def write(self, now: Moment | None) -> Script[list[SettleAnswer] | Again]:
        verdicts: list[SettleAnswer] = [STALE_TASK] * len(self._settlements)
        left = [i for i, one in enumerate(self._settlements) if known_id(one.id)]
        if not (yield from self._lock(left)):
            return Again()
        while left:
            wave, left = next_wave(self._settlements, left)
            answers = yield from self._write(wave, self._hands.now or now)
            fresh = [i for i, answer in zip(wave, answers, strict=True) if answer == "apply"]
            for i in sorted(fresh):
                yield from self._give_back(self._settlements[i])
            yield from after(self._say, [self._settlements[i] for i in fresh], self._hands.now)
            for i, answer in zip(wave, answers, strict=True):
                verdicts[i] = VERDICTS[answer]
        yield from self._hands.write(self._tally)
        yield from self._gate.changed(self._ended, self._hands.now)
        return verdicts

    def _lock(self, known: list[int]) -> Script[bool]:
        asked = [self._settlements[i] for i in known]
        look = self._say.ask("claim_read", ids=texts(sorted({one.id for one in asked})))
        if self._gate.lanes or any(one.report is not None and is_fault(one.report.outcome) for one in asked):
            self._note(asked, (yield look))
            if not (yield from self._gate.lock(self._touched())):
                return False
            yield from self._hands.lock(self._returns(asked))
            return True
        return (yield from self._lock_named(look, asked))

    def _lock_named(self, look: Ask, asked: list[Settlement]) -> Script[bool]:
        """Look and lock in one round trip: settlements say what their claims have. False if there is more to them."""
        batches = {one.batch for one in asked if one.batch is not None}
        ending = [one for one in asked if one.transition.state is not State.RUNNING]
        resources = {one.resource for one in ending if one.resource is not None}
        claims: list[Row] = []
        standings: list[Row] = []
        held: list[Row] = []
        yield look.into(claims)
        if batches:
            yield self._gate.locking(batches).into(standings)
        if resources:
            yield members.locking(self._say, resources).into(held)
        yield ALL
        self._note(asked, claims)
        touched = self._touched()
        if touched.keys() - batches or {one.resource for one in self._returns(asked)} - resources:
            return False
        self._hands.locked(held)
        return self._gate.locked(standings, touched)

    def _note(self, asked: list[Settlement], rows: Sequence[Row]) -> None:
        tokens = {(one.id, one.token.session, one.token.claim) for one in asked}
        for task, state, session, claim, batch, resource, tried, since in rows:
            live = state == State.RUNNING and (task, session, claim) in tokens
            self._held[task] = _Held(live, batch, resource, tuple(tried or ()), since or 0)

    def _touched(self) -> Counter[str]:
        return Counter(held.batch for held in self._held.values() if held.live and held.batch is not None)

    def _returns(self, asked: list[Settlement]) -> list[Return]:
        return [one for one in map(self._return, asked) if one is not None]

    def _return(self, one: Settlement) -> Return | None:
        held = self._held.get(one.id)
        if held is None or not held.live or held.resource is None or one.transition.state is State.RUNNING:
            return None
        return Return(held.resource, held.since, one.report, held.tried)

    def _give_back(self, one: Settlement) -> Script[None]:
        returned = self._return(one)
        if returned is not None:
            yield from self._hands.take(returned)

    def _write(self, wave: list[int], now: Moment | None) -> Script[list[str]]:
        """The answers for one wave. A row that changed while it was waited for is judged again."""
        pools = names(self._hands.locked_pools)
        answers = [""] * len(wave)
        left = list(range(len(wave)))
        for _ in range(ROUNDS):
            group = [self._settlements[wave[i]] for i in left]
            told = yield self._say.ask("settle_bound", now, pools=pools, **self._columns(group))
            self._hands.told(told)
            rows = [row for row in told if row[0] is not None]
            for place, answer, state, queue in rows:
                answers[left[place - 1]] = answer
                if answer == "apply":
                    self._count(group[place - 1].id, queue, state)
            if len(rows) == len(left):
                break
            left = [i for i in left if not answers[i]]
        return [answer or "claim" for answer in answers]

    def _columns(self, group: list[Settlement]) -> dict[str, object]:
        marks = [_parked(flags(one.transition)) if self._parked(one) else flags(one.transition) for one in group]
        tries = [self._tried(one) for one in group]
        return {
            **columns(group),
            "flags": numbers(marks),
            "tries": texts([texts(tried) if tried else None for tried in tries]),
        }

    def _parked(self, one: Settlement) -> bool:
        """Whether it belongs to a batch that does not run: then it does not go back to waiting."""
        held = self._held.get(one.id)
        return held is not None and not self._gate.runs(held.batch)

    def _tried(self, one: Settlement) -> tuple[str, ...]:
        held = self._held.get(one.id)
        if held is None or held.resource is None or one.report is None:
            return () if held is None else held.tried
        return tried_after(held.tried, held.resource.split("/", 1)[1], one.report.outcome)

    def _count(self, task: TaskId, queue: str, state: str) -> None:
        batch = self._held[task].batch
        self._tally.moved(queue, State.RUNNING, state, batch)
        if batch is not None:
            self._ended[batch] -= State(state) in FINISHED


def _parked(counted: int | None) -> int:
    return (_PLAIN if counted is None else counted) + _PARKED


def lose_bound(say: Statements, limit: int, now: Moment | None, *, lanes: bool) -> Script[Reclaimed | Again]:
    """What dead sessions ran that has a batch or a resource, and leases past their time, within a transaction; `Again`
    if lanes must be locked too."""
    orphans = yield say.ask("reclaim_orphans", now, limit=limit)
    leases = yield say.ask("lease_list_over", now, limit=limit)
    gate, hands, tally = Gate(say, lanes=lanes), Hands(say), Tally()
    if not (yield from gate.lock(Counter(batch for _, batch, *_ in orphans if batch is not None))):
        return Again()
    held = [Return(resource, since or 0) for _, _, resource, since, _ in orphans if resource is not None]
    held += [Return(f"{pool}/{name}", since) for _, pool, name, since in leases]
    yield from hands.lock(held)
    yield from hands.read_rules(now)
    claims = {"ids": texts([row[0] for row in orphans]), "claims": numbers([row[4] for row in orphans])}
    moved = yield say.ask("reclaim_lose_bound", hands.now, running=gate.running, **claims)
    ended: Counter[str] = Counter()
    for _, state, queue, batch, resource, since, _ in moved:
        tally.moved(queue, State.RUNNING, state, batch)
        if batch is not None:
            ended[batch] -= State(state) in FINISHED
        if resource is not None:
            yield from hands.take(Return(resource, since or 0))
    over = yield say.ask("lease_end_over", hands.now, ids=texts([row[0] for row in leases]))
    for pool, name, since in over:
        yield from hands.take(Return(f"{pool}/{name}", since))
    long = [task for task, *_, claim in moved if claim > _KEPT_RUNS]
    if long:
        yield say.ask("attempt_forget", tasks=texts(long))
    yield from hands.write(tally)
    yield from gate.changed(ended, hands.now)
    cancelled = sum(state == State.CANCELLED for _, state, *_ in moved)
    more = bool(limit) and (len(orphans) >= limit or len(leases) >= limit)
    return Reclaimed(lost=len(moved) - cancelled, cancelled=cancelled, leases=len(over), more=more)
