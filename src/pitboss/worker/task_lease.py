"""The resource that a task holds while it runs: prepared, passed to its handler, and blamed or not at the end."""

import asyncio
from typing import Any, NamedTuple, Protocol

import msgspec

from pitboss.client.lease import Lease, UnheldLease
from pitboss.client.member_sessions import NotPrepared
from pitboss.model.blame import CATEGORIES
from pitboss.model.errors import BudgetSpent, InvalidInput, MemberRemoved, StoreUnavailable
from pitboss.model.leasing import grew_old
from pitboss.model.outcome import Cancelled, Failed, Outcome, Released, Retry, Rotated
from pitboss.model.outcome import Snooze as SnoozeOutcome
from pitboss.model.resource import Leased, Report, ResourceOutcome, UseEnd
from pitboss.model.signals import Snooze
from pitboss.model.task import Claim, Token

# The handler chose the outcome itself: only what it said about the lease counts.
_CHOSEN = (Retry, SnoozeOutcome, Cancelled)
_RATE_LIMITED = CATEGORIES[ResourceOutcome.RATE_LIMITED]
_RESOURCE = CATEGORIES[ResourceOutcome.RESOURCE_ERROR]
# How many seconds a task waits for another use of its member before it gives the member back.
_USE_SECONDS = 5.0


class Sessions(Protocol):
    """Prepares members before their use (a login, for example)."""

    def wanted(self, lease: Lease) -> bool: ...

    async def prepare(self, lease: Lease) -> None: ...

    def fault(self, lease: Lease, error: BaseException) -> Report | None: ...


class Pool(Protocol):
    """A declared resource pool."""

    sessions: Sessions

    def lent(self, leased: Leased, holder: Token, task: str) -> Lease: ...

    def report_on(self, lease: Lease, error: BaseException | None) -> Report | None: ...


class TaskLease(NamedTuple):
    """A task's lease, and the handler's parameter that gets it."""

    parameter: str
    pool: Pool
    lease: Lease

    async def prepare(self) -> None:
        prepared = self.pool.sessions.wanted(self.lease)
        if prepared:
            await self.pool.sessions.prepare(self.lease)
        leased = self.lease.leased
        within = leased.guard or leased.open_for
        if leased.asked is not None and grew_old(asyncio.get_running_loop().time() - leased.asked, within):
            await _used_from_now(self.lease, spent=prepared)

    async def end(self, error: BaseException | None = None) -> UseEnd | None:
        """The end of its use, once its handler has ended. Nothing that happens here keeps the outcome back.

        None if a request may still be on its way.
        """
        try:
            return await self.lease.uses.over(error)
        except (Exception, asyncio.CancelledError):
            return self.lease.use_end()


async def _used_from_now(lease: Lease, *, spent: bool) -> None:
    """Count the use from now on. Take another one if `spent`: preparing the member may have used up the first."""
    try:
        await (lease.use(_USE_SECONDS) if spent else lease.use_from_now(_USE_SECONDS))
    except BudgetSpent as error:
        raise Snooze(0, "its resource came too late to be used within its limits") from error


def task_lease(claim: Claim, injected: dict[str, Any]) -> TaskLease | None:
    """The lease of the claim, for the parameter that declares one; None if no parameter does."""
    for name, kind in injected.items():
        if isinstance(kind, UnheldLease):
            pool: Any = kind.source
            if claim.leased is None:
                raise _without(pool.name, claim.queue)
            return TaskLease(name, pool, pool.lent(claim.leased, claim.token, claim.id))
    return None


def judged(held: TaskLease | None, outcome: Outcome, error: BaseException | None) -> tuple[Outcome, Report | None]:
    """The outcome, changed if the resource is to blame for it, and the report about the resource."""
    if held is None or isinstance(outcome, Released):
        return outcome, None
    if isinstance(error, NotPrepared):
        report = held.pool.sessions.fault(held.lease, error)
        blamed = _RATE_LIMITED if isinstance(error.__cause__, BudgetSpent) else _RESOURCE
        return _blamed(outcome, blamed if report is None else CATEGORIES[report.outcome], rotates=True), report
    seen = None if held.lease.verdict is None else held.pool.report_on(held.lease, None)
    spent = error if held.lease.answers.unsent is None else held.lease.answers.unsent
    if isinstance(error, Exception) and isinstance(spent, BudgetSpent) and held.lease.report is None:
        # The store knows its limits already: only what answers said is news.
        return _blamed(outcome, _RATE_LIMITED), seen
    if isinstance(error, Exception) and isinstance(spent, MemberRemoved) and held.lease.report is None:
        # The task is not to blame, and there is no member to report on.
        return _blamed(outcome, _RESOURCE, rotates=True), None
    if isinstance(error, Exception) and isinstance(spent, StoreUnavailable) and held.lease.report is None:
        # No request was sent: it says nothing about the member.
        return outcome, seen
    if isinstance(outcome, _CHOSEN):
        return outcome, seen
    report = _report(held, error)
    category = None if report is None else CATEGORIES.get(report.outcome)
    return (outcome if category is None else _blamed(outcome, category)), report


def _report(held: TaskLease, error: BaseException | None) -> Report | None:
    try:
        return held.pool.report_on(held.lease, error)
    except Exception:
        # A broken `report_on` must not change the outcome of the task.
        return Report(outcome=ResourceOutcome.TASK_ERROR)


def _blamed(outcome: Outcome, category: str, *, rotates: bool = False) -> Outcome:
    """A failure of the resource: retried, and at no cost (`rotates`) if the task itself did nothing wrong."""
    if not isinstance(outcome, Failed):
        return outcome
    error = msgspec.structs.replace(outcome.error, category=category, retryable=True)
    return Rotated(error) if rotates or category == _RATE_LIMITED else Failed(error)


def _without(pool: str, queue: str) -> InvalidInput:
    return InvalidInput(
        f"this task came without a member of {pool}",
        why=f'it was put on queue "{queue}", which is not bound to that pool',
        fix="enqueue it without queue=, and run the manager with the code that declares the lease",
    )
