"""A member of a resource pool in a handler's hand: what it is, its secrets, and what is said about it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND, Moment, Span, Time, span
from pitboss.model.errors import InvalidInput
from pitboss.model.ids import TaskId
from pitboss.model.resource import Leased, Report, ResourceOutcome
from pitboss.model.task import Token

T = TypeVar("T")
_STORE_LIMIT = 15.0
_USER_NAMES = ("user", "username", "login")
DEFAULT_WAIT: Span = 60 * SECOND


class Home(Protocol):
    """The pool that a lease is of, as the lease needs it."""

    name: str

    def opened(self, leased: Leased, secret: str) -> str:
        """The secret in the clear; from now on it is masked in errors and logs."""

    def masked_pair(self, user: str, password: str) -> None:
        """Have the two masked from now on as they travel in the header of basic authentication."""

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, T]], *, limit: float, what: str) -> T: ...

    async def aask(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T: ...

    def give_back(self, lease: "Lease", error: BaseException | None) -> None: ...

    async def agive_back(self, lease: "Lease", error: BaseException | None) -> None: ...

    async def arenew(self, lease: "Lease") -> None: ...


class Lease:
    """One member, held by a task or for a time. Its fields are open; its secrets are opened one by one, by name.

    What came of it is told by `ok`, `rate_limited`, `blocked` and `failed`, of which the last one counts. Without a
    word, a handler that returns says "ok", and one that raises is judged by its exception. `destination` names whom it
    was used on, so that failures of that one are not blamed on the member.
    """

    def __init__(self, home: Home, leased: Leased, holder: Token | str, task: TaskId | None = None) -> None:
        self._home, self._leased, self._holder, self._task = home, leased, holder, task
        self._fields: dict[str, Any] = from_json(leased.fields)
        self.destination: str | None = None
        self.verdict: Report | None = None

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
        """As the store gave it, with its secrets sealed."""
        return self._leased

    @property
    def id(self) -> str | None:
        """The lease's own name, if no task holds it."""
        return self._leased.lease

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
        return self._home.opened(self._leased, name)

    @property
    def url(self) -> str:
        """Scheme, credentials, host and port in one, as HTTP clients take a proxy."""
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
            self._home.masked_pair(user or "", password)
        told = quote(str(user or ""), safe="")
        return f"{told}@" if password is None else f"{told}:{quote(password, safe='')}@"

    def _one_of(self, names: tuple[str, ...]) -> str | None:
        for name in names:
            if name in self._fields:
                return str(self._fields[name])
            if name in self._leased.secrets:
                return self.secret(name)
        return None

    # One more use.

    async def use(self, wait: Time | None = None) -> Moment:
        """Before each further request: waits until the member's limits allow it, and counts it. The store's time.

        `wait` is how long at most (one minute by default). After that it raises `BudgetSpent`, a `TimedOutWaiting`; a
        handler that lets it pass hands its task on to another member, at no attempt.
        """
        return await self._home.aask(self._using(_waiting(wait)))

    def use_sync(self, wait: Time | None = None) -> Moment:
        """As `use`, for handlers that are plain functions."""
        limit = _waiting(wait)
        return self._home.ask(self._using(limit), limit=limit / SECOND + _STORE_LIMIT, what="waiting for the resource")

    def _using(self, wait: Span) -> Callable[[Any], Coroutine[Any, Any, Moment]]:
        return lambda desk: desk.use(self._holder, self._task, wait=wait, guard=self._leased.guard)

    async def use_from_now(self, wait: Time) -> Moment:
        """The use that came with the lease, and has not been made yet, counts from now on. For who runs handlers."""
        limit, leased = _waiting(wait), self._leased
        terms: dict[str, Any] = {"wait": limit, "guard": leased.guard, "instead": leased.leased_at}
        return await self._home.aask(lambda desk: desk.use(self._holder, self._task, **terms))

    async def renew(self) -> None:
        """Make the secrets that have a hook (`@pool.session`) anew, now: the far side has refused those that it has.

        Whoever else meanwhile made them is not made to wait for a second time; what was made is kept for later uses.
        """
        await self._home.arenew(self)

    # What came of it.

    def ok(self) -> None:
        """It works."""
        self._tell(Report(outcome=ResourceOutcome.OK))

    def rate_limited(self, retry_after: Time | None = None) -> None:
        """The far side asks for a pause, of this length if it says so."""
        pause = None if retry_after is None else span(retry_after, what="retry_after")
        self._tell(Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=pause))

    def blocked(self, why: str = "") -> None:
        """The far side refuses it."""
        self._tell(Report(outcome=ResourceOutcome.BLOCKED, error=why or None))

    def failed(self, why: str = "") -> None:
        """It does not work."""
        self._tell(Report(outcome=ResourceOutcome.RESOURCE_ERROR, error=why or None))

    def _tell(self, report: Report) -> None:
        self.verdict = report

    # Held for a time, without a task.

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.give_back(self, error)

    async def __aenter__(self) -> "Lease":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._home.agive_back(self, error)

    def renewed(self, leased: Leased) -> None:
        """Its secrets were made anew."""
        self._leased = leased


class Asking(Home, Protocol):
    """The pool as an unfulfilled lease needs it."""

    def held(self, asked: "Asked") -> Lease: ...

    async def aheld(self, asked: "Asked") -> Lease: ...


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What `pool.lease(…)` was asked for. Labels may name parameters of the handler in braces."""

    labels: tuple[str, ...] = ()
    sticky: str | None = None
    key: str | None = None
    wait: Span = DEFAULT_WAIT
    hold: Span | None = None


class Asked(Lease):
    """A lease that is asked for and not yet held: a parameter's default, or what `with` turns into a held one."""

    def __init__(self, asking: Asking, terms: Terms) -> None:
        self._asking, self.terms = asking, terms
        # One of these may be entered by several threads and coroutines at a time; each leaves what it entered.
        self._held: dict[tuple[int, int], list[Lease]] = {}

    @property
    def source(self) -> Asking:
        """The pool that it asks."""
        return self._asking

    def __repr__(self) -> str:
        return f"<a lease of {self._asking.name}, not yet held>"

    def __getattr__(self, name: str) -> Any:
        # Only what a held lease has and this one lacks comes here.
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unheld()

    def __enter__(self) -> Lease:
        lease = self._asking.held(self)
        self._held.setdefault(_here(), []).append(lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asking.give_back(self._last(), error)

    async def __aenter__(self) -> Lease:
        lease = await self._asking.aheld(self)
        self._held.setdefault(_here(), []).append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._asking.agive_back(self._last(), error)

    def _tell(self, report: Report) -> None:
        raise self._unheld()

    def _last(self) -> Lease:
        held = self._held[_here()]
        lease = held.pop()
        if not held:
            del self._held[_here()]
        return lease

    def _unheld(self) -> InvalidInput:
        return InvalidInput(
            f"this lease of {self._asking.name} is only asked for, not held",
            why="a worker puts the real one in its place when it runs the task; a plain call has none",
            fix=f"call it within: with {self._asking.name}.lease() as lease: … and hand that one over",
        )


def _here() -> tuple[int, int]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)


def _waiting(wait: Time | None) -> Span:
    return DEFAULT_WAIT if wait is None else span(wait, what="wait")
