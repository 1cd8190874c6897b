"""Which member a task gets. Ready ones are read in the pool's order, in portions, as far as somebody looks."""

from collections.abc import Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.members import stored_members
from pitboss.engines.sqlite.shelf import Shelf
from pitboss.model.leasing import KEPT_TRIED, avoided, fits, granted
from pitboss.model.picking import ANY, ReadyMembers
from pitboss.model.resource import Resource, Shortage, Stage, Want

_Place = tuple[int, int, str]
_BEFORE_ALL: _Place = (-1, -1, "")
# Portions grow: who reads a second one looks for something rare.
_MOST_AT_ONCE = 256


class _Line:
    """How far ready members with some labels have been read."""

    __slots__ = ("mark", "over")

    def __init__(self) -> None:
        self.mark, self.over = _BEFORE_ALL, False


class Lending:
    """Giving out a pool's members. `wanting`: a task went without one."""

    def __init__(self, shelf: Shelf, portion: int) -> None:
        self.shelf, self.wanting = shelf, False
        self._portion = max(1, min(portion, _MOST_AT_ONCE))
        self._ready = ReadyMembers()
        self._lines: dict[tuple[str, ...], _Line] = {}
        self._bound: dict[str, str | None] = {}
        self._bindings: dict[str, tuple[object, ...]] = {}
        self._enabled: dict[tuple[str, ...], int] = {}
        # Ready members only become fewer during an act, so what fitted nobody fits nobody later.
        self._in_vain: set[tuple[Want, frozenset[str]]] = set()
        shelf.act.run("member_return", shelf.pool, shelf.act.now)

    def lend(self, want: Want | None, tried: Sequence[str]) -> int | None:
        """The number of the member that a task with this want has from now on; None: it waits."""
        want = want or ANY
        number = self._choose(want, tried)
        if number is None:
            self.wanting = True
            return None
        shelf = self.shelf
        before = shelf.members[number]
        member = granted(before, shelf.rules, shelf.uses.nth(number, before), shelf.act.now)
        shelf.uses.add(number, member, shelf.limits(member))
        shelf.change(number, member)
        self._ready.put(member)
        if want.key is not None:
            self._bind(want.key, member.name)
        return number

    def has_none(self) -> bool:
        """No member is ready, whoever asks."""
        return self._first(ANY, frozenset()) is None

    def at_hand(self) -> int:
        """How many are ready, as far as they were read."""
        return 0 if self.has_none() else len(self._ready)

    def write(self) -> None:
        self.shelf.write()
        if self._bindings:
            self.shelf.act.bulk("binding_set", list(self._bindings.values()))
            self._bindings.clear()

    def _choose(self, want: Want, tried: Sequence[str]) -> int | None:
        bound = None if want.key is None else self._bound_to(want.key)
        if bound is not None:
            member = self.shelf.members[bound]
            if member.enabled and fits(member, want):
                if member.stage is Stage.READY and member.available_at <= self.shelf.act.now:
                    return bound
                if self.shelf.rules.away == "wait":
                    return None
        shunned = self._avoided(want, tried)
        first = None if (want, shunned) in self._in_vain else self._first(want, shunned)
        if first is None:
            self._in_vain.add((want, shunned))
            return None
        return self.shelf.numbers[first.name]

    def _first(self, want: Want, shunned: frozenset[str]) -> Resource | None:
        """The first that fits. One that was read for other labels may stand behind some that were not read yet."""
        line = self._lines.setdefault(want.labels, _Line())
        while True:
            member = self._ready.first(want, shunned)
            if line.over or (member is not None and _place(member) <= line.mark):
                return member
            self._read_on(line, want.labels)

    def _read_on(self, line: _Line, labels: tuple[str, ...]) -> None:
        shelf = self.shelf
        quoted = json_list(f'"{label}"' for label in labels)
        now, size = shelf.act.now, self._portion
        rows = shelf.act.decoded("member_ready", stored_members, shelf.pool, *line.mark, quoted, now, size)
        line.over = len(rows) < size
        if rows:
            line.mark = (rows[-1].rank, rows[-1].last_used_at, rows[-1].name)
        fresh = [(number, shelf.members[number]) for number in shelf.keep(rows)]
        shelf.uses.foresee((number, member, shelf.limits(member)) for number, member in fresh)
        for row in rows:
            self._ready.put(shelf.members[row.number])
        self._portion = min(size * 2, _MOST_AT_ONCE)

    def _avoided(self, want: Want, tried: Sequence[str]) -> frozenset[str]:
        if not tried:
            return frozenset()
        if want.labels not in self._enabled:
            quoted = json_list(f'"{label}"' for label in want.labels)
            # More than a task can have tried are as good as any number.
            row: Any = self.shelf.act.one("member_enabled", self.shelf.pool, quoted, KEPT_TRIED + 2)
            self._enabled[want.labels] = row[0]
        return avoided(tried, self._enabled[want.labels])

    def _bound_to(self, key: str) -> int | None:
        """The member that the key has, if there is one of that name."""
        if key not in self._bound:
            row: Any = self.shelf.act.one("binding", self.shelf.pool, key, self.shelf.act.now)
            self._bound[key] = None if row is None else row[0]
        name = self._bound[key]
        return None if name is None else self.shelf.named(name)

    def _bind(self, key: str, name: str) -> None:
        self._bound[key] = name
        self._bindings[key] = (self.shelf.pool, key, name, self.shelf.act.now + self.shelf.rules.bound_for)


class Lenders:
    """The pools that a claim takes members of, each opened when a task of its queues is looked at."""

    def __init__(self, act: Act, wanted: int) -> None:
        self._act, self._wanted = act, wanted
        self._pools: dict[str, Lending] = {}

    def of(self, pool: str) -> Lending:
        known = self._pools.get(pool)
        if known is None:
            known = self._pools[pool] = Lending(Shelf(self._act, pool), self._wanted)
        return known

    def write(self) -> None:
        for lending in self._pools.values():
            lending.write()

    def shortages(self) -> list[Shortage]:
        """Why tasks went without a member; after `write`."""
        return [lending.shelf.shortage() for _, lending in sorted(self._pools.items()) if lending.wanting]


def _place(member: Resource) -> _Place:
    return member.rank, member.last_used_at, member.name
