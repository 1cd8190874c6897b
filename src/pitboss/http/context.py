"""What the routes work with: one server, and one call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib import metadata
from typing import Any, NamedTuple

from pitboss.client.client import Client
from pitboss.client.events import EventClient
from pitboss.dispatch.remote_claims import RemoteClaims
from pitboss.dispatch.remote_reports import RemoteReports
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import FullStore
from pitboss.http.known_keys import KnownKeys
from pitboss.http.store_watch import StoreWatch
from pitboss.model.access import AuditEntry, Role
from pitboss.model.canonical import to_json
from pitboss.model.ids import TaskId
from pitboss.model.session import SessionInfo
from pitboss.operate.metrics import MetricsReader
from pitboss.operate.remote_workers import RemoteWorkers
from pitboss.operate.task_types import TaskTypes
from pitboss.operate.undo import undoable, with_before
from pitboss.telemetry.exposition import Exposition


class Caller(NamedTuple):
    """Who asks: the name of the key, what it may do, and the address it asks from."""

    name: str
    roles: frozenset[Role]
    address: str


class RecentKeys:
    """The newest keys with their values."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._values: dict[str, str] = {}

    def setdefault(self, key: str, value: str) -> str:
        known = self._values.setdefault(key, value)
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return known


class Server:
    """The parts of one server process."""

    def __init__(
        self,
        store: FullStore,
        *,
        info: SessionInfo,
        make_id: Callable[[], TaskId],
        make_key_id: Callable[[], str],
        make_secret: Callable[[], str],
        luck: Callable[[], float],
        release: str = "",
        boot_id: str = "",
    ) -> None:
        self.store, self.clock, self.release, self.host = store, store.clock, release, info.host
        self.make_id, self.make_key_id, self.make_secret = make_id, make_key_id, make_secret
        self._host, self._boot_id = info.host, boot_id
        self.client = Client(store, store.clock)
        self.types = TaskTypes(store, store.clock.now)
        self.keys = KnownKeys(store)
        outages = capabilities(store).outages
        self.watch = StoreWatch(None if outages is None else outages.probe, lambda: self.keys.reading_since)
        self.keys.away = lambda: self.watch.error is not None
        self.claims = RemoteClaims(store, info, self._queues)
        self.reports = RemoteReports(store, self.types.policy, luck)
        self.workers = RemoteWorkers(store)
        self.metrics, self.exposition = MetricsReader(store, release or metadata.version("pitboss")), Exposition()
        # The bodies of recent claims by their Idempotency-Key.
        self.claim_keys = RecentKeys()
        # Streams of pages end when it is set.
        self.stopping = asyncio.Event()

    @cached_property
    def events(self) -> EventClient:
        """Publishing and the log of events; `Unsupported` if the store has none."""
        return EventClient(self.client, self.make_id)

    def is_here(self, info: SessionInfo) -> bool:
        """Whether this process runs on the same host, so that the files there can be read."""
        return (info.host, info.boot_id.partition("/")[0]) == (self._host, self._boot_id)

    async def start(self) -> None:
        await self.types.read()
        await self.keys.start()
        self.watch.start()
        await self.claims.start()

    async def stop(self) -> None:
        self.stopping.set()
        await self.claims.stop()
        await self.watch.stop()
        await self.keys.stop()

    def _queues(self) -> list[str]:
        return sorted({one.info.queue for one in self.types.remote})


class Call:
    """One request. `idempotency` is its Idempotency-Key; `watched`: `gone` can tell that the client has hung up.
    `by_hand`: a person did it on a page."""

    __slots__ = ("_receive", "by_hand", "caller", "idempotency", "path", "server", "undo")

    def __init__(
        self,
        server: Server,
        caller: Caller,
        *,
        path: str = "",
        idempotency: str | None = None,
        receive: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        by_hand: bool = False,
    ) -> None:
        self.server, self.caller, self.path, self.by_hand = server, caller, path, by_hand
        # The id of the act that was done, if it can be undone.
        self.undo = ""
        self.idempotency, self._receive = idempotency, receive

    @property
    def watched(self) -> bool:
        return self._receive is not None

    async def gone(self) -> None:
        """Returns when the client has hung up."""
        while self._receive is not None and (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def store(self) -> FullStore:
        return self.server.store

    @property
    def now(self) -> int:
        return self.server.clock.now()

    @property
    def by(self) -> str:
        """Who did it, as desired state and batches keep it."""
        return f"{self.caller.name} (http {self.caller.address})"

    def audited(self, act: str, target: str = "", details: Mapping[str, Any] | None = None) -> FullStore:
        """The store for an act of an operator: the audit log gets an entry in the same act."""
        return self.store.audited(self._entry(act, target, details))

    async def kept(self, act: str, target: str = "", details: Mapping[str, Any] | None = None) -> FullStore:
        """As `audited`, for an act that can be undone: the entry has what was before."""
        entry = await with_before(self.store, self._entry(act, target, details))
        self.undo = entry.id if undoable(entry) else ""
        return self.store.audited(entry)

    def _entry(self, act: str, target: str, details: Mapping[str, Any] | None) -> AuditEntry:
        return AuditEntry(
            id=self.server.make_id(),
            who=self.caller.name,
            act=act,
            target=target[:500],
            details=to_json(dict(details or {}), what="details"),
            source=f"http {self.caller.address}",
        )
