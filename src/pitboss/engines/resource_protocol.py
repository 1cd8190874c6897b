"""The part of the protocol that is about resource pools, their members, and leases of these.

An engine has all of it or nothing.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.duration import Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.resource import (
    Declaration,
    KeyValue,
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourcePool,
    Shortage,
    UseEnd,
    Want,
)
from pitboss.model.task import Token


@runtime_checkable
class ResourcePools(Protocol):
    """Pools and their rules. `model.pool_rules` decides which rules hold.

    New rules apply to the members at once, over the uses that are still remembered, and ring the pool's queues.
    """

    async def declare_pool(
        self, name: str, rules: PoolRules | None, *, by: str | None = None, replace: bool = True
    ) -> Declaration | None:
        """Create the pool, and declare its rules; None only creates it. If it is declared already, other rules take the
        place of the present ones, or with `replace` False change nothing; the same rules change nothing either. Returns
        the declaration that there was before; None: there was none."""

    async def limit_pool(
        self, name: str, values: dict[str, KeyValue], *, by: str | None = None, reset: bool = False
    ) -> bool:
        """Set keys of a pool for an operator (`resource_keys.checked_keys`), above what is declared now or later. They
        are added to those that an operator set before, or with `reset` take their place. False: there is no such pool,
        and nothing is written."""

    @open_to_workers
    async def resource_pools(self) -> list[ResourcePool]:
        """Every pool by name, with its number of members by stage now (zeros left out)."""


@runtime_checkable
class Resources(Protocol):
    """The members of pools, and how tasks get them.

    A queue is bound to a pool while a registered handler of that queue needs one (`HandlerInfo.resources`; of several
    such handlers, the first by name decides). `model.leasing` alone decides the state of a member, and `model.picking`
    which member a task gets: an engine reads, calls these, and writes their answer, all in one act.

    A claim on such a queue goes through its pending tasks in their order. Each task gets the first member by the pool's
    strategy (`rank`, then `last_used_at`, then `name`) that is ready and fits: the member carries all labels of the
    task's want, and the task does not avoid it (`leasing.avoided` of its `tried`, and the number of enabled members
    with those labels). Giving a member is a use (`leasing.granted`), which counts whatever the outcome. It is open
    until the act that ends it (`Leases.end_use`): then it counts from its end, else from the last moment at which it
    can have been made. A member that is still ready can be given again in the same call, at its new place in the order.
    Where turns are taken, a member that could not be used makes up for one round at most (`leasing.turn_floor`, of the
    members before the call).

    A want with a key gets the member to which the key is bound, whatever the task has tried, and binds it for
    `bound_for` again. If that member is not ready, disabled included, the task waits; with `away` "rebind" the key is
    bound to another member that the task has not tried. If that member is gone or without the wanted labels, or the
    binding is past its time, the task chooses as any other does, and the key is bound to its choice.

    Tasks that no member fits are passed by, and the tasks behind them get their turn; an engine may stop looking after
    1,000 of them. Such tasks are never given ahead. The queue's own rate holds too. A task that gets no member is not
    changed, and a `Shortage` for its pool says why (`leasing.shortage` of the members after the call); there is one per
    pool, by name. Its `until`, the earliest `available_at` of the pool's members that are away, counts for `next_due`.

    The claim carries the lease, and the task names the member (`resource`). When the claim ends, the member is given
    back (`member_health.given_back`). `member_health.tried_after` changes the task's `tried`, and `rotations`
    grows if the transition says rotated; both start from nothing when the task completes or an operator retries it.
    Giving a member back rings the pool's queues. Strikes on a destination (all reports of a fault, even excused ones)
    are remembered for ten minutes, and forgotten when a use of it is ok. A member that was removed, and added again
    after the claim or lease began, is another member: nothing is given back to it.
    """

    @open_to_workers
    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        """Add members to a pool, which is created if it is new; True for each new member. A member that the pool has
        already takes the values given here (fields, secrets, labels, weight, limits, validity) and keeps the rest. A
        new member begins with the lowest turn in the pool. One of a name that was removed begins with the uses that
        limits still count (`picking.departed`). If one call names a member twice, the last one counts, and both get the
        same answer. Rings its queues."""

    @open_to_workers
    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        """Change members (None: all), or remove them if `change` is None. Returns the names of those that exist, in
        order. Removing a member does not end its lease, but the lease gives nothing back later, and its next use is
        refused (`MemberRemoved`). Enabling a member clears the reason for which it was disabled. Rings its queues."""

    @open_to_workers
    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        """Members by name, each with its stage now. An unknown pool has none."""


@runtime_checkable
class Leases(Protocol):
    """Leases outside tasks, and further uses of a member that is held.

    A lease is held until it is released or past its time. A lease that is past its time is over; the next `reclaim`, or
    the next `acquire` under the same name, gives its member back.
    """

    @open_to_workers
    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        """Lease a member for `hold` at most, chosen as a claim would for a task with that want that tried nothing yet.
        `lease` is the caller's name for the lease; the same name again, while it is held, gets the same member."""

    @open_to_workers
    async def release(self, lease: str, report: Report | None, use_end: UseEnd | None = None) -> bool:
        """Give the member back, and end its open use if `use_end` says so, as `end_use` would. If the lease is not held
        (any more), return False and write nothing."""

    @open_to_workers
    async def extend(self, lease: str, hold: Span) -> Moment | None:
        """Hold the lease for that long from now on. Returns until when, or None if it is not held."""

    @open_to_workers
    async def use(
        self,
        holder: "Token | str",
        task: TaskId | None = None,
        *,
        instead: Moment | None = None,
        ends: UseEnd | None = None,
    ) -> Moment | Shortage:
        """Count one more use of the member that a claim (its token and task) or a lease holds. Returns the moment of
        the use, or a shortage with its `until` if the member's limits do not allow it yet. `StaleLease` if the member
        is not held any more; `MemberRemoved`, which is one too, if it was removed from its pool meanwhile. `ends` ends
        an earlier open use first, as `end_use` would, whatever the answer. `instead` is the moment under which a use is
        remembered that the holder was granted and did not make: that use is moved instead of adding one
        (`leasing.moved`). If windows remember uses and none at that moment, one is added. The new use is open for as
        long as the limits say (`leasing.open_span`), and remembered at the answer plus that span.
        """

    @open_to_workers
    async def bound(self, pool: str, key: str) -> str | None:
        """The name of the member that a sticky key is bound to now, whether the pool still has it or not; None if the
        key is bound to none. Only for reading: it extends no binding."""

    @open_to_workers
    async def end_use(self, holder: "Token | str", task: TaskId | None, end: UseEnd) -> None:
        """End an open use of a member that is held on (`leasing.ended`). Rings its queues if it may be used earlier. A
        use that is not remembered, and a member that is not held any more, change nothing: a repeat is harmless."""
