"""`pitboss resources test`: connects to members, or fetches a page through each."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pitboss.cli.command import JsonOption, StoreOption, ask, screen_of, store_app
from pitboss.cli.errors import Exit
from pitboss.cli.progress import counting
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import InvalidInput, PitbossError
from pitboss.model.resource import Leased, Resource
from pitboss.model.text import one_line
from pitboss.operate.resources import find_members, find_resource_pool

if TYPE_CHECKING:
    from pitboss.app import App
    from pitboss.client.lease import Lease

_COLUMNS = (
    Column("Name", fills=True),
    Column("Result"),
    Column("Latency", right=True),
    Column("Status", right=True),
    Column("Address"),
    Column("Error"),
)
_MOST_AT_ONCE = 200
_BYTES_READ = 2048
_FIRST_ERROR_STATUS = 400


class MemberResult(NamedTuple):
    """The result for one member. `address` is the one that the tested page saw."""

    name: str
    ok: bool
    seconds: float | None = None
    status: int | None = None
    address: str | None = None
    error: str | None = None


def check_members(
    context: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The resource pool.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these members.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Fetch this through each member; best a page that shows the caller's address."
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Time limit for each member.")] = "10s",
    at_once: Annotated[
        int, typer.Option("--concurrency", min=1, max=_MOST_AT_ONCE, help="How many members at the same time.")
    ] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test members now: connect to each, or fetch a page through it.

    \b
    Examples:
      pitboss resources test proxies
      pitboss resources test proxies p1 --url https://api.ipify.org --timeout 5s

    Tests members in any condition. A test is not counted as a use and changes no member. Exits with 1 if one failed.
    """
    screen = screen_of(context)
    limit = span(timeout, what="--timeout") / SECOND
    if limit <= 0:
        raise InvalidInput("--timeout needs a time above 0", why="it was 0", fix="say --timeout 10s")
    page = None if url is None else _page(url)
    members = find_members(ask(screen, store, lambda opened: find_resource_pool(opened, pool)), names or None)
    with store_app(screen, store) as app, counting(screen, "Test", len(members)) as done:
        results = asyncio.run(_all_checked(app, members, page, limit, at_once, done))
    if as_json:
        screen.document({"pool": pool, "url": url, "members": [one._asdict() for one in results]})
    else:
        _draw(screen, results)
    if not all(one.ok for one in results):
        raise typer.Exit(Exit.FAILED)


def _page(url: str) -> "Page":
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"{url!r:.60} cannot be fetched", why="--url begins with http:// or https://", fix="write the whole URL"
        )
    return Page(url)


async def _all_checked(
    app: "App",
    members: Sequence[Resource],
    page: "Page | None",
    limit: float,
    at_once: int,
    done: Callable[[int], None],
) -> list[MemberResult]:
    """The results, in the order of the members."""
    slots = asyncio.Semaphore(at_once)
    ended = 0

    async def one(member: Resource) -> MemberResult:
        nonlocal ended
        async with slots:
            found = await _checked(app, member, page, limit)
        ended += 1
        done(ended)
        return found

    return list(await asyncio.gather(*(one(member) for member in members)))


async def _checked(app: "App", member: Resource, page: "Page | None", limit: float) -> MemberResult:
    """Every failure becomes the member's result, without its secrets."""
    try:
        lease = _lease(app, member)
        async with asyncio.timeout(limit):
            return await (_connected(lease) if page is None else page.fetched(lease, limit))
    except TimeoutError:
        return MemberResult(member.name, ok=False, error=f"no answer within {limit:g} s")
    except PitbossError as error:
        return MemberResult(member.name, ok=False, error=app.redactor.hidden(error.what))
    except Exception as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return MemberResult(member.name, ok=False, error=one_line(app.redactor.hidden(told)))


def _lease(app: "App", member: Resource) -> "Lease":
    """The member as a handler gets it, but not leased in the store."""
    known = app.resource_pools.get(member.pool) or app.resources(member.pool)
    leased = Leased(pool=member.pool, name=member.name, fields=member.fields, secrets=member.secrets)
    return known.lent(leased, "", None)


async def _connected(lease: "Lease") -> MemberResult:
    from urllib.parse import urlsplit

    parts = urlsplit(lease.url)
    began = time.monotonic()
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    took = time.monotonic() - began
    writer.close()
    return MemberResult(lease.name, ok=True, seconds=took)


class Page:
    """A page that is fetched through members. The TLS context is made once, outside the measured time."""

    def __init__(self, url: str) -> None:
        import httpx

        self._url, self._client, self._tls = url, httpx.AsyncClient, httpx.create_ssl_context()

    async def fetched(self, lease: "Lease", limit: float) -> MemberResult:
        options: dict[str, Any] = {"timeout": limit, "trust_env": False, "verify": self._tls}
        async with self._client(proxy=lease.url, **options) as client:
            began = time.monotonic()
            async with client.stream("GET", self._url) as got:
                body = b""
                async for part in got.aiter_bytes():
                    body += part
                    if len(body) >= _BYTES_READ:
                        break
            took, status = time.monotonic() - began, got.status_code
        ok = status < _FIRST_ERROR_STATUS
        error = None if ok else f"{status} {got.reason_phrase}".strip()
        address = _address(body[:_BYTES_READ].decode("utf-8", "replace"))
        return MemberResult(lease.name, ok=ok, seconds=took, status=status, address=address, error=error)


def _address(body: str) -> str | None:
    """The first IP address in the page."""
    import ipaddress
    import re

    for word in re.findall(r"[0-9A-Fa-f:.]{3,45}", body):
        try:
            return str(ipaddress.ip_address(word.strip(".")))
        except ValueError:
            continue
    return None


def _draw(screen: Screen, results: Sequence[MemberResult]) -> None:
    if not results:
        screen.note("there are no members to test")
        return
    screen.table(_COLUMNS, [_row(one) for one in results])
    good = sum(one.ok for one in results)
    screen.note(f"{good} of {len(results)} can be used")


def _row(one: MemberResult) -> list[str]:
    latency = "" if one.seconds is None else f"{one.seconds * 1000:.0f}ms"
    return [one.name, "ok" if one.ok else "failed", latency, str(one.status or ""), one.address or "", one.error or ""]
