"""What changed, told to the pages that are open: one look for all of them, and none while no page is."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from pitboss.engines.capabilities import capabilities, happenings_of
from pitboss.engines.protocol import FullStore
from pitboss.http.context import Server
from pitboss.model.batch import OVER, BatchStatus
from pitboss.model.errors import PitbossError
from pitboss.model.operation import OperationStatus

_EVERY_SECONDS = 1.0
# These change rarely, or cost more to look at.
_SELDOM = 5
_ALIVE_SECONDS = 15.0
MOST_STREAMS = 200
_SHOWN = 100
_UNFINISHED = tuple(one for one in BatchStatus if one not in OVER)
# What a page can show (`pages.Page.topics`). The store itself is one: it was away, or is back.
TOPICS = frozenset(
    {
        "acts",
        "batches",
        "happenings",
        "operations",
        "queues",
        "resources",
        "schedules",
        "store",
        "wishes",
        "workers",
    }
)
_log = logging.getLogger("pitboss.http")
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


class Live:
    """`streams` are open, and wait for topics. The look begins with the first and ends with the last."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: set[asyncio.Queue[frozenset[str]]] = set()
        # Those that no look has reached yet.
        self._new: set[asyncio.Queue[frozenset[str]]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._seen: dict[str, bytes] = {}

    @property
    def full(self) -> bool:
        return len(self._streams) >= MOST_STREAMS

    @property
    def open(self) -> int:
        return len(self._streams)

    async def stream(self, allowed: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        """Server-sent events: `changed` with topics. Ends with the server, or when the caller is not `allowed`.

        It begins with all topics, after the first look: what changed between the reading of a page and that look, or
        while no tab of the browser listened, is told to no one else."""
        waiting: asyncio.Queue[frozenset[str]] = asyncio.Queue(1)
        self._streams.add(waiting)
        self._new.add(waiting)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_forever())
        stopping = asyncio.create_task(self._server.stopping.wait())
        try:
            # The headers must leave now, and with them something that proxies pass on.
            yield b": \n\n"
            while not stopping.done():
                topics = await self._next(waiting, stopping)
                if not await allowed():
                    return
                yield b": \n\n" if topics is None else f"event: changed\ndata: {' '.join(sorted(topics))}\n\n".encode()
        finally:
            stopping.cancel()
            self._streams.discard(waiting)
            self._new.discard(waiting)
            if not self._streams and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _next(
        self, waiting: "asyncio.Queue[frozenset[str]]", stopping: "asyncio.Task[Any]"
    ) -> frozenset[str] | None:
        """The topics that changed; None if nothing did for a while."""
        getting = asyncio.create_task(waiting.get())
        try:
            await asyncio.wait({getting, stopping}, timeout=_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()

    async def _look_forever(self) -> None:
        turn = 0
        while True:
            new = frozenset(self._new)
            try:
                changed = await self._changed(turn)
            except PitbossError:
                # The store is away: pages show that when they are read again.
                changed, self._seen = frozenset({"store"}) if self._seen else frozenset(), {}
            except Exception:
                _log.exception("cannot look what changed for the pages that are open")
                changed = frozenset()
            self._tell(self._streams, changed)
            self._tell(self._new & new, TOPICS)
            self._new -= new
            turn += 1
            await asyncio.sleep(_EVERY_SECONDS)

    def _tell(self, streams: Iterable[asyncio.Queue[frozenset[str]]], changed: frozenset[str]) -> None:
        for one in streams if changed else ():
            # A slow browser gets all that changed since, at once.
            before: frozenset[str] = frozenset()
            with suppress(asyncio.QueueEmpty):
                before = one.get_nowait()
            one.put_nowait(before | changed)

    async def _changed(self, turn: int) -> frozenset[str]:
        found = {name: _digest(value) for name, value in (await _read(self._server.store, turn)).items()}
        changed = frozenset(name for name, digest in found.items() if self._seen.get(name, digest) != digest)
        self._seen |= found
        return changed


async def _read(store: FullStore, turn: int) -> dict[str, Any]:
    """What each topic looks like now, as far as it is cheap to tell."""
    has = capabilities(store)
    sessions = [(one.number, one.ended, one.snapshot) for one in await store.sessions()]
    found: dict[str, Any] = {"queues": await store.queues(), "workers": sessions, "wishes": await store.wishes()}
    if has.operations is not None:
        found["operations"] = await has.operations.operations(statuses=[OperationStatus.RUNNING], limit=_SHOWN)
    if has.batches is not None:
        found["batches"] = await has.batches.batches(statuses=_UNFINISHED, limit=_SHOWN)
    if has.resources is not None:
        found["resources"] = await has.resources.resource_pools()
    if turn % _SELDOM == 0:
        found["happenings"] = [one.id for one in await happenings_of(store).happenings(limit=1)]
        found["acts"] = [one.id for one in await store.audit_log(limit=1)]
        found["schedules"] = [(one.name, one.version, one.next_at) for one in await store.schedules(limit=_SHOWN)]
    return found


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encode(value), digest_size=8).digest()
