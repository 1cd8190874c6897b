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

    def note_rows(self, rows: Iterable[Row]) -> None:
        """Note uses that were asked for by their number."""
        for number, use, at in rows:
            self.note(number, use, at)

    def note_all(self, members: Iterable[int], rows: Iterable[Row]) -> None:
        """Note all stored uses of these members: others never were, or are forgotten."""
        self._complete.update(members)
        for number, use, at in rows:
            # What this act has made or moved is not in the table yet.
            if not self.knows(number, use):
                self.note(number, use, at)

    def add(self, number: int, member: Resource, rules: PoolRules) -> None:
        """Add the use that was just granted; kept if a window looks at it."""
        use, at = member.record.uses, member.last_used_at
        if most_remembered(limits_of(member, rules)):
            # Later numbers have later moments. Only after the clock was set back, or the limits were changed while
            # uses were open, are there uses whose moment is later than the one of the newest.
            later = self._later(number, member, at)
            self.note(number, use, at)
            self.fresh.append((number, use, at))
            self.shift(number, use, [at, *later])
        else:
            self.fresh.append((number, use, at))

    def shift(self, number: int, newest: int, moments: Sequence[Moment]) -> None:
        """Let the newest uses, up to the number of the newest, count from these moments."""
        for use, at in enumerate(moments, start=newest - len(moments) + 1):
            if self._read[number].get(use) != at:
                self.note(number, use, at)
                self._shifted[number, use] = at
        if self._shifted:
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

    def _later(self, number: int, used: Resource, at: Moment) -> list[Moment]:
        """The moments of uses before the newest that are later than it, in rising order."""
        nth, later = self.nth(number, used), list[Moment]()
        while (before := nth(len(later) + 2)) is not None and before > at:
            later.insert(0, before)
        return later
