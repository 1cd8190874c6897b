"""Tries members of a pool: connects to each, or fetches a page through it. Loaded only by the command that does it."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pitboss.cli.screen import Screen
from pitboss.cli.words import one_line
from pitboss.model.errors import InvalidInput, PitbossError
from pitboss.model.resource import Leased, Resource

if TYPE_CHECKING:
    from pitboss.app import App
    from pitboss.client.lease import Lease

_LOOKED_AT = 2048
_WELL = 400


class Tried(NamedTuple):
    """What a test of one member came to. `address` is what the far side says it was asked from."""

    name: str
    ok: bool
    seconds: float | None = None
    status: int | None = None
    address: str | None = None
    error: str | None = None


def page_of(url: str) -> "Page":
    """The page that is to be fetched."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"{url!r:.60} cannot be fetched", why="--url begins with http:// or https://", fix="write the whole URL"
        )
    return Page(url)


async def all_tried(
    screen: Screen, app: "App", members: Sequence[Resource], page: "Page | None", limit: float, at_once: int
) -> list[Tried]:
    """What came of each, in their order."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    room = asyncio.Semaphore(at_once)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal) as bar:
        shown = bar.add_task("Test", total=len(members))

        async def one(member: Resource) -> Tried:
            async with room:
                found = await _tried(app, member, page, limit)
            bar.update(shown, advance=1)
            return found

        return list(await asyncio.gather(*(one(member) for member in members)))


async def _tried(app: "App", member: Resource, page: "Page | None", limit: float) -> Tried:
    """Whatever goes wrong is the member's result, and says nothing of its secrets."""
    try:
        lease = _lease(app, member)
        async with asyncio.timeout(limit):
            return await (_connected(lease) if page is None else page.fetched(lease, limit))
    except TimeoutError:
        return Tried(member.name, ok=False, error=f"no answer within {limit:g} s")
    except PitbossError as error:
        return Tried(member.name, ok=False, error=app.redactor.hidden(error.what))
    except Exception as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Tried(member.name, ok=False, error=one_line(app.redactor.hidden(told)))


def _lease(app: "App", member: Resource) -> "Lease":
    """The member as a handler has it, but held by nobody."""
    known = app.resource_pools.get(member.pool) or app.resources(member.pool)
    leased = Leased(pool=member.pool, name=member.name, fields=member.fields, secrets=member.secrets)
    return known.lent(leased, "", None)


async def _connected(lease: "Lease") -> Tried:
    from urllib.parse import urlsplit

    parts = urlsplit(lease.url)
    began = time.monotonic()
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    took = time.monotonic() - began
    writer.close()
    return Tried(lease.name, ok=True, seconds=took)


class Page:
    """A page that is fetched through members. What all requests share is made once, and not measured."""

    def __init__(self, url: str) -> None:
        import httpx

        self._url, self._client, self._tls = url, httpx.AsyncClient, httpx.create_ssl_context()

    async def fetched(self, lease: "Lease", limit: float) -> Tried:
        options: dict[str, Any] = {"timeout": limit, "trust_env": False, "verify": self._tls}
        async with self._client(proxy=lease.url, **options) as client:
            began = time.monotonic()
            async with client.stream("GET", self._url) as got:
                body = b""
                async for part in got.aiter_bytes():
                    body += part
                    if len(body) >= _LOOKED_AT:
                        break
            took, status = time.monotonic() - began, got.status_code
        ok = status < _WELL
        error = None if ok else f"{status} {got.reason_phrase}".strip()
        address = _address(body[:_LOOKED_AT].decode("utf-8", "replace"))
        return Tried(lease.name, ok=ok, seconds=took, status=status, address=address, error=error)


def _address(body: str) -> str | None:
    """The first thing in the answer that is an address."""
    import ipaddress
    import re

    for word in re.findall(r"[0-9A-Fa-f:.]{3,45}", body):
        try:
            return str(ipaddress.ip_address(word.strip(".")))
        except ValueError:
            continue
    return None
