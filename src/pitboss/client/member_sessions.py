"""Secrets that are made just in time: a login, a cookie, a token that lives for some hours."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from pitboss.client.lease import Lease
from pitboss.model.duration import SECOND, Moment, Span, Time, span
from pitboss.model.errors import BudgetSpent, InvalidInput, KeyMissing
from pitboss.model.queue import checked_name
from pitboss.model.resource import Report, ResourceChange, ResourceOutcome
from pitboss.model.signals import ResourceSignal

if TYPE_CHECKING:
    from pitboss.client.resources import Resources

Make = TypeVar("Make", bound=Callable[[Lease], "Awaitable[str] | str"])
Check = TypeVar("Check", bound=Callable[[Lease], "Awaitable[bool] | bool"])
_SLACK_SECONDS = 15.0


class SessionHook(msgspec.Struct, frozen=True):
    """How one secret is made, and how long it lasts."""

    secret: str
    make: Callable[[Lease], Any]
    valid_for: Span | None
    timeout: Span


class NotPrepared(Exception):
    """A member could not be made ready for use. The cause is the exception of its hook."""


class _Made(NamedTuple):
    """The sealed secrets of a member before and after some of them were made, and how long they are valid."""

    before: dict[str, str]
    after: dict[str, str]
    until: Moment | None


class MemberSessions:
    """The hooks of one pool. In one process, a member is prepared by one task at a time."""

    def __init__(self, pool: "Resources") -> None:
        self._pool = pool
        self._hooks: dict[str, SessionHook] = {}
        self._check: Callable[[Lease], Any] | None = None
        self._locks: dict[tuple[int, str], asyncio.Lock] = {}
        # Secrets that this process made, so that an older lease need not make them again.
        self._made: dict[str, _Made] = {}

    @property
    def seconds(self) -> float:
        """How long preparing a member may take at most."""
        if not self._hooks and self._check is None:
            return 0.0
        return sum(hook.timeout for hook in self._hooks.values()) / SECOND + _SLACK_SECONDS

    def declare(self, secret: str, *, valid_for: Time | None, timeout: Time) -> Callable[[Make], Make]:
        checked_name(secret, "secret")
        lasting = None if valid_for is None else span(valid_for, what="valid_for")
        limit = span(timeout, what="timeout")

        def take(make: Make) -> Make:
            if secret in self._hooks:
                raise InvalidInput(
                    f'there are two hooks that make "{secret}" of {self._pool.name}',
                    why="one of them would never run",
                    fix="declare @session once for each secret",
                )
            self._hooks[secret] = SessionHook(secret, make, lasting, limit)
            return make

        return take

    def declare_check(self, check: Check) -> Check:
        self._check = check
        return check

    def wanted(self, lease: Lease) -> bool:
        """True if the member must be prepared or checked before it is used."""
        return self._check is not None or bool(self._missing(lease))

    async def prepare(self, lease: Lease) -> None:
        """Make the secrets that are missing, past their time, or found invalid; `NotPrepared` if that fails."""
        async with self._lock(lease):
            self._adopt(lease)
            missing = self._missing(lease)
            if not missing and not await self._is_valid(lease):
                missing = list(self._hooks.values())
                if not missing:
                    raise NotPrepared(f"{lease.leased.id} was found invalid, and nothing makes it valid")
            if missing:
                await self._make(lease, missing)

    async def renew(self, lease: Lease) -> None:
        """Make all secrets anew, unless another task of this process did so since this lease was given."""
        if not self._hooks:
            raise InvalidInput(
                f"nothing makes the secrets of {self._pool.name} anew",
                why="no hook is declared for them",
                fix='declare one: @pool.session("cookie") over a function that takes the lease and returns the text',
            )
        refused = lease.leased.secrets
        async with self._lock(lease):
            made = self._made.get(lease.name)
            if made is not None and made.before == refused != made.after:
                lease.renewed(msgspec.structs.replace(lease.leased, secrets=made.after, valid_until=made.until))
            else:
                await self._make(lease, list(self._hooks.values()))

    def fault(self, lease: Lease, error: BaseException) -> Report | None:
        """The report on a member that could not be prepared: whatever the cause, it cannot be used.

        None if its limits were the cause, or none that can be judged.
        """
        if not isinstance(error, Exception | ResourceSignal):
            return None
        cause = error.__cause__ or error
        if isinstance(cause, BudgetSpent):
            return None
        report = self._pool.blamed(lease, cause)
        if report is None or report.outcome in (ResourceOutcome.OK, ResourceOutcome.TASK_ERROR):
            told, place = (None, None) if report is None else (report.error, report.destination)
            report = Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=told or str(error), destination=place)
        return self._pool.redacted(report)

    def _lock(self, lease: Lease) -> asyncio.Lock:
        # A lock belongs to the loop in which it is first waited for.
        return self._locks.setdefault((id(asyncio.get_running_loop()), lease.name), asyncio.Lock())

    def _missing(self, lease: Lease) -> list[SessionHook]:
        leased = lease.leased
        over = leased.valid_until is not None and leased.valid_until <= leased.leased_at
        return [hook for hook in self._hooks.values() if over or hook.secret not in leased.secrets]

    def _adopt(self, lease: Lease) -> None:
        """Take the secrets that another task of this process made while this one waited."""
        made, leased = self._made.get(lease.name), lease.leased
        if made is None or not self._missing(lease) or made.before != leased.secrets:
            return
        if made.until is None or made.until > leased.leased_at:
            lease.renewed(msgspec.structs.replace(leased, secrets=made.after, valid_until=made.until))

    async def _is_valid(self, lease: Lease) -> bool:
        if self._check is None:
            return True
        try:
            return bool(await _called(self._check, lease))
        except KeyMissing:
            raise
        except Exception as error:
            raise NotPrepared(f"the check of {lease.leased.id} failed: {type(error).__name__}") from error

    async def _make(self, lease: Lease, hooks: list[SessionHook]) -> None:
        made = {hook.secret: await self._made_by(hook, lease) for hook in hooks}
        sealed = self._pool.sealed(lease.name, made)
        leased = lease.leased
        ends = [leased.leased_at + hook.valid_for for hook in hooks if hook.valid_for is not None]
        if len(hooks) < len(self._hooks) and leased.valid_until is not None:
            # The secrets that are kept are valid no longer than before.
            ends.append(leased.valid_until)
        until = min(ends) if ends else None
        fresh = {**leased.secrets, **sealed}
        self._made[lease.name] = _Made(leased.secrets, fresh, until)
        lease.renewed(msgspec.structs.replace(leased, secrets=fresh, valid_until=until))
        await self._pool.store_secrets(lease.name, ResourceChange(secrets=fresh, valid_until=until))

    async def _made_by(self, hook: SessionHook, lease: Lease) -> str:
        try:
            async with asyncio.timeout(hook.timeout / SECOND):
                value = await _called(hook.make, lease)
        except KeyMissing:
            raise
        except Exception as error:
            raise NotPrepared(
                f'"{hook.secret}" of {lease.leased.id} could not be made: {type(error).__name__}: {error}'
            ) from error
        if not isinstance(value, str) or not value:
            raise NotPrepared(
                f'the hook that makes "{hook.secret}" of {lease.leased.id} returned {type(value).__name__}, not text'
            )
        return value


async def _called(hook: Callable[[Lease], Any], lease: Lease) -> Any:
    """A hook's answer. A plain function runs in a thread, so that it does not block the loop."""
    if inspect.iscoroutinefunction(hook):
        return await hook(lease)
    answer = await asyncio.to_thread(hook, lease)
    return await answer if inspect.isawaitable(answer) else answer
