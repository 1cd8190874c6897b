"""When members were used, as far back as their windows look.

Uses of a member are numbered, and later numbers have later moments, so that the n-th newest is found at once.
"""

from collections.abc import Iterable

import msgspec

from pitboss.engines.sqlite.act import Act, Row
from pitboss.model.duration import Moment
from pitboss.model.leasing import Nth, most_remembered
from pitboss.model.resource import Limits, Resource

_at = msgspec.json.Decoder(list[tuple[int, int, int]])


class Uses:
    """The uses of a pool's members during one act."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._moments: dict[tuple[int, int], Moment | None] = {}
        self._added: dict[tuple[int, int], Moment] = {}
        self._forgotten: list[Row] = []

    def foresee(self, members: Iterable[tuple[int, Resource, Limits]], *, used: bool = True) -> None:
        """Read at once what their next use will ask for, or what standing by other rules will."""
        asked: set[tuple[int, int]] = set()
        for number, member, limits in members:
            uses = member.record.uses
            asked |= {(number, uses - window.count + 1 + used) for window in limits.windows}
            asked |= {(number, uses)} if limits.windows else set()
        wanted = [(number, seq) for number, seq in asked if seq > 0]
        if wanted:
            self._read(wanted)

    def nth(self, number: int, member: Resource) -> Nth:
        uses = member.record.uses

        def moment(n: int) -> Moment | None:
            return self._moment(number, uses - n + 1) if n <= uses else None

        return moment

    def add(self, number: int, used: Resource, limits: Limits) -> None:
        """Its newest use is now; those that no window looks back to any more are forgotten."""
        kept, newest = most_remembered(limits), used.record.uses
        if kept:
            self._enter(number, newest, kept)
        if newest > kept:
            self._moments[number, newest - kept] = None
            self._forgotten.append((number, newest - kept))

    def remembered(self, number: int, member: Resource, limits: Limits) -> list[Moment]:
        """All that windows look at, in rising order."""
        newest = member.record.uses
        seqs = range(max(1, newest - most_remembered(limits) + 1), newest + 1)
        self._read([(number, seq) for seq in seqs])
        return [at for seq in seqs if (at := self._moments[number, seq]) is not None]

    def put(self, number: int, member: Resource, moments: list[Moment]) -> None:
        """Its newest uses are these."""
        for seq, at in enumerate(moments, start=member.record.uses - len(moments) + 1):
            if self._moments.get((number, seq)) != at:
                self._moments[number, seq] = self._added[number, seq] = at

    def write(self) -> None:
        if self._added:
            self._act.bulk("use_add", [(*use, at) for use, at in self._added.items()])
            self._added.clear()
        if self._forgotten:
            self._act.bulk("use_forget", self._forgotten)
            self._forgotten.clear()

    def _enter(self, number: int, newest: int, kept: int) -> None:
        moments, before = [self._act.now], self._moment(number, newest - 1) if newest > 1 else None
        if before is not None and before > self._act.now:
            # The clock was set back. Whatever it says, the n-th newest use is the n-th latest moment.
            remembered = [self._moment(number, seq) for seq in range(max(1, newest - kept), newest)]
            moments = sorted([*moments, *(at for at in remembered if at is not None)])
        for seq, at in enumerate(moments, start=newest - len(moments) + 1):
            self._moments[number, seq] = self._added[number, seq] = at

    def _moment(self, number: int, seq: int) -> Moment | None:
        if (number, seq) not in self._moments:
            self._read([(number, seq)])
        return self._moments[number, seq]

    def _read(self, asked: list[tuple[int, int]]) -> None:
        self._moments.update(dict.fromkeys(asked))
        found = self._act.decoded("use_at", _at, msgspec.json.encode(asked).decode())
        self._moments.update({(number, seq): at for number, seq, at in found})
