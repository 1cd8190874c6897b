"""Which member a task gets. Ready ones are read in the pool's order, in portions, as far as somebody looks."""

from collections.abc import Container, Sequence
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.members import stored_members
from pitboss.engines.sqlite.shelf import Shelf
from pitboss.model.leasing import KEPT_TRIED, avoided, granted
from pitboss.model.picking import ANY, ReadyMembers
from pitboss.model.resource import Resource, Shortage, Want

_Place = tuple[int, int, str]
_BEFORE_ALL: _Place = (-1, -1, "")
# Portions grow: who reads a second one looks for something rare.
_MOST_AT_ONCE = 256


class _Line:
    """How far ready members with some labels have been read."""

    __slots__ = ("mark", "over")

    def __init__(self) -> None:
        self.mark, self.over = _BEFORE_ALL, False


class _Ready(ReadyMembers):
    """The ready members of a pool, read from the store as far as a task looks."""

    def __init__(self, shelf: Shelf, portion: int) -> None:
        super().__init__()
        self._shelf = shelf
        self._portion = max(1, min(portion, _MOST_AT_ONCE))
        self._lines: dict[tuple[str, ...], _Line] = {}
        # Ready members only become fewer during an act, so what fitted no member does not fit one later.
        self._unmet: set[tuple[Want, object]] = set()

    def first(self, want: Want, avoided: Container[str] = ()) -> Resource | None:
        """One that was read for other labels may stand behind some that were not read yet."""
        if (want, avoided) in self._unmet:
            return None
        line = self._lines.setdefault(want.labels, _Line())
        member = super().first(want, avoided)
        while not line.over and (member is None or _place(member) > line.mark):
            self._read_on(line, want.labels)
            member = super().first(want, avoided)
        if member is None:
            self._unmet.add((want, avoided))
        return member

    def _read_on(self, line: _Line, labels: tuple[str, ...]) -> None:
        shelf = self._shelf
        quoted = json_list(f'"{label}"' for label in labels)
        now, size = shelf.act.now, self._portion
        rows = shelf.act.decoded("member_ready", stored_members, shelf.pool, *line.mark, quoted, now, size)
        line.over = len(rows) < size
        if rows:
            line.mark = (rows[-1].rank, rows[-1].last_used_at, rows[-1].name)
        fresh = [(number, shelf.members[number]) for number in shelf.keep(rows)]
        shelf.uses.foresee((number, member, shelf.limits(member)) for number, member in fresh)
        for row in rows:
            self.put(shelf.members[row.number])
        self._portion = min(size * 2, _MOST_AT_ONCE)


class Lending:
    """Giving out a pool's members. `wanting`: a task went without one."""

    def __init__(self, shelf: Shelf, portion: int) -> None:
        self.shelf, self.wanting = shelf, False
        self._ready = _Ready(shelf, portion)
        self._bound: dict[str, str | None] = {}
        self._bindings: dict[str, tuple[object, ...]] = {}
        self._enabled: dict[tuple[str, ...], int] = {}
        shelf.act.run("member_wake", shelf.pool, shelf.act.now)

    def lend(self, want: Want | None, tried: Sequence[str]) -> int | None:
        """The number of the member that a task with this want has from now on; None: it waits."""
        want, shelf = want or ANY, self.shelf
        chosen = self._ready.choose(want, self._avoided(want, tried), self._bound_to(want.key), shelf.rules)
        if chosen is None:
            self.wanting = True
            return None
        number = shelf.numbers[chosen.name]
        member = granted(chosen, shelf.rules, shelf.uses.nth(number, chosen), shelf.act.now)
        shelf.uses.add(number, member, shelf.limits(member))
        shelf.change(number, member)
        self._ready.put(member)
        if want.key is not None:
            self._bind(want.key, member.name)
        return number

    def has_none(self) -> bool:
        """No member is ready, whatever a task wants."""
        return self._ready.first(ANY) is None

    def at_hand(self) -> int:
        """How many are ready, as far as they were read."""
        return 0 if self.has_none() else len(self._ready)

    def write(self) -> None:
        self.shelf.write()
        if self._bindings:
            self.shelf.act.bulk("binding_set", list(self._bindings.values()))
            self._bindings.clear()

    def _avoided(self, want: Want, tried: Sequence[str]) -> frozenset[str]:
        if not tried:
            return frozenset()
        if want.labels not in self._enabled:
            quoted = json_list(f'"{label}"' for label in want.labels)
            # More than a task can have tried are as good as any number.
            row: Any = self.shelf.act.one("member_enabled", self.shelf.pool, quoted, KEPT_TRIED + 2)
            self._enabled[want.labels] = row[0]
        return avoided(tried, self._enabled[want.labels])

    def _bound_to(self, key: str | None) -> Resource | None:
        """The member that the key is bound to, if there is one of that name."""
        if key is None:
            return None
        if key not in self._bound:
            row: Any = self.shelf.act.one("binding_get", self.shelf.pool, key, self.shelf.act.now)
            self._bound[key] = None if row is None else row[0]
        name = self._bound[key]
        number = None if name is None else self.shelf.named(name)
        if number is None:
            return None
        member = self.shelf.members[number]
        if member.available_at <= self.shelf.act.now:
            self._ready.put(member)
        return member

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
