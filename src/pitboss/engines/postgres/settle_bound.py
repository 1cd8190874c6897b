"""Settling claims that have a batch, a resource or an order key, and failures that something follows.

Lock order: lanes, batches, pools, members, order keys, tasks. Settlements name their batch and resource; if not, they
are looked up first.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pitboss.engines.postgres import failures, members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.locked_batches import LockedBatches
from pitboss.engines.postgres.order import LockedOrder
from pitboss.engines.postgres.returns import Return, Returns
from pitboss.engines.postgres.rows import known_id, names, numbers, texts
from pitboss.engines.postgres.script import ALL, Again, Ask, Row, Script, Statements
from pitboss.engines.postgres.settle import ANSWERS, ROUNDS, after, columns, flags, next_wave
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.member_health import is_fault, tried_after
from pitboss.model.outdone import SentAway
from pitboss.model.settlement import STALE_TASK, SettleAnswer, Settlement
from pitboss.model.states import FINISHED, State

_PARKED, _PLAIN = 32, 8


class _Held(NamedTuple):
    """What a claim has, as the look at it said."""

    live: bool
    batch: str | None
    resource: str | None
    tried: tuple[str, ...]
    since: Moment
    order_key: str | None


def settle_bound(
    sql: Statements, settlements: Sequence[Settlement], now: Moment | None, *, lanes: bool
) -> Script[list[SettleAnswer] | Again]:
    """As `settle`, within a transaction; `Again` if lanes must be locked too."""
    return (yield from _Group(sql, settlements, lanes=lanes).write(now))


class _Group:
    """Settlements of one transaction."""

    def __init__(self, sql: Statements, settlements: Sequence[Settlement], *, lanes: bool) -> None:
        self._sql, self._settlements = sql, settlements
        self._batches, self._returns, self._counts = LockedBatches(sql, lanes=lanes), Returns(sql), CountChanges()
        self._held: dict[TaskId, _Held] = {}
        self._ended: Counter[str] = Counter()
        self._order, self._left = LockedOrder(sql), set[str]()
        self._failed: list[TaskId] = []
        self._routes: list[Row] = []

    def write(self, now: Moment | None) -> Script[list[SettleAnswer] | Again]:
        answered: list[SettleAnswer] = [STALE_TASK] * len(self._settlements)
        applied: list[int] = []
        left = [i for i, one in enumerate(self._settlements) if known_id(one.id)]
        if not (yield from self._lock(left, now)):
            return Again()
        yield from self._lock_order(left)
        while left:
            wave, left = next_wave(self._settlements, left)
            answers = yield from self._write(wave, self._returns.now or now)
            for i, answer in zip(wave, answers, strict=True):
                answered[i] = ANSWERS[answer]
            fresh = [i for i, answer in zip(wave, answers, strict=True) if answer == "apply"]
            applied += fresh
            yield from self._follow()
            yield from after(self._sql, [self._settlements[i] for i in fresh], self._returns.now)
        # Not wave by wave: what a member's record says depends on the order, which is that of the list.
        for i in sorted(applied):
            away = yield from self._give_back(self._settlements[i])
            answered[i] = answered[i]._replace(away=tuple(away)) if away else answered[i]
        yield from self._returns.write(self._counts)
        yield from self._batches.changed(self._ended, self._returns.now)
        yield from self._order.advance(self._returns.now)
        return answered

    def _lock(self, known: list[int], now: Moment | None) -> Script[bool]:
        asked = [self._settlements[i] for i in known]
        look = self._sql.ask("claim_read", ids=texts(sorted({one.id for one in asked})))
        if self._batches.lanes or any(one.report is not None and is_fault(one.report.outcome) for one in asked):
            self._note(asked, (yield look))
            if not (yield from self._batches.lock(self._touched())):
                return False
            returned = self._returned(asked)
            yield from self._returns.lock(returned, now=now)
            yield from self._returns.read_uses(returned)
            return True
        return (yield from self._lock_named(look, asked, now))

    def _lock_order(self, known: list[int]) -> Script[None]:
        asked = [self._settlements[i] for i in known]
        new = [task for one in asked for task in one.transition.follow_ups]
        keys = {task: held.order_key for task, held in self._held.items() if held.live}
        yield from self._order.lock(keys, [*new, *self._batches.completions()])
        if any(one.transition.state is State.FAILED for one in asked):
            yield failures.routes(self._sql).into(self._routes)

    def _follow(self) -> Script[None]:
        """Let the next tasks in line wait, and put what follows failures."""
        left, self._left = self._left, set()
        failed, self._failed = self._failed, []
        yield from self._order.advance(self._returns.now, left)
        yield from failures.follow(self._sql, failed, self._routes, self._returns.now)

    def _lock_named(self, look: Ask, asked: list[Settlement], now: Moment | None) -> Script[bool]:
        """Look and lock in one round trip, by what the settlements name. False if a claim has more than they name, or
        its end changes other members."""
        batches = {one.batch for one in asked if one.batch is not None}
        ending = [one for one in asked if one.transition.state is not State.RUNNING]
        resources = {one.resource for one in ending if one.resource is not None}
        claims: list[Row] = []
        standings: list[Row] = []
        held: list[Row] = []
        rules: list[Row] = []
        yield look.into(claims)
        if batches:
            yield self._batches.locking(batches).into(standings)
        if resources:
            yield members.locking(self._sql, resources).into(held)
        if any(one.use_end is not None for one in ending):
            yield self._sql.ask("pool_rules", now, names=names(one.split("/", 1)[0] for one in resources)).into(rules)
        yield ALL
        self._note(asked, claims)
        touched, returned = self._touched(), self._returned(asked)
        if touched.keys() - batches or any(one.blames or one.resource not in resources for one in returned):
            return False
        self._returns.locked(held, rules)
        yield from self._returns.read_uses(returned)
        return self._batches.locked(standings, touched)

    def _note(self, asked: list[Settlement], rows: Sequence[Row]) -> None:
        tokens = {(one.id, one.token.session, one.token.claim) for one in asked}
        for task, state, session, claim, batch, resource, tried, since, order_key in rows:
            live = state == State.RUNNING and (task, session, claim) in tokens
            self._held[task] = _Held(live, batch, resource, tuple(tried or ()), since or 0, order_key)

    def _touched(self) -> Counter[str]:
        return Counter(held.batch for held in self._held.values() if held.live and held.batch is not None)

    def _returned(self, asked: list[Settlement]) -> list[Return]:
        return [one for one in map(self._return, asked) if one is not None]

    def _return(self, one: Settlement) -> Return | None:
        held = self._held.get(one.id)
        if held is None or not held.live or held.resource is None or one.transition.state is State.RUNNING:
            return None
        completed = one.transition.state is State.COMPLETED
        return Return(held.resource, held.since, one.report, held.tried, completed, one.use_end)

    def _give_back(self, one: Settlement) -> Script[list[SentAway]]:
        returned = self._return(one)
        return [] if returned is None else (yield from self._returns.take(returned))

    def _write(self, wave: list[int], now: Moment | None) -> Script[list[str]]:
        """The answers for one wave. A row that changed while the statement waited for it is judged again."""
        pools = names(self._returns.locked_pools)
        answers = [""] * len(wave)
        left = list(range(len(wave)))
        for _ in range(ROUNDS):
            group = [self._settlements[wave[i]] for i in left]
            told = yield self._sql.ask("settle_bound", now, pools=pools, **self._columns(group))
            self._returns.note_rules(told)
            rows = [row for row in told if row[0] is not None]
            for place, answer, state, queue, capped, handler, run in rows:
                answers[left[place - 1]] = answer
                if answer == "apply":
                    self._count(group[place - 1].id, queue, state, ring=capped, handler=handler, run=run)
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
        """Whether it belongs to a batch that does not run: then it is held, not pending."""
        held = self._held.get(one.id)
        return held is not None and not self._batches.runs(held.batch)

    def _tried(self, one: Settlement) -> tuple[str, ...]:
        held = self._held.get(one.id)
        if held is None or held.resource is None or one.report is None:
            return () if held is None else held.tried
        return tried_after(held.tried, held.resource.split("/", 1)[1], one.report.outcome)

    def _count(self, task: TaskId, queue: str, state: str, *, ring: bool, handler: str, run: str | None) -> None:
        batch, over, key = self._held[task].batch, State(state) in FINISHED, self._held[task].order_key
        self._counts.moved(queue, State.RUNNING, state, batch, ring=ring, handler=handler, run=run)
        if batch is not None:
            self._ended[batch] -= over
        if over and key is not None:
            self._left.add(key)
        if state == State.FAILED:
            self._failed.append(task)


def _parked(counted: int | None) -> int:
    return (_PLAIN if counted is None else counted) + _PARKED
