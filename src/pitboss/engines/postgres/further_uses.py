"""Further uses of members that are held, or uses moved to a later moment: in groups, within a transaction."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from pitboss.engines.postgres import members
from pitboss.engines.postgres.count_changes import CountChanges
from pitboss.engines.postgres.members import Member
from pitboss.engines.postgres.returns import Return
from pitboss.engines.postgres.rows import names, numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.engines.postgres.use_history import Unread, UseHistory
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.leasing import Moved, ended, limits_of, moved, open_span, used
from pitboss.model.picking import same_member
from pitboss.model.resource import PoolRules, Shortage, UseEnd
from pitboss.model.task import Token

T = TypeVar("T")


class Busy(NamedTuple):
    """Another transaction has locked the member: nothing was decided yet."""


class Removed(NamedTuple):
    """The member that it held is gone."""

    resource: str


Answer = Moment | Shortage | Busy | Removed | None


class Asked(NamedTuple):
    """One more use of a held member, or one instead of the use that is remembered at that moment. First, `ends` ends an
    open one; with `more` False that is all."""

    holder: Token | str
    task: TaskId | None
    instead: Moment | None = None
    ends: UseEnd | None = None
    more: bool = True

    @property
    def moves(self) -> bool:
        return self.instead is not None or self.ends is not None


class _Seen(NamedTuple):
    """What is held at a moment, by the place in the group, and the rules of the pools."""

    held: dict[int, Return]
    now: Moment
    rules: dict[str, PoolRules]


def use(sql: Statements, asked: Sequence[Asked], now: Moment | None, *, wait: bool) -> Script[list[Answer]]:
    """In the order of the group: when each was granted, or what it is short of; `Removed` if its member is gone;
    None if it holds nothing any more.

    With `wait` false: `Busy` for those whose members another transaction has locked, so that the others need not wait.
    """
    first = yield from _seen(sql, asked, (), now)
    rows: list[Row] = []
    if first.held:
        yield members.locking(sql, {one.resource for one in first.held.values()}, wait=wait).into(rows)
    # A member is locked before it is given back, or its rules change: what is read behind that lock stays true.
    seen = yield from _seen(sql, asked, {one.pool for one in first.held.values()}, now)
    locked = members.by_id(rows)
    still = {place: one for place, one in seen.held.items() if first.held.get(place) == one}
    busy = set[int]() if wait else {place for place, one in still.items() if one.resource not in locked}
    held = {
        place: locked[one.resource]
        for place, one in still.items()
        if one.resource in locked and same_member(locked[one.resource].resource, one.since)
    }
    uses = UseHistory()
    yield from _read(sql, uses, asked, held, seen.rules)
    group = _Group(seen.now, seen.rules, {one.number: one for one in held.values()}, uses)
    answers: list[Answer] = [Busy() if place in busy else None for place in range(len(asked))]
    for place in still.keys() - busy - held.keys():
        answers[place] = Removed(still[place].resource)
    for place in sorted(held):
        answers[place] = yield from group.answer(sql, held[place].number, asked[place])
    yield from uses.write_shifted(sql)
    changed = [group.members[number] for number in sorted(group.changed)]
    yield from members.write(sql, changed, seen.rules, uses, group.counts)
    return answers


class _Group:
    """Judges one after the other; each sees the uses of those before it."""

    def __init__(
        self, now: Moment, rules: Mapping[str, PoolRules], members: dict[int, Member], uses: UseHistory
    ) -> None:
        self._now, self._rules, self.members, self._uses = now, rules, members, uses
        self.changed: set[int] = set()
        # Rings the pools in which a member may be used earlier than it was known.
        self.counts = CountChanges()

    def answer(self, sql: Statements, number: int, asked: Asked) -> Script[Moment | Shortage]:
        if asked.ends is not None:
            yield from self._with_uses(sql, number, partial(self._end, number, asked.ends))
        if not asked.more:
            return self._now
        return (yield from self._with_uses(sql, number, partial(self._use, number, asked.instead)))

    def _with_uses(self, sql: Statements, number: int, act: Callable[[], T]) -> Script[T]:
        """The act, which reads all uses of the member if it needs more than the usual ones."""
        try:
            return act()
        except Unread:
            yield from members.read_all_uses(sql, self._uses, number)
            return act()

    def _end(self, number: int, end: UseEnd) -> None:
        one = self.members[number].resource
        change = ended(one, self._rules[one.pool], self._uses.nth(number, one), end, self._now)
        if change is not None:
            self._move(number, change)
            if change.member.available_at < one.available_at:
                self.counts.pools.add(one.pool)

    def _use(self, number: int, instead: Moment | None) -> Moment | Shortage:
        one = self.members[number].resource
        rules, nth = self._rules[one.pool], self._uses.nth(number, one)
        open_for = open_span(limits_of(one, rules))
        change = None if instead is None else moved(one, rules, nth, instead, self._now)
        if isinstance(change, Moved):
            self._move(number, change)
            return change.at - open_for
        if change is not None or one.available_at > self._now:
            return Shortage(pool=one.pool, why="all away", until=one.available_at if change is None else change)
        given = used(one, rules, nth, self._now)
        self._uses.add(number, given, rules)
        self._put(Member(number, given))
        return given.last_used_at - open_for

    def _move(self, number: int, change: Moved) -> None:
        self._uses.shift(number, change.member.record.uses, change.newest)
        self._put(Member(number, change.member))

    def _put(self, member: Member) -> None:
        self.members[member.number] = member
        self.changed.add(member.number)


def _seen(sql: Statements, asked: Sequence[Asked], pools: "set[str] | tuple[()]", now: Moment | None) -> Script[_Seen]:
    claims = [(place, one.holder, one.task) for place, one in enumerate(asked) if isinstance(one.holder, Token)]
    leases = [(place, one.holder) for place, one in enumerate(asked) if isinstance(one.holder, str)]
    rows = yield sql.ask(
        "claim_held",
        now,
        claimed=numbers([place for place, _, _ in claims]),
        tasks=texts([task for _, _, task in claims]),
        sessions=numbers([token.session for _, token, _ in claims]),
        claims=numbers([token.claim for _, token, _ in claims]),
        leased=numbers([place for place, _ in leases]),
        leases=texts([lease for _, lease in leases]),
        pools=names(pools),
    )
    held = {place: Return(text, number) for place, text, number, _ in rows if place is not None}
    ((moment,),) = [row[2:3] for row in rows if row[0] is None and row[1] is None]
    found = {name: members.rules_of(text) for place, name, _, text in rows if place is None and name is not None}
    return _Seen(held, moment, {pool: found.get(pool, PoolRules()) for pool in pools})


def _read(
    sql: Statements,
    uses: UseHistory,
    asked: Sequence[Asked],
    held: Mapping[int, Member],
    rules: Mapping[str, PoolRules],
) -> Script[None]:
    """Read the uses that windows look at, and the newest ones too where one is to be moved."""
    if held:
        ahead = max(Counter(one.number for one in held.values()).values())
        if any(asked[place].moves for place in held):
            ahead += members.NEWEST
        yield from members.read_uses(sql, uses, {one.number: one for one in held.values()}.values(), rules, ahead)
