"""The uses of members as far as an act knows them. Uses are numbered, so that few of them must be read."""

from collections.abc import Iterable, Sequence

from pitboss.engines.postgres.rows import numbers
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.leasing import Nth, limits_of, most_remembered
from pitboss.model.resource import PoolRules, Resource


class Unread(Exception):
    """The use that is needed was not read."""


class UseHistory:
    """The uses that were read, and those that this act has made or moved."""

    def __init__(self) -> None:
        self._read: dict[int, dict[int, Moment | None]] = {}
        self._complete: set[int] = set()
        self.fresh: list[tuple[int, int, Moment]] = []
        self._shifted: dict[tuple[int, int], Moment] = {}

    def note(self, number: int, use: int, at: Moment | None) -> None:
        self._read.setdefault(number, {})[use] = at

    def knows(self, number: int, use: int) -> bool:
        return use in self._read.get(number, ())

    def note_all(self, members: Iterable[int], rows: Iterable[Row]) -> None:
        """Note all stored uses of these members: others never were, or are forgotten."""
        self._complete.update(members)
        for number, use, at in rows:
            self.note(number, use, at)

    def add(self, number: int, member: Resource, rules: PoolRules) -> None:
        """Add the use that was just granted; kept if a window looks at it."""
        if most_remembered(limits_of(member, rules)):
            self.note(number, member.record.uses, member.last_used_at)
        self.fresh.append((number, member.record.uses, member.last_used_at))

    def remembered(self, number: int) -> list[Moment]:
        """All known uses of a member, the oldest first; for members of which all were read."""
        return [at for _, at in self._of(number)]

    def shift(self, number: int, moments: Sequence[Moment]) -> None:
        """Let the uses count from these moments."""
        for (use, old), new in zip(self._of(number), moments, strict=True):
            if new != old:
                self.note(number, use, new)
                self._shifted[number, use] = new
        self.fresh = [(one, use, self._shifted.pop((one, use), at)) for one, use, at in self.fresh]

    def write_shifted(self, sql: Statements) -> Script[None]:
        if self._shifted:
            yield sql.ask(
                "use_move",
                members=numbers([number for number, _ in self._shifted]),
                numbers=numbers([use for _, use in self._shifted]),
                ats=numbers(list(self._shifted.values())),
            ).unheard()

    def nth(self, number: int, member: Resource) -> Nth:
        """How to find the moment of the n-th newest use."""
        known = self._read.setdefault(number, {})

        def moment(n: int) -> Moment | None:
            use = member.record.uses - n + 1
            if use < 1:
                return None
            if use not in known and number not in self._complete:
                raise Unread
            return known.get(use)

        return moment

    def _of(self, number: int) -> list[tuple[int, Moment]]:
        return sorted((use, at) for use, at in self._read.get(number, {}).items() if at is not None)
