"""`pitboss resources test`: asks members whether they are proxies, or fetches a page through each."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pitboss.cli.command import JsonOption, StoreOption, ask, now, screen_of, store_app
from pitboss.cli.errors import Exit
from pitboss.cli.progress import counting
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import SECOND, Moment, span, spoken
from pitboss.model.errors import InvalidInput, PitbossError
from pitboss.model.resource import Condition, Leased, Resource
from pitboss.model.text import one_line
from pitboss.operate.resources import MemberReading, find_members, find_resource_pool, read_resource_pool

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from pitboss.app import App
    from pitboss.client.lease import Lease
    from pitboss.engines.protocol import Store

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
_PROXY_LOG_IN = 407
_SOCKS_VERSION = 5
# A name that no one can have (RFC 2606): a proxy answers that it cannot reach it, and no third party is contacted.
_NOWHERE = "pitboss.invalid:443"
_RESULTS = {True: "ok", False: "failed", None: "reachable"}


class MemberResult(NamedTuple):
    """The result for one member. `ok` None: it answers, and only a page can prove that it works. `address` is the one
    that the tested page saw."""

    name: str
    ok: bool | None
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
    """Test members now: ask each whether it is a proxy, or fetch a page through it.

    \b
    Examples:
      pitboss resources test proxies
      pitboss resources test proxies p1 --url https://api.ipify.org --timeout 5s

    Only --url proves that a member works. Without it a member that answers is "reachable", and one on the blacklist has
    failed. A test is not counted as a use and changes no member. Exits with 1 if one failed.
    """
    screen = screen_of(context)
    limit = span(timeout, what="--timeout") / SECOND
    if limit <= 0:
        raise InvalidInput("--timeout needs a time above 0", why="it was 0", fix="say --timeout 10s")
    page = None if url is None else _page(url)

    results = member_results(screen, store, pool, names, page, limit=limit, at_once=at_once)
    if as_json:
        screen.document({"pool": pool, "url": url, "members": [one._asdict() for one in results]})
    else:
        _draw(screen, results, proven=page is not None)
    if any(one.ok is False for one in results):
        raise typer.Exit(Exit.FAILED)


def member_results(
    screen: Screen,
    store: str | None,
    pool: str,
    names: Sequence[str] | None = None,
    page: "Page | None" = None,
    *,
    limit: float = 10.0,
    at_once: int = 10,
) -> list[MemberResult]:
    """The result for each member of the pool, or for those of these names."""

    async def read(opened: "Store") -> tuple[list[Resource], dict[str, MemberReading], Moment]:
        found, moment = find_members(await find_resource_pool(opened, pool), names or None), now(opened)
        readings = (await read_resource_pool(opened, pool, moment)).members
        return found, {one.member.name: one for one in readings}, moment

    members, readings, moment = ask(screen, store, read)
    with store_app(screen, store) as app, counting(screen, "Test", len(members)) as done:
        results = asyncio.run(_all_checked(app, members, page, limit, at_once, done))
    if page is None:
        results = [_recorded(result, readings.get(result.name), moment) for result in results]
    return results


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


def _recorded(result: MemberResult, reading: MemberReading | None, moment: Moment) -> MemberResult:
    """The result with what its uses have shown: an answer does not make up for failures of tasks."""
    if result.ok is False or reading is None:
        return result
    out = reading.condition is Condition.BLACKLISTED
    if not out and not reading.at_fault:
        return result
    left = "" if reading.until is None else f" for {spoken(reading.until - moment)}"
    where = f"on the blacklist{left}" if out else "at fault"
    return result._replace(ok=False, error=f"{where}: {reading.why or 'its tasks failed'}")


async def _connected(lease: "Lease") -> MemberResult:
    """Whether it answers as a proxy does."""
    from urllib.parse import urlsplit

    parts = urlsplit(lease.url)
    secure = parts.scheme == "https"
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=secure or None
    )
    try:
        asked = _socks_error if parts.scheme.startswith("socks") else _http_error
        error = await asked(reader, writer, parts)
    except (asyncio.IncompleteReadError, ConnectionError):
        error = "it closes the connection without an answer"
    finally:
        writer.close()
    took = None if error else time.monotonic() - began
    return MemberResult(lease.name, ok=False if error else None, seconds=took, error=error)


async def _http_error(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: "SplitResult") -> str | None:
    from base64 import b64encode

    lines = [f"CONNECT {_NOWHERE} HTTP/1.1", f"Host: {_NOWHERE}"]
    user, password = _log_in(parts)
    if user or password:
        lines.append(f"Proxy-Authorization: Basic {b64encode(f'{user}:{password}'.encode()).decode()}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    line = (await reader.readuntil(b"\n")).decode("latin-1").strip()
    version, _, rest = line.partition(" ")
    if not version.startswith("HTTP/"):
        return f"it does not answer in HTTP: {line[:40]!r}"
    return f"it refuses its user or password: {rest}" if rest.startswith(str(_PROXY_LOG_IN)) else None


async def _socks_error(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: "SplitResult") -> str | None:
    """The greeting of SOCKS 5 (RFC 1928), and the log-in by user and password (RFC 1929) if it asks for one."""
    writer.write(b"\x05\x02\x00\x02")
    version, method = await reader.readexactly(2)
    if version != _SOCKS_VERSION:
        return "it does not answer in SOCKS 5"
    if not method:
        return None
    user, password = (text.encode() for text in _log_in(parts))
    writer.write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
    return "it refuses its user or password" if (await reader.readexactly(2))[1] else None


def _log_in(parts: "SplitResult") -> tuple[str, str]:
    from urllib.parse import unquote

    return unquote(parts.username or ""), unquote(parts.password or "")


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


def _draw(screen: Screen, results: Sequence[MemberResult], *, proven: bool) -> None:
    if not results:
        screen.note("there are no members to test")
        return
    screen.table(_COLUMNS, [_row(one) for one in results])
    good = sum(one.ok is not False for one in results)
    if proven:
        screen.note(f"{good} of {len(results)} can be used")
    else:
        screen.note(
            f"{good} of {len(results)} are reachable; that does not prove that they work: "
            "--url URL fetches a page through each"
        )


def _row(one: MemberResult) -> list[str]:
    latency = "" if one.seconds is None else f"{one.seconds * 1000:.0f}ms"
    return [one.name, _RESULTS[one.ok], latency, str(one.status or ""), one.address or "", one.error or ""]
