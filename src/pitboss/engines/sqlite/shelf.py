"""The members of one pool during one act: read once, decided by the pure rules, written together."""

from collections.abc import Iterable
from typing import Any

from pitboss.engines.sqlite.act import Act, json_list
from pitboss.engines.sqlite.members import STAGES, Stored, member_of, rules_of, standing, stored_members
from pitboss.engines.sqlite.uses import Uses
from pitboss.model.duration import Moment
from pitboss.model.leasing import Moved, limits_of, moved, shortage, used
from pitboss.model.resource import Limits, PoolRules, Resource, Shortage


class Shelf:
    """`members` holds those that were read, by number, as they stand by now."""

    def __init__(self, act: Act, pool: str) -> None:
        self.act, self.pool = act, pool
        row: Any = act.one("pool_rules", pool)
        self.rules = PoolRules() if row is None else rules_of(row[0])
        self.members: dict[int, Resource] = {}
        self.numbers: dict[str, int] = {}
        self.uses = Uses(act)
        self._changed: set[int] = set()

    def fetch(self, numbers: Iterable[int]) -> None:
        """Read these, as far as they are there and not known yet."""
        missing = [number for number in numbers if number not in self.members]
        if missing:
            self.keep(self.act.decoded("member_read", stored_members, json_list(missing)))

    def keep(self, rows: list[Stored]) -> list[int]:
        """Take in rows of members that are not known yet; their numbers."""
        fresh = [row for row in rows if row.number not in self.members]
        for row in fresh:
            self.members[row.number] = member_of(self.pool, row)
            self.numbers[row.name] = row.number
        return [row.number for row in fresh]

    def member(self, number: int) -> Resource | None:
        """None if it was removed."""
        self.fetch([number])
        return self.members.get(number)

    def named(self, name: str) -> int | None:
        if name not in self.numbers:
            self.keep(self.act.decoded("member_read_named", stored_members, self.pool, json_list([name])))
        return self.numbers.get(name)

    def limits(self, member: Resource) -> Limits:
        return limits_of(member, self.rules)

    def change(self, number: int, member: Resource) -> None:
        self.members[number] = member
        self._changed.add(number)

    def use(self, number: int, instead: Moment | None) -> Moment | None:
        """Once more by who has it, or instead of a use that it was granted. From when on, if not yet."""
        member = self.members[number]
        change = None if instead is None else self._move(number, member, instead)
        if isinstance(change, Moved):
            self.change(number, change.member)
            return None
        if change is not None or member.available_at > self.act.now:
            return member.available_at if change is None else change
        after = used(member, self.rules, self.uses.nth(number, member), self.act.now)
        self.uses.add(number, after, self.limits(after))
        self.change(number, after)
        return None

    def _move(self, number: int, member: Resource, at: Moment) -> Moved | Moment | None:
        known = self.uses.remembered(number, member, self.limits(member))
        change = moved(member, self.rules, known, at, self.act.now)
        if isinstance(change, Moved) and known:
            self.uses.put(number, change.member, change.uses)
        return change

    def write(self) -> None:
        if self._changed:
            self.act.bulk("member_write", [standing(number, self.members[number]) for number in sorted(self._changed)])
            self._changed.clear()
        self.uses.write()

    def shortage(self) -> Shortage:
        """Why none could be given, as they stand in the store: write first."""
        row: Any = self.act.one("pool_shortage", self.pool, self.act.now)
        stage, until = row
        return shortage(self.pool, {} if stage is None else {STAGES[stage]: 1}, until)

    def ring(self) -> None:
        """Wake who waits for the queues that are bound to the pool."""
        queues: Iterable[Any] = self.act.rows("pool_queues", self.pool)
        self.act.rings.update(row[0] for row in queues)
