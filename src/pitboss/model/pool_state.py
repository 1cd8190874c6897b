"""How a resource pool is: how many of its members can be used, how the others are, and when they are back."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from pitboss.model.duration import Moment, Span
from pitboss.model.leasing import condition, limits_of
from pitboss.model.resource import Condition
from pitboss.model.supply import ResourcePoolView, steady

# They failed or were refused, and come back by themselves.
_SENT_AWAY = (Condition.COOLING, Condition.BLACKLISTED)


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """A resource pool at one moment. `back` says when members that were sent away are back, soonest first. `steady` is
    how many uses per second the members that can be used allow in the long run; `period` is the longest of the windows
    in which uses are counted. `at_once` is how many tasks can hold a usable member at the same time; None: any number.
    """

    name: str
    counts: Mapping[Condition, int] = {}
    back: Sequence[Moment] = ()
    steady: float = 0.0
    period: Span = 0
    at_once: int | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def away(self) -> int:
        """Members that cool down or are blacklisted."""
        return sum(self.counts.get(one, 0) for one in _SENT_AWAY)

    @property
    def usable(self) -> int:
        """Members that can be used, at once or after their use or rest."""
        return self.total - self.away - self.counts.get(Condition.DISABLED, 0)

    @property
    def said(self) -> str:
        """ "29 of 40 proxies are away: 24 cooling, 5 blacklisted"."""
        told = (*_SENT_AWAY, Condition.DISABLED)
        found = ", ".join(f"{self.counts[one]:,} {one}" for one in told if self.counts.get(one))
        gone = self.total - self.usable
        verb = "is" if gone == 1 else "are"
        return (
            f"{gone:,} of {self.total:,} {self.name} {verb} away: {found}" if gone else f"all {self.name} can be used"
        )

    def enough(self, wanted: int) -> tuple[Moment, int] | None:
        """When as many members as wanted can be used, and how many come back until then; None if never."""
        missing = wanted - self.usable
        return (self.back[missing - 1], missing) if 0 < missing <= len(self.back) else None


def pool_state(view: ResourcePoolView, now: Moment) -> PoolState:
    """The state of a pool whose members were read."""
    found = [(one, *condition(one, view.rules, now)) for one in view.members]
    usable = [one for one, how, _ in found if how not in (*_SENT_AWAY, Condition.DISABLED)]
    limits = [limits_of(one, view.rules) for one in usable]
    return PoolState(
        name=view.name,
        counts=Counter(how for _, how, _ in found),
        back=sorted(until for _, how, until in found if how in _SENT_AWAY and until is not None),
        steady=sum(steady(one) for one in limits),
        period=max((window.per for one in limits for window in one.windows), default=0),
        at_once=_at_once([one.concurrency for one in limits]),
    )


def _at_once(numbers: Sequence[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None
