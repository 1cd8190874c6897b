"""A declared pool of scarce things: its members, leases of them, and the hooks that prepare and judge them."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import msgspec

from pitboss.client.app_core import LIMIT, AppCore
from pitboss.client.http_connections import HttpConnections
from pitboss.client.lease import DEFAULT_WAIT, Lease, LeaseTerms, UnheldLease
from pitboss.client.member_sessions import Check, Make, MemberSessions
from pitboss.client.members import Members
from pitboss.client.resource_client import ResourceClient
from pitboss.client.standstill import Standstill
from pitboss.engines.host_clock import wall
from pitboss.model.blame import at, blame
from pitboss.model.canonical import printable
from pitboss.model.duration import SECOND, Span, Time, span
from pitboss.model.errors import InvalidInput, StoreUnavailable
from pitboss.model.ids import TaskId
from pitboss.model.resource import Leased, Report, ResourceChange, ResourceOutcome, Want, checked_labels
from pitboss.model.resource_keys import DeclaredResources
from pitboss.model.signals import ResourceSignal
from pitboss.model.task import Token

Judge = Callable[[BaseException], "Report | ResourceOutcome | str | None"]
J = TypeVar("J", bound=Judge)
DEFAULT_HOLD: Span = 600 * SECOND
_LONGEST_ERROR = 500
_EXTENSIONS = 3


class Resources(Members):
    """A pool as code declares it: `proxies = app.resources("proxies", per_hour=50, min_delay="2s")`."""

    def __init__(self, app: AppCore, declared: DeclaredResources) -> None:
        super().__init__(app, declared)
        self.sessions = MemberSessions(self)
        self._judge: Judge | None = None
        self._extending: dict[str, Future[None]] = {}

    def __repr__(self) -> str:
        return f"<Resources {self.name}>"

    # Leases.

    def lease(
        self,
        labels: Iterable[str] = (),
        sticky: str | None = None,
        *,
        key: str | None = None,
        wait: Time | None = None,
        hold: Time | None = None,
    ) -> Lease:
        """Ask for a member: as a handler's parameter, or with `with` and `async with`.

        The member must have all `labels`; in a handler they may name its parameters: `labels=("group-{worker}",)`.
        Tasks with the same value of the parameter `sticky` get the same member; in a `with`, `key` is that value.
        A `with` waits for a member up to `wait` (a minute) and extends its lease by `hold` (ten minutes) at a time.
        """
        return UnheldLease(self, _terms(wait, hold, labels, key, sticky))

    def acquire(
        self,
        wait: Time | None = None,
        hold: Time | None = None,
        *,
        labels: Iterable[str] = (),
        key: str | None = None,
    ) -> Lease:
        """A member for `hold` (ten minutes) at most, waited for up to `wait` (a minute). Give it back with `release`.

        Safe to call from any thread. `with pool.acquire() as lease` gives it back too.
        """
        terms = _terms(wait, hold, labels, key)
        return self.run(self._acquired(terms), what="acquiring a resource", limit=self._limit(terms))

    async def aacquire(
        self,
        wait: Time | None = None,
        hold: Time | None = None,
        *,
        labels: Iterable[str] = (),
        key: str | None = None,
    ) -> Lease:
        """As `acquire`, for async callers."""
        return await self._acquired(_terms(wait, hold, labels, key))

    def release(
        self,
        lease: Lease,
        outcome: ResourceOutcome | str | None = None,
        *,
        retry_after: Time | None = None,
        error: str | None = None,
    ) -> bool:
        """Give it back with its outcome (default: what was said on the lease, else "ok"); False if it was not held."""
        report = self._final_report(lease, outcome, retry_after, error)
        return self.run(self._returned(lease, report), what="releasing a resource")

    async def arelease(
        self,
        lease: Lease,
        outcome: ResourceOutcome | str | None = None,
        *,
        retry_after: Time | None = None,
        error: str | None = None,
    ) -> bool:
        """As `release`, for async callers."""
        return await self._returned(lease, self._final_report(lease, outcome, retry_after, error))

    # Hooks.

    def session(self, secret: str, *, valid_for: Time | None = None, timeout: Time = "60s") -> Callable[[Make], Make]:
        """Declare how a secret is made: `@proxies.session("cookie", valid_for="6h")` over `async def log_in(lease)`.

        The hook runs just before the member is used, if the secret is missing, past its time, or found invalid by
        `valid`, and returns the secret's text. If it raises, the member is blamed and the task gets another one.
        """
        return self.sessions.declare(secret, valid_for=valid_for, timeout=timeout)

    def valid(self, check: Check) -> Check:
        """Declare a check that runs before each use of a member: `async def logged_in(lease) -> bool`."""
        return self.sessions.declare_check(check)

    def judge(self, judge: J) -> J:
        """Declare a function that says what is to blame for an exception; None leaves it to the usual rules.

        It returns an outcome ("rate_limited", "blocked", "resource_error", "task_error", "ok") or a `Report`.
        """
        self._judge = judge
        return judge

    # For leases, workers and the app.

    def lent(self, leased: Leased, holder: Token | str, task: TaskId | None) -> Lease:
        """A lease that a task holds."""
        return Lease(self, leased, holder, task)

    def report_on(self, lease: Lease, error: BaseException | None) -> Report | None:
        """How a use went. None if neither the lease nor the exception says anything about the member."""
        report = lease.report
        if report is None:
            works = lease.answers.report() or Report(outcome=ResourceOutcome.OK)
            report = works if error is None else self.blamed(lease, error)
        if report is None:
            return None
        if report.outcome is ResourceOutcome.OK and report.destination is None:
            report = at(report, lease.answers.only_destination)
        report = msgspec.structs.replace(report, took=lease.answers.took)
        return self.redacted(at(report, printable(lease.destination, 255) if lease.destination else None))

    def redacted(self, report: Report) -> Report:
        """The report without secrets in its text, ready for the store."""
        hidden = self._app.redactor.hidden
        said = None if report.error is None else printable(hidden(report.error), _LONGEST_ERROR)
        return msgspec.structs.replace(report, error=said)

    def blamed(self, lease: Lease, error: BaseException) -> Report | None:
        """The report on an exception: what is to blame for it."""
        if not isinstance(error, Exception | ResourceSignal):
            return None
        usual = lease.answers.beside(blame(error, wall(), has_address=lease.has_address))
        if self._judge is None or isinstance(error, ResourceSignal):
            return usual
        try:
            said = self._judge(error)
            if said is None or isinstance(said, Report):
                return usual if said is None else said
            return msgspec.structs.replace(usual, outcome=_outcome(said))
        except Exception:
            # A broken judge must neither keep the member nor change the task's outcome.
            return usual

    def opened(self, leased: Leased, secret: str) -> str:
        value = self._app.ring().open(leased.secrets[secret], (leased.pool, leased.name, secret))
        self._app.redactor.add(value)
        return value

    @property
    def standstill(self) -> Standstill:
        return self._app.standstill

    def masked_pair(self, user: str, password: str) -> None:
        self._app.redactor.add_pair(user, password)

    def http_connections(self) -> HttpConnections:
        return self._app.http_connections()

    async def store_secrets(self, name: str, change: ResourceChange) -> None:
        """Write the secrets that a session hook has made."""
        await self.aask(lambda resources: resources.change(self.name, [name], change))

    def held(self, terms: LeaseTerms) -> Lease:
        """Acquire for a `with` block, and extend the lease until it is given back."""
        return self.run(self.aheld(terms), what="acquiring a resource", limit=self._limit(terms))

    async def aheld(self, terms: LeaseTerms) -> Lease:
        lease = await self._acquired(_plain(terms, self.name))
        hold, name = terms.hold or DEFAULT_HOLD, lease.id or ""
        self._extending[name] = self.begin(lambda resources: _extend_forever(resources, name, hold))
        return lease

    def give_back(self, lease: Lease, error: BaseException | None) -> None:
        self.run(self._returned(lease, self.report_on(lease, error), error), what="releasing a resource")

    async def agive_back(self, lease: Lease, error: BaseException | None) -> None:
        await self._returned(lease, self.report_on(lease, error), error)

    async def _acquired(self, terms: LeaseTerms) -> Lease:
        name, hold = self._app.new_id(), terms.hold or DEFAULT_HOLD
        want = Want(labels=checked_labels(terms.labels), key=terms.key)

        async def work(resources: ResourceClient) -> Lease:
            await resources.introduce(self.name, self._app.keys_of(self.declared))
            return Lease(self, await resources.acquire(self.name, want, lease=name, hold=hold, wait=terms.wait), name)

        lease = await self.aask(work)
        if self.sessions.wanted(lease):
            try:
                await self.sessions.prepare(lease)
            except BaseException as error:
                await self._returned(lease, self.sessions.fault(lease, error))
                raise
        return lease

    def _limit(self, terms: LeaseTerms) -> float:
        return terms.wait / SECOND + LIMIT + self.sessions.seconds

    def _final_report(
        self, lease: Lease, outcome: ResourceOutcome | str | None, retry_after: Time | None, error: str | None
    ) -> Report | None:
        if outcome is not None:
            pause = None if retry_after is None else span(retry_after, what="retry_after")
            lease.report = Report(outcome=_outcome(outcome), retry_after=pause, error=error)
        return self.report_on(lease, None)

    async def _returned(self, lease: Lease, report: Report | None, error: BaseException | None = None) -> bool:
        if lease.id is None:
            raise InvalidInput(
                f"{lease} belongs to a task",
                why="it is given back in the same act that ends the task",
                fix="say how it went with lease.ok(), .rate_limited(), .blocked() or .failed(), and return",
            )
        name = lease.id
        extending = self._extending.pop(name, None)
        if extending is not None:
            extending.cancel()
        end = await lease.uses.over(error)
        return await self.aask(lambda resources: resources.release(name, report, end))


async def _extend_forever(resources: ResourceClient, lease: str, hold: Span) -> None:
    while True:
        await asyncio.sleep(hold / SECOND / _EXTENSIONS)
        with suppress(StoreUnavailable):
            if await resources.extend(lease, hold) is None:
                return


def _terms(
    wait: Time | None, hold: Time | None, labels: Iterable[str], key: str | None, sticky: str | None = None
) -> LeaseTerms:
    return LeaseTerms(
        labels=(labels,) if isinstance(labels, str) else tuple(labels),
        sticky=sticky,
        key=key,
        wait=DEFAULT_WAIT if wait is None else span(wait, what="wait"),
        hold=None if hold is None else _holding(hold),
    )


def _plain(terms: LeaseTerms, pool: str) -> LeaseTerms:
    """The terms themselves, if they need no handler."""
    if terms.sticky is not None or any("{" in label for label in terms.labels):
        raise InvalidInput(
            f"this lease of {pool} works only as a handler's parameter",
            why="sticky= and labels in braces name parameters of the handler",
            fix="in a `with`, pass the values themselves: key=…, labels=(…)",
        )
    return terms


def _outcome(word: ResourceOutcome | str) -> ResourceOutcome:
    try:
        return ResourceOutcome(word)
    except ValueError as error:
        raise InvalidInput(
            f"{word!r:.60} is not an outcome of a resource",
            why=f"the outcomes are {', '.join(ResourceOutcome)}",
            fix="use one of them",
        ) from error


def _holding(hold: Time) -> Span:
    length = span(hold, what="hold")
    if length < SECOND:
        raise InvalidInput(
            f"hold={hold!r:.60} is too short", why="a lease is held for at least one second", fix='write it like "10m"'
        )
    return length
