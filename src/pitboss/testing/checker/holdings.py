"""Which task or lease held which member when, as far as a history proves it, and under which limits."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from pitboss.model.duration import Moment
from pitboss.model.resource import Leased, Limits, NewResource, PoolRules, UseEnd
from pitboss.model.task import Claim, Token
from pitboss.testing import history as acts
from pitboss.testing.checker.evidence import Evidence
from pitboss.testing.history import FOREVER, Call


class Grant(NamedTuple):
    """One use of a member. `held_until` is the first place in the order at which it may have been given back; None for
    a further use of a member that is held already. `latest` is when it counts until it ends, if it is open."""

    member: str
    at: Moment
    call: Call
    holder: Token | str
    whom: str
    held_until: int | None
    latest: Moment

    def covers(self, other: Call) -> bool:
        """Whether the member was surely held during all of a later call."""
        return self.held_until is not None and self.call.ended < other.begun and self.held_until > other.ended


class LimitsInForce(NamedTuple):
    """The limits of a member between two places in the order; None if the history does not prove them."""

    begin: int
    end: int
    limits: Limits | None
    rules: PoolRules | None

    def governs(self, call: Call) -> bool:
        return self.begin < call.begun and call.ended < self.end


class Holdings:
    """All grants of a history by member, in the order of their moments."""

    def __init__(self, seen: Evidence) -> None:
        self._seen = seen
        self.grants: dict[str, list[Grant]] = defaultdict(list)
        self.leases: dict[str, list[Call]] = defaultdict(list)
        self._releases: dict[str, list[Call]] = defaultdict(list)
        # By holder and latest moment of a use: the first place in the order at which it may have ended.
        self._ends: dict[tuple[Token | str, Moment], int] = {}
        for call in seen.calls:
            self._file_lease(call)
            for holder, end in _ends(call):
                self._ends.setdefault((holder, end.at), call.begun)
        for call in seen.calls:
            for grant in self._granted(call):
                if not self._moves(grant):
                    self.grants[grant.member].append(grant)
        for grants in self.grants.values():
            grants.sort(key=lambda grant: (grant.at, grant.call.begun))

    def limits_in_force(self, member: str) -> list[LimitsInForce]:
        """The limits of a member from one change to the next."""
        pool, _, name = member.partition("/")
        rules: PoolRules | None = None
        own: Limits | None = None
        known, limits_in_force, begin = False, [], 0
        for call in self._seen.calls:
            if call.phase == "fail" or not touches(call, pool, name):
                continue
            limits_in_force.append(LimitsInForce(begin, call.begun, _limits(rules, own) if known else None, rules))
            rules, own, known = _after(call, name, rules, own)
            begin = call.ended
        return [*limits_in_force, LimitsInForce(begin, FOREVER, _limits(rules, own) if known else None, rules)]

    def counts_from(self, use: Grant, call: Call) -> Moment:
        """The moment from which a use counts for a later call, or an earlier one if that is not sure."""
        return use.latest if self._ends.get((use.holder, use.latest), FOREVER) > call.ended else use.at

    def _file_lease(self, call: Call) -> None:
        match call.act:
            case acts.Acquire(lease=lease):
                self.leases[lease].append(call)
            case acts.Release(lease=lease, released=released) if released is not False and call.phase != "fail":
                self._releases[lease].append(call)
            case _:
                pass

    def _granted(self, call: Call) -> Iterator[Grant]:
        match call.act:
            case acts.Claim(claimed=claimed) if claimed is not None:
                for claim in claimed.claims:
                    if claim.leased is not None:
                        until = self._claim_ends(claim, call)
                        yield _grant(claim.leased, call, claim.token, f"task {claim.id}", until)
            case acts.Acquire(leased=leased, lease=lease) if leased is not None and self._is_first(lease, leased, call):
                until = self._lease_ends(leased, call)
                yield _grant(leased, call, lease, f"lease {lease}", until)
            case acts.Use(holder=holder, task=task, used=used) if used is not None:
                held = self._held_by(holder, task, call)
                if held is not None:
                    whom = f"a further use by {holder}"
                    yield Grant(held.id, used, call, holder, whom, None, used + held.open_for)

    def _moves(self, grant: Grant) -> bool:
        """Whether this use replaces an earlier one, which then counts from the new moment."""
        act = grant.call.act
        if not isinstance(act, acts.Use) or act.instead is None:
            return False
        grants = self.grants[grant.member]
        wanted = act.instead, grant.holder
        place = next((n for n, one in enumerate(grants) if (one.latest, one.holder) == wanted), None)
        if place is not None:
            grants[place] = grants[place]._replace(at=grant.at, latest=grant.latest)
        return place is not None

    def _is_first(self, lease: str, leased: Leased, call: Call) -> bool:
        """Asking again under the same name returns the same lease: that is no further use."""
        earlier = (other.act for other in self.leases[lease] if other.begun < call.begun)
        return not any(isinstance(act, acts.Acquire) and _same_lease(act.leased, leased) for act in earlier)

    def _claim_ends(self, claim: Claim, call: Call) -> int:
        ends = [
            written.call.begun
            for written in self._seen.written.get(claim.id, ())
            if written.settlement.token == claim.token and not written.is_progress and not written.refused
        ]
        swept = (
            other.begun
            for other in self._seen.calls
            if isinstance(other.act, acts.Reclaim) and other.ended > call.begun and self._may_take_back(claim, other)
        )
        return min([*ends, next(swept, FOREVER), self._removed(claim.leased, call)])

    def _may_take_back(self, claim: Claim, sweep: Call) -> bool:
        limit = self._seen.time_limit(claim.id, claim.token)
        if limit is None:
            return self._seen.lives[claim.token.session].may_be_dead(sweep.answered_at, sweep.ended)
        return sweep.answered_at is None or sweep.answered_at >= limit.surely_until(sweep.begun)

    def _lease_ends(self, leased: Leased, call: Call) -> int:
        """When it was released; or, past its time, the first sweep or call under its name that may have ended it."""
        ends = [other.begun for other in self._releases[leased.lease or ""] if other.ended > call.begun]
        over = leased.expires_at or 0
        swept = [
            other.begun
            for other in self._seen.calls
            if isinstance(other.act, acts.Reclaim | acts.Acquire)
            and other.ended > call.begun
            and other is not call
            and (other.answered_at is None or other.answered_at >= over)
        ]
        return min([*ends, *swept[:1], self._removed(leased, call)], default=FOREVER)

    def _removed(self, leased: Leased | None, call: Call) -> int:
        if leased is None:
            return FOREVER
        removals = (
            other.begun
            for other in self._seen.calls
            if isinstance(other.act, acts.ChangeResources)
            and other.act.change is None
            and other.ended > call.begun
            and touches(other, leased.pool, leased.name)
        )
        return next(removals, FOREVER)

    def _held_by(self, holder: Token | str, task: str | None, call: Call) -> Leased | None:
        if isinstance(holder, str):
            earlier = [other.act for other in self.leases[holder] if other.begun < call.begun]
            known = [act.leased for act in earlier if isinstance(act, acts.Acquire) and act.leased is not None]
            return known[-1] if known else None
        given = [one.claim for one in self._seen.given.get(task or "", ()) if one.claim.token == holder]
        return given[0].leased if given else None


def _grant(leased: Leased, call: Call, holder: Token | str, whom: str, until: int) -> Grant:
    return Grant(leased.id, leased.leased_at, call, holder, whom, until, leased.use_at)


def _ends(call: Call) -> Iterator[tuple[Token | str, UseEnd]]:
    """The open uses that a call may have ended."""
    match call.act:
        case acts.Settle(settlements=settlements):
            for one in settlements:
                if one.use_end is not None:
                    yield one.token, one.use_end
        case acts.Release(lease=lease, use_end=UseEnd() as end):
            yield lease, end
        case acts.Use(holder=holder, ends=UseEnd() as end) | acts.EndUse(holder=holder, end=end):
            yield holder, end
        case _:
            pass


def touches(call: Call, pool: str, name: str) -> bool:
    """Whether a call may have changed the limits of this member."""
    match call.act:
        case acts.DeclarePool(name=declared):
            return declared == pool
        case acts.AddResources(pool=into, members=members):
            return into == pool and name in [member.name for member in members]
        case acts.ChangeResources(pool=of, names=names, change=change):
            limits = change is None or change.limits is not msgspec.UNSET
            return of == pool and limits and (names is None or name in names)
    return False


def _after(
    call: Call, name: str, rules: PoolRules | None, own: Limits | None
) -> tuple[PoolRules | None, Limits | None, bool]:
    """The pool's rules and the member's own limits after a call, and whether they are known."""
    match call.act:
        case acts.DeclarePool(rules=declared):
            rules = declared
        case acts.AddResources(members=members):
            own, rules = _named(members, name).limits, rules or PoolRules()
        case acts.ChangeResources(change=change):
            own = None if change is None or isinstance(change.limits, msgspec.UnsetType) else change.limits
    return rules, own, not call.unknown


def _limits(rules: PoolRules | None, own: Limits | None) -> Limits | None:
    return own or (None if rules is None else rules.limits)


def _named(members: Iterable[NewResource], name: str) -> NewResource:
    return [member for member in members if member.name == name][-1]


def _same_lease(one: Leased | None, other: Leased) -> bool:
    return one is not None and (one.id, one.leased_at) == (other.id, other.leased_at)
