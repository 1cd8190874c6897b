"""Which member a task gets: the first that fits in the pool's order, or the one that its key is bound to."""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Sequence

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.leasing import Nth, fits, limits_of, most_remembered, open_span, placed, restated
from pitboss.model.member_health import without_faults
from pitboss.model.member_history import after_change, noted
from pitboss.model.resource import (
    EntryKind,
    Leased,
    NewResource,
    PoolRules,
    Record,
    Resource,
    ResourceChange,
    Stage,
    Want,
    checked_labels,
    checked_resource,
)

ANY = Want()


class ReadyMembers:
    """Ready members in the order in which they are given. Holds those that an engine has read."""

    def __init__(self, members: Iterable[Resource] = ()) -> None:
        self._members: dict[str, Resource] = {}
        self._order: list[tuple[int, Moment, str]] = []
        for member in members:
            self.put(member)

    def __len__(self) -> int:
        return len(self._order)

    def put(self, member: Resource) -> None:
        """Add or move a member to its place; also after a grant. Removes one that is not ready."""
        self.remove(member.name)
        if member.stage is Stage.READY:
            self._members[member.name] = member
            insort(self._order, _place(member))

    def remove(self, name: str) -> None:
        member = self._members.pop(name, None)
        if member is not None:
            del self._order[bisect_left(self._order, _place(member))]

    def get(self, name: str) -> Resource | None:
        return self._members.get(name)

    def first(self, want: Want, avoided: Container[str] = ()) -> Resource | None:
        """The first that a task may have. It stays in place until it is put again or removed."""
        return next((self._members[name] for _, _, name in self._order if self._may_have(name, want, avoided)), None)

    def choose(self, want: Want, avoided: Container[str], bound: Resource | None, rules: PoolRules) -> Resource | None:
        """The member for a task; None: it waits.

        `bound` is the member that its key is bound to, disabled or not; None if it has no key, the binding has expired,
        or that member is gone. A key is bound to the member that its task gets.
        """
        if bound is not None and fits(bound, want):
            kept = self.get(bound.name)
            if kept is not None or rules.away == "wait":
                return kept
        return self.first(want, avoided)

    def last(self) -> Resource | None:
        """The last one in the order, if all that are ready were put."""
        return self._members[self._order[-1][2]] if self._order else None

    def _may_have(self, name: str, want: Want, avoided: Container[str]) -> bool:
        return name not in avoided and (not want.labels or fits(self._members[name], want))


class Departed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a removed member under its name, until limits count its uses no more.

    `uses` are moments in rising order, `number` is how many uses it had in all.
    """

    until: Moment
    uses: tuple[Moment, ...] = ()
    number: int = 0
    last_used_at: Moment = 0
    ended_at: Moment = 0


def departed(member: Resource, rules: PoolRules, nth: Nth, now: Moment) -> Departed | None:
    """What to remember of a member that is removed now; None: nothing."""
    limits = limits_of(member, rules)
    uses = [at for n in range(most_remembered(limits), 0, -1) if (at := nth(n)) is not None]
    ended_at = now if member.in_use else member.record.ended_at
    gap = limits.min_delay + limits.jitter
    # The next member of this name may have the pool's limits instead of its own.
    longest = max([gap, *(window.per for one in (limits, rules.limits) for window in one.windows)])
    last_end = ended_at + gap if limits.delay_from == "end" else 0
    until = max(max([member.last_used_at, *uses]) + longest + max(limits.guard, rules.limits.guard), last_end)
    if not member.record.uses or until <= now:
        return None
    return Departed(until, tuple(uses), member.record.uses, member.last_used_at, ended_at)


def added(
    pool: str, new: NewResource, rules: PoolRules, lowest_turn: int, now: Moment, before: Departed | None = None
) -> Resource:
    """A new member. It begins with the lowest turn of the pool, so that it neither waits nor gets everything.

    `before` is what is remembered of a removed one of that name: its uses still count.
    """
    new = checked_resource(new)
    record, used_at = Record(turn=lowest_turn, since=now), 0
    if before is not None:
        record = msgspec.structs.replace(record, uses=before.number, ended_at=before.ended_at)
        used_at = before.last_used_at
    member = Resource(pool=pool, **msgspec.structs.asdict(new), added_at=now, last_used_at=used_at, record=record)
    return placed(member, rules, now) if before is None else restated(member, rules, nth_of(before.uses), now)


def added_again(member: Resource, new: NewResource, rules: PoolRules, nth: Nth, now: Moment) -> Resource:
    """Replace the declaration of a member; keep its usage history."""
    new = checked_resource(new)
    again = msgspec.structs.replace(member, **msgspec.structs.asdict(new))
    return restated(after_change(member, again, now), rules, nth, now)


def changed(member: Resource, change: ResourceChange, rules: PoolRules, nth: Nth, now: Moment) -> Resource:
    """The member after an operator's change."""
    wanted = {
        name: value
        for name in ("enabled", "labels", "weight", "limits", "fields", "secrets", "valid_until")
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if "labels" in wanted:
        wanted["labels"] = checked_labels(wanted["labels"])
    if "enabled" in wanted:
        wanted["disabled_reason"] = None if change.enabled else change.reason
    if change.reset:
        wanted["record"] = _reset(member.record, now)
    if change.late:
        record = wanted.get("record", member.record)
        wanted["record"] = msgspec.structs.replace(record, late=record.late + change.late)
    after = after_change(member, msgspec.structs.replace(member, **wanted), now, change.reason)
    return restated(after, rules, nth, now)


def _reset(record: Record, now: Moment) -> Record:
    after = without_faults(record)
    return record if after == record else noted(after, EntryKind.RESET, now)


def leased(
    member: Resource, rules: PoolRules, now: Moment, *, lease: str | None = None, expires_at: Moment | None = None
) -> Leased:
    """The member as its holder sees it, just after `granted`."""
    limits = limits_of(member, rules)
    open_for = open_span(limits)
    return Leased(
        pool=member.pool,
        name=member.name,
        fields=member.fields,
        secrets=member.secrets,
        labels=member.labels,
        leased_at=member.last_used_at - open_for if open_for else now,
        valid_until=member.valid_until,
        guard=limits.guard,
        lease=lease,
        expires_at=expires_at,
        open_for=open_for,
        shared=limits.concurrency != 1,
    )


def same_member(member: Resource, leased_at: Moment) -> bool:
    """Whether this is the member that was leased then, and not a newer one of the same name."""
    return (member.record.since or member.added_at) <= leased_at


def nth_of(uses: Sequence[Moment]) -> Callable[[int], Moment | None]:
    """`Nth` over the uses that are remembered, in rising order."""
    return lambda n: uses[-n] if 0 < n <= len(uses) else None


def _place(member: Resource) -> tuple[int, Moment, str]:
    return member.rank, member.last_used_at, member.name
