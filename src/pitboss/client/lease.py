"""A held member of a resource pool: its fields, its secrets, and what its holder says about it."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from http.cookiejar import CookieJar
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from pitboss.client.app_core import LIMIT
from pitboss.client.held_uses import HeldUses, caller
from pitboss.client.lease_browser import Browsing
from pitboss.client.resource_client import Grant
from pitboss.model.answers import Answers
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.resource import Leased, Report, ResourceOutcome, UseEnd
from pitboss.model.task import Token

if TYPE_CHECKING:
    import httpx

    from pitboss.client.resources import Resources

_USER_NAMES = ("user", "username", "login")
DEFAULT_WAIT: Span = 60 * SECOND


class Lease:
    """One member, held by a task or for a time. Its fields are open; its secrets are opened one by one, by name.

    Say how it went with `ok`, `rate_limited`, `blocked` or `failed`; the last call counts. Without one, a handler that
    returns says "ok", and a handler that raises is judged by its exception. `destination` names the site it was used
    on, so that the member is not blamed for failures of that site.
    """

    def __init__(self, pool: "Resources", leased: Leased, holder: Token | str, task: TaskId | None = None) -> None:
        self._pool, self._leased, self._holder, self._task = pool, leased, holder, task
        self._fields: dict[str, Any] = from_json(leased.fields)
        self.uses = HeldUses(pool, leased, holder, task)
        self.destination: str | None = None
        self.report: Report | None = None
        self.answers = Answers()
        self.cookies = CookieJar()

    def __repr__(self) -> str:
        secrets = f" (secrets: {', '.join(sorted(self._leased.secrets))})" if self._leased.secrets else ""
        return f"<Lease {self._leased.id}{secrets}>"

    @property
    def name(self) -> str:
        return self._leased.name

    @property
    def pool(self) -> str:
        return self._leased.pool

    @property
    def labels(self) -> tuple[str, ...]:
        return self._leased.labels

    @property
    def fields(self) -> Mapping[str, Any]:
        return self._fields

    @property
    def secret_names(self) -> tuple[str, ...]:
        return tuple(sorted(self._leased.secrets))

    @property
    def leased(self) -> Leased:
        """The lease as data, with its secrets sealed."""
        return self._leased

    @property
    def id(self) -> str | None:
        """The lease's own name, if no task holds it."""
        return self._leased.lease

    @property
    def has_address(self) -> bool:
        """Whether requests go through it: `url` is its address."""
        return "url" in self._fields or "host" in self._fields

    @property
    def verdict(self) -> Report | None:
        """What its holder said, else what the answers to requests through its clients say."""
        return self.report or self.answers.report()

    def __getitem__(self, field: str) -> Any:
        if field not in self._fields:
            raise KeyError(
                f"{self._leased.id} has no field {field!r}; its fields are {', '.join(self._fields) or 'none'}"
            )
        return self._fields[field]

    def get(self, field: str, default: Any = None) -> Any:
        return self._fields.get(field, default)

    def secret(self, name: str) -> str:
        """A secret in the clear. From now on it is masked in the errors and logs of this process."""
        if name not in self._leased.secrets:
            raise InvalidInput(
                f'{self._leased.id} has no secret "{name}"',
                why=f"it has {', '.join(self.secret_names) or 'none'}",
                fix="add the member with that secret, or declare a hook that makes it: @pool.session(name)",
            )
        return self._pool.opened(self._leased, name)

    @property
    def url(self) -> str:
        """Scheme, credentials, host and port as one URL, the form in which HTTP clients take a proxy."""
        parts = urlsplit(str(self._fields["url"])) if "url" in self._fields else None
        host = str((parts.hostname if parts else self._fields.get("host")) or "")
        if not host:
            raise InvalidInput(
                f"{self._leased.id} has no address",
                why="a URL is made of the field url, or of host, port and scheme",
                fix='add the member with fields={"host": …, "port": …}',
            )
        port = parts.port if parts else self._fields.get("port")
        netloc = self._credentials() + (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        scheme = parts.scheme if parts else str(self._fields.get("scheme", "http"))
        path, query = (parts.path, parts.query) if parts else ("", "")
        return str(urlunsplit((scheme, netloc, path, query, "")))

    def _credentials(self) -> str:
        user = self._one_of(_USER_NAMES)
        password = self.secret("password") if "password" in self._leased.secrets else None
        if user is None and password is None:
            return ""
        if password is not None:
            self._pool.masked_pair(user or "", password)
        name = quote(str(user or ""), safe="")
        return f"{name}@" if password is None else f"{name}:{quote(password, safe='')}@"

    def _one_of(self, names: tuple[str, ...]) -> str | None:
        for name in names:
            if name in self._fields:
                return str(self._fields[name])
            if name in self._leased.secrets:
                return self.secret(name)
        return None

    # Uses.

    async def use(self, wait: Time | None = None) -> Moment:
        """Call it before each further request: it waits until the member's limits allow one, and counts it.

        Send the request within `use_within` (ten seconds by default): the use before is over now, and this one lasts
        until the next call, the end of the handler, or that time. Returns the moment of the use, by the store's clock.
        After `wait` (one minute by default) it raises `BudgetSpent`, a `TimedOutWaiting`. If a handler does not catch
        that, its task goes to another member, at no attempt.
        """
        return (await self.uses.add(_waiting(wait), caller())).moment

    def use_sync(self, wait: Time | None = None) -> Moment:
        """As `use`, for handlers that are plain functions."""
        return self._sync(self.uses.add(_waiting(wait), caller()), wait).moment

    async def use_from_now(self, wait: Time | None = None) -> Moment:
        """The newest use (at first the one that came with the lease) was not made yet, and counts from now on.

        For a handler that works for long before its first request. Unlike `use`, it adds none.
        """
        return (await self.uses.from_now(_waiting(wait), caller())).moment

    def use_from_now_sync(self, wait: Time | None = None) -> Moment:
        """As `use_from_now`, for handlers that are plain functions."""
        return self._sync(self.uses.from_now(_waiting(wait), caller()), wait).moment

    # For clients that know when their request is sent.

    async def grant_request(self, wait: Time | None = None, unsent: Grant | None = None) -> Grant:
        """A use for a request that is sent at once: the first one moves the use that came with the lease to now.

        `unsent` was granted for this request before, and moves to now.
        """
        return await self.uses.for_request(_waiting(wait), caller(), unsent)

    def grant_request_sync(self, wait: Time | None = None, unsent: Grant | None = None) -> Grant:
        return self._sync(self.uses.for_request(_waiting(wait), caller(), unsent), wait)

    def request_sent(self, grant: Grant) -> None:
        """The request of that use has left now; safe to call from any thread."""
        self.uses.sent(grant)

    def request_answered(self, grant: Grant) -> None:
        """The far side has answered the request of that use: the use is over. Safe from any thread."""
        self.uses.answered(grant)

    def request_unanswered(self, grant: Grant) -> None:
        """No answer will come. The request may still arrive, so its use counts from the last possible moment."""
        self.uses.unanswered(grant)

    def use_end(self) -> UseEnd | None:
        """The end of its newest use, for the act that gives the member back. None if no use is open."""
        return self.uses.end

    def _sync(self, work: Coroutine[Any, Any, Grant], wait: Time | None) -> Grant:
        return self._pool.run(work, limit=_waiting(wait) / SECOND + LIMIT, what="waiting for the resource")

    async def renew(self) -> None:
        """Make the secrets that have a hook (`@pool.session`) anew, because the far side refused the present ones.

        If another task of this process did so since, its secrets are taken. New secrets are kept for later uses.
        """
        await self._pool.sessions.renew(self)

    # Clients that make each request a use.

    def http(self, *, wait: Time | None = None, **options: Any) -> "httpx.AsyncClient":
        """An httpx client through this member: each request is a use at the moment it is sent.

        A request waits for the member's limits, up to `wait` (a minute), and raises `BudgetSpent` after that, as `use`
        does. Answers come back unchanged, and Pitboss judges them. Connections are kept for later tasks. Cookies belong
        to this task; with `cookies="member"` all tasks of this process that hold the member share them. The other
        `options` are those of `httpx.AsyncClient`.
        """
        from pitboss.client.lease_http import async_client

        return async_client(self, self._pool.http_connections(), wait, options)

    def http_sync(self, *, wait: Time | None = None, **options: Any) -> "httpx.Client":
        """As `http`, for handlers that are plain functions."""
        from pitboss.client.lease_http import sync_client

        return sync_client(self, self._pool.http_connections(), wait, options)

    def browsing(self, target: Any, *, wait: Time | None = None) -> Browsing:
        """Make each navigation of a browser a use: `async with lease.browsing(page): await page.goto(…)`.

        `target` is a page or a context of Playwright, async or sync (then with `with`). Pitboss judges the answers to
        navigations. What a page loads by itself is no use. A navigation waits for the member's limits, up to `wait`
        (a minute); after that the browser says that it was blocked, and the task goes to another member.
        """
        return Browsing(self, target, wait)

    @property
    def browser_proxy(self) -> dict[str, str]:
        """Its address in the form that Playwright takes: `browser.new_context(proxy=lease.browser_proxy)`."""
        parts = urlsplit(self.url)
        found = {"server": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"}
        names = {"username": parts.username, "password": parts.password}
        return found | {name: unquote(value) for name, value in names.items() if value}

    # How it went.

    def ok(self) -> None:
        """It works."""
        self._say(Report(outcome=ResourceOutcome.OK))

    def rate_limited(self, retry_after: Time | None = None) -> None:
        """The far side asks for a pause, of `retry_after` if it says how long."""
        pause = None if retry_after is None else span(retry_after, what="retry_after")
        self._say(Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=pause))

    def blocked(self, why: str = "") -> None:
        """The far side refuses it."""
        self._say(Report(outcome=ResourceOutcome.BLOCKED, error=why or None))

    def failed(self, why: str = "") -> None:
        """It does not work."""
        self._say(Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=why or None))

    def _say(self, report: Report) -> None:
        self.report = report

    # Held for a time, without a task.

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self, error)

    async def __aenter__(self) -> "Lease":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.agive_back(self, error)

    def renewed(self, leased: Leased) -> None:
        """Take the new secrets."""
        self._leased = leased


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `pool.lease(…)`. Labels may name parameters of the handler in braces."""

    labels: tuple[str, ...] = ()
    sticky: str | None = None
    key: str | None = None
    wait: Span = DEFAULT_WAIT
    hold: Span | None = None


class UnheldLease(Lease):
    """A lease that is asked for and not yet held: a parameter's default, or what `with` turns into a held one."""

    def __init__(self, source: "Resources", terms: LeaseTerms) -> None:
        self.source, self.terms = source, terms
        # Several threads and coroutines may enter the same one; each leaves the lease that it entered.
        self._held: dict[tuple[int, int], list[Lease]] = {}

    def __repr__(self) -> str:
        return f"<a lease of {self.source.name}, not yet held>"

    def __getattr__(self, name: str) -> Any:
        # Reached only for attributes that a held lease has and this one lacks.
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unheld()

    def __enter__(self) -> Lease:
        lease = self.source.held(self.terms)
        self._held.setdefault(_here(), []).append(lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.give_back(self._last(), error)

    async def __aenter__(self) -> Lease:
        lease = await self.source.aheld(self.terms)
        self._held.setdefault(_here(), []).append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.source.agive_back(self._last(), error)

    def _say(self, report: Report) -> None:
        raise self._unheld()

    def _last(self) -> Lease:
        held = self._held[_here()]
        lease = held.pop()
        if not held:
            del self._held[_here()]
        return lease

    def _unheld(self) -> InvalidInput:
        return InvalidInput(
            f"this lease of {self.source.name} is only asked for, not held",
            why="a worker puts a held one in its place when it runs the task; a plain call has none",
            fix=f"acquire one and pass it: with {self.source.name}.lease() as lease: …",
        )


def _here() -> tuple[int, int]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)


def _waiting(wait: Time | None) -> Span:
    return DEFAULT_WAIT if wait is None else span(wait, what="wait")
