"""Giving members to tasks. Ready members are read in the pool's order, in portions, as far as a task looks."""

from collections.abc import Container, Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.member_rows import member_of, member_rows
from pitboss.engines.sqlite.pool_members import PoolMembers
from pitboss.model.leasing import avoided, granted, takes_turns, turn_floor
from pitboss.model.member_health import KEPT_TRIED
from pitboss.model.picking import ANY, ReadyMembers
from pitboss.model.resource import Resource, Shortage, Want

_Rank = tuple[int, int, str]
_BEFORE_ALL: _Rank = (-1, -1, "")
# Portions grow: a task that needs a second one looks for something rare.
_MOST_AT_ONCE = 256


class _Cursor:
    """How far the ready members with some labels have been read."""

    __slots__ = ("at_end", "last")

    def __init__(self) -> None:
        self.last, self.at_end = _BEFORE_ALL, False


class _Ready(ReadyMembers):
    """The ready members of a pool, read from the store as far as a task looks."""

    def __init__(self, members: PoolMembers, portion: int) -> None:
        super().__init__()
        self._pool = members
        self._portion = max(1, min(portion, _MOST_AT_ONCE))
        self._cursors: dict[tuple[str, ...], _Cursor] = {}
        # Ready members only become fewer during an act, so what fitted no member does not fit one later.
        self._unmet: set[tuple[Want, object]] = set()

    def first(self, want: Want, avoided: Container[str] = ()) -> Resource | None:
        """Reads on as long as a member that was not read yet may come before the one that was found."""
        if (want, avoided) in self._unmet:
            return None
        cursor = self._cursors.setdefault(want.labels, _Cursor())
        member = super().first(want, avoided)
        while not cursor.at_end and (member is None or _rank(member) > cursor.last):
            self._read_on(cursor, want.labels)
            member = super().first(want, avoided)
        if member is None:
            self._unmet.add((want, avoided))
        return member

    def _read_on(self, cursor: _Cursor, labels: tuple[str, ...]) -> None:
        pool, size = self._pool, self._portion
        place = (*cursor.last, _quoted(labels), pool.act.now, size)
        rows = pool.act.decoded("member_ready", member_rows, pool.pool, *place)
        cursor.at_end = len(rows) < size
        if rows:
            cursor.last = (rows[-1].rank, rows[-1].last_used_at, rows[-1].name)
        fresh = [(number, pool.known[number]) for number in pool.keep(rows)]
        pool.uses.prefetch((number, member, pool.limits(member)) for number, member in fresh)
        for row in rows:
            self.put(pool.known[row.number])
        self._portion = min(size * 2, _MOST_AT_ONCE)


class PoolGrants:
    """Gives the members of one pool. `short`: a task went without one."""

    def __init__(self, members: PoolMembers, portion: int) -> None:
        self.members, self.short = members, False
        self._ready = _Ready(members, portion)
        self._bound: dict[str, str | None] = {}
        self._bindings: dict[str, tuple[object, ...]] = {}
        self._serving: dict[tuple[str, ...], int] = {}
        members.act.run("member_wake", members.pool, members.act.now)
        self._floor = turn_floor(self._last()) if takes_turns(members.rules) else 0

    def grant(self, want: Want | None, tried: Sequence[str]) -> int | None:
        """The number of the member that a task with this want has from now on; None: it waits."""
        want, members = want or ANY, self.members
        chosen = self._ready.choose(want, self._avoided(want, tried), self._bound_to(want.key), members.rules)
        if chosen is None:
            self.short = True
            return None
        number = members.numbers[chosen.name]
        member = granted(chosen, members.rules, members.uses.nth(number, chosen), members.act.now, self._floor)
        members.uses.add(number, member, members.limits(member))
        members.change(number, member)
        self._ready.put(member)
        if want.key is not None:
            self._bind(want.key, member.name)
        return number

    def has_none(self) -> bool:
        """No member is ready, whatever a task wants."""
        return self._ready.first(ANY) is None

    def ready(self) -> int:
        """How many are ready, as far as they were read."""
        return 0 if self.has_none() else len(self._ready)

    def write(self) -> None:
        self.members.write()
        if self._bindings:
            self.members.act.bulk("binding_set", list(self._bindings.values()))
            self._bindings.clear()

    def _last(self) -> Resource | None:
        """The last of the ready members by rank."""
        rows = self.members.act.decoded("member_last_ready", member_rows, self.members.pool, self.members.act.now)
        return member_of(self.members.pool, rows[0]) if rows else None

    def _avoided(self, want: Want, tried: Sequence[str]) -> frozenset[str]:
        if not tried:
            return frozenset()
        if want.labels not in self._serving:
            # A task has tried at most `KEPT_TRIED`: counting further changes nothing.
            most = KEPT_TRIED + 2
            act, pool = self.members.act, self.members.pool
            row: Any = act.one("member_serving", pool, _quoted(want.labels), act.now, most)
            self._serving[want.labels] = row[0]
        return avoided(tried, self._serving[want.labels])

    def _bound_to(self, key: str | None) -> Resource | None:
        """The member that the key is bound to, if there is one of that name."""
        if key is None:
            return None
        members, now = self.members, self.members.act.now
        if key not in self._bound:
            row: Any = members.act.one("binding_get", members.pool, key, now)
            self._bound[key] = None if row is None else row[0]
        name = self._bound[key]
        number = None if name is None else members.named(name)
        if number is None:
            return None
        member = members.known[number]
        if member.available_at <= now:
            self._ready.put(member)
        return member

    def _bind(self, key: str, name: str) -> None:
        self._bound[key] = name
        until = self.members.act.now + self.members.rules.bound_for
        self._bindings[key] = (self.members.pool, key, name, until)


class Grants:
    """The pools that a claim takes members of, each opened when a task of its queues is looked at."""

    def __init__(self, act: Act, wanted: int) -> None:
        self._act, self._wanted = act, wanted
        self._pools: dict[str, PoolGrants] = {}

    def of(self, pool: str) -> PoolGrants:
        known = self._pools.get(pool)
        if known is None:
            known = self._pools[pool] = PoolGrants(PoolMembers(self._act, pool), self._wanted)
        return known

    def write(self) -> None:
        for grants in self._pools.values():
            grants.write()

    def shortages(self) -> list[Shortage]:
        """Why tasks went without a member; after `write`."""
        return [grants.members.shortage() for _, grants in sorted(self._pools.items()) if grants.short]


def _quoted(labels: tuple[str, ...]) -> str:
    return json_list(f'"{label}"' for label in labels)


def _rank(member: Resource) -> _Rank:
    return member.rank, member.last_used_at, member.name
