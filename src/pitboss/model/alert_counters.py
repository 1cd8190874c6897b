"""What alerts count over a window, from totals that only their readers know: how much came when. The origin of a total
is what counts it: a process, or a bucket of figures."""

from collections.abc import Iterator, Mapping

import msgspec

from pitboss.model.duration import SECOND, Moment, Span

# What came within such a part of the shortest window is kept together.
_PARTS = 20
_PAUSE: Span = 60 * SECOND


class Portion(msgspec.Struct, frozen=True, array_like=True):
    """What came in some seconds, by kind and subject."""

    at: Moment
    counts: dict[str, int]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """`totals` are those of the last look, by kind, subject and origin; `new` is what came between the last two."""

    at: Moment | None = None
    totals: dict[str, int] = {}
    portions: tuple[Portion, ...] = ()
    new: dict[str, int] = {}

    def counted(
        self, totals: Mapping[tuple[str, str, str], int], now: Moment, *, longest: Span, shortest: Span
    ) -> "Counters":
        """After a look; with the longest and the shortest window that is asked for.

        A total that has shrunk (a process began anew) counts for nothing. The first look, and one after a long pause,
        has nothing to compare with: it begins with what the buckets of figures say of the window, and without what
        processes counted, whose moments are not known.
        """
        known = {"|".join(key): total for key, total in totals.items()}
        if self.at is None or not 0 <= now - self.at <= max(longest, _PAUSE):
            return Counters(at=now, totals=known, portions=tuple(_stored(totals, now - longest)))
        new = dict[str, int]()
        for (kind, subject, origin), total in totals.items():
            came = total - self.totals.get(f"{kind}|{subject}|{origin}", 0)
            if came > 0:
                new[f"{kind}|{subject}"] = new.get(f"{kind}|{subject}", 0) + came
        kept = tuple(one for one in self.portions if one.at > now - longest)
        return Counters(at=now, totals=known, portions=_added(kept, new, now, shortest // _PARTS), new=new)

    def subjects(self, kind: str) -> list[str]:
        """Those of which this kind is remembered."""
        names = {key for one in self.portions for key in one.counts if key.startswith(f"{kind}|")}
        return sorted(key.removeprefix(f"{kind}|") for key in names)

    def within(self, kind: str, subject: str, window: Span) -> int:
        """How many came within this time before the last look."""
        after = (self.at or 0) - window
        return sum(one.counts.get(f"{kind}|{subject}", 0) for one in self.portions if one.at > after)

    def latest(self, kind: str, subject: str) -> int:
        """How many came since the look before."""
        return self.new.get(f"{kind}|{subject}", 0)


def _stored(totals: Mapping[tuple[str, str, str], int], after: Moment) -> Iterator[Portion]:
    """What each bucket has, oldest first. The origin of its totals is the moment at which it began."""
    found = dict[Moment, dict[str, int]]()
    for (kind, subject, origin), total in totals.items():
        if origin.isdecimal() and int(origin) > after:
            found.setdefault(int(origin), {})[f"{kind}|{subject}"] = total
    return (Portion(at, found[at]) for at in sorted(found))


def _added(kept: tuple[Portion, ...], new: dict[str, int], now: Moment, length: Span) -> tuple[Portion, ...]:
    if not new:
        return kept
    if kept and now - kept[-1].at < length:
        last = kept[-1]
        joined = {key: last.counts.get(key, 0) + new.get(key, 0) for key in {**last.counts, **new}}
        # It keeps its moment: with a later one it would never be old enough for a portion after it.
        return (*kept[:-1], Portion(last.at, joined))
    return (*kept, Portion(now, new))
