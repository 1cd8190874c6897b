"""The SQLite engine: every protocol, as one request to the writer or to a reader."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Self, TypeVar, cast

from pitboss.engines.protocol import MOST_READ, Clock, Page
from pitboss.engines.sqlite import (
    access,
    batches,
    claim,
    control,
    diagnosis,
    leases,
    maintenance,
    reclaim,
    registry,
    resource_pools,
    schema,
    settle,
    usage,
)
from pitboss.engines.sqlite.act import Act
from pitboss.engines.sqlite.alerts import AlertVerbs
from pitboss.engines.sqlite.declared_verbs import DeclaredVerbs
from pitboss.engines.sqlite.faults import Trouble, translated
from pitboss.engines.sqlite.figures import FigureVerbs
from pitboss.engines.sqlite.happenings import HappeningVerbs
from pitboss.engines.sqlite.open_store import upgrade
from pitboss.engines.sqlite.operations import OperationVerbs
from pitboss.engines.sqlite.partitions import PartitionVerbs
from pitboss.engines.sqlite.put import put
from pitboss.engines.sqlite.writer import Job
from pitboss.model.access import ApiKey, AuditEntry, Remembered
from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.duration import Moment, Span
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.finding import Finding
from pitboss.model.host_findings import clock_step
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.resource import (
    Declaration,
    KeyValue,
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourcePool,
    Shortage,
    UseEnd,
    Want,
)
from pitboss.model.session import Claimed, ClaimRequest, Lead, Reclaimed, Renewal, Session, SessionInfo
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.task import Attempt, NewTask, Placed, Task, TaskChange, Token
from pitboss.model.usage import StoreUsage

T = TypeVar("T")
# A million held tasks are released in many short transactions, so that other writers get in between.
_RELEASED_AT_ONCE = 2000


class SqliteEngine(DeclaredVerbs, PartitionVerbs, AlertVerbs, OperationVerbs, FigureVerbs, HappeningVerbs):
    """A store in one file, shared by every process that opens it. Usable from any thread and any event loop.

    Beside the file is a folder of the same name with `-pitboss` appended: the lock of the writers and the doorbells.
    """

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        return cast("list[Placed]", await self._awaited(Job.putting(tasks)))

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._opened_here()
        self._doorbell.listen()
        weight = sum(slot.free + slot.ahead for slot in request.slots)
        return (await self._write("claim", lambda act: claim.claim(act, request), weight)).claimed()

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        return await self._write("renew", lambda act: registry.renew(act, session, snapshot))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        plain = settle.plain(settlements)
        return await self._write("settle", lambda act: settle.settle(act, settlements, plain), len(settlements))

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        return await self._write("reclaim", lambda act: reclaim.reclaim(act, limit), limit)

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        self._opened_here()
        return await self._doorbell.wait(queues, timeout)

    def put_sync(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """`put` from a plain thread, without an event loop in between."""
        return cast("list[Placed]", self._waited(Job.putting(tasks)))

    def run_sync(self, name: str, call: Callable[[Act], T], weight: int = 1) -> T:
        """One write request from a plain thread; returns after the commit."""
        return cast("T", self._waited(Job(name, call, weight)))

    def put_within(self, connection: sqlite3.Connection, tasks: Sequence[NewTask]) -> list[Placed]:
        """As `put`, inside the transaction that is open on the caller's connection. Rings nothing: the tasks cannot be
        found before the caller's commit. Call `ring` after it, or leave it to the poll."""
        return self._within(connection, lambda act: put(act, tasks))

    def ring(self, queues: Iterable[str]) -> None:
        """Wake those that wait for these queues."""
        self._doorbell.ring(queues)

    async def open_session(self, info: SessionInfo) -> Session:
        session, released = await self._write(
            "open_session", lambda act: registry.open_session(act, info, _RELEASED_AT_ONCE)
        )
        if released == _RELEASED_AT_ONCE:
            known = {one.name for one in await self.handlers()}
            await self._release_rest(known.intersection(info.handlers))
        return session

    async def end_session(self, session: int) -> None:
        await self._write("end_session", lambda act: registry.end_session(act, session))

    async def sessions(self) -> list[Session]:
        return await self._read(lambda reader: reader.sessions())

    async def campaign(self, session: int) -> Lead:
        return await self._write("campaign", lambda act: registry.campaign(act, session))

    async def leader(self) -> Lead | None:
        return await self._read(lambda reader: reader.leader())

    async def resign(self, session: int) -> None:
        await self._write("resign", lambda act: registry.resign(act, session))

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._read(lambda reader: reader.get(ids))

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        oldest_first: bool = False,
        most: int = MOST_READ,
    ) -> Page:
        return await self._read(lambda reader: reader.ledger.find(wanted, limit, after, oldest_first, most))

    async def count(self, wanted: Filter, *, most: int = MOST_READ) -> Count:
        return await self._read(lambda reader: reader.ledger.count(wanted, most))

    async def failures(self, *, most: int = MOST_READ) -> list[FailureCount]:
        return await self._read(lambda reader: reader.ledger.failures(most))

    async def tasks_before(self, task: TaskId, *, limit: int = 20_000) -> int | None:
        return await self._read(lambda reader: reader.tasks_before(task, limit))

    async def attempts(self, task: TaskId) -> list[Attempt]:
        return await self._read(lambda reader: reader.attempts(task))

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        return await self._operate("cancel", lambda act: control.cancel(act, wanted, reason, limit))

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        return await self._operate("retry", lambda act: control.retry(act, wanted, keep_attempts, limit))

    async def change_tasks(self, wanted: Filter, change: TaskChange, *, limit: int = 1000) -> Changed:
        return await self._operate("change_tasks", lambda act: control.change_tasks(act, wanted, change, limit))

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        return await self._operate("prune", lambda act: control.prune(act, wanted, before, limit, term))

    async def queues(self) -> list[Queue]:
        return await self._read(lambda reader: reader.queues())

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._operate("change_queue", lambda act: registry.change_queue(act, name, change))

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        added = tuple(handlers)
        released = await self._operate("register", lambda act: registry.register(act, added, _RELEASED_AT_ONCE))
        if released == _RELEASED_AT_ONCE:
            await self._release_rest({one.name for one in added})

    async def handlers(self) -> list[HandlerInfo]:
        return await self._read(lambda reader: reader.handlers())

    async def forget(self, names: Iterable[str]) -> None:
        gone = tuple(names)
        await self._operate("forget", lambda act: registry.forget(act, gone))

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        return await self._operate("wish", lambda act: registry.wish(act, key, value, by))

    async def wishes(self, since: int = 0) -> list[Wish]:
        return await self._read(lambda reader: reader.wishes(since))

    async def declare_pool(
        self, name: str, rules: PoolRules | None, *, by: str | None = None, replace: bool = True
    ) -> Declaration | None:
        return await self._operate(
            "declare_pool", lambda act: resource_pools.declare(act, name, rules, by, replace=replace)
        )

    async def limit_pool(
        self, name: str, values: dict[str, KeyValue], *, by: str | None = None, reset: bool = False
    ) -> bool:
        return await self._operate("limit_pool", lambda act: resource_pools.limit(act, name, values, by, reset=reset))

    async def resource_pools(self) -> list[ResourcePool]:
        return await self._read(lambda reader: resource_pools.pools(reader.rows, reader.now))

    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        return await self._operate("add_resources", lambda act: resource_pools.add(act, pool, members), len(members))

    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        return await self._operate("change_resources", lambda act: resource_pools.change(act, pool, names, change))

    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        return await self._read(lambda reader: resource_pools.resources(reader.rows, pool, names, reader.now))

    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        return await self._write("acquire", lambda act: leases.acquire(act, pool, want, hold, lease))

    async def release(self, lease: str, report: Report | None, use_end: UseEnd | None = None) -> bool:
        return await self._write("release", lambda act: leases.release(act, lease, report, use_end))

    async def extend(self, lease: str, hold: Span) -> Moment | None:
        return await self._write("extend", lambda act: leases.extend(act, lease, hold))

    async def use(
        self,
        holder: Token | str,
        task: TaskId | None = None,
        *,
        instead: Moment | None = None,
        ends: UseEnd | None = None,
    ) -> Moment | Shortage:
        return await self._write("use", lambda act: leases.use(act, holder, task, instead, ends))

    async def end_use(self, holder: Token | str, task: TaskId | None, end: UseEnd) -> None:
        await self._write("end_use", lambda act: leases.end_use(act, holder, task, end))

    async def bound(self, pool: str, key: str) -> str | None:
        return await self._read(lambda reader: reader.bound(pool, key))

    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        return await self._write("create_batch", lambda act: batches.create(act, batch, items), len(items))

    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        return await self._operate("act_on_batch", lambda writing: batches.change(writing, batch, act, limit), limit)

    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        if ids is not None:
            return await self._read(lambda reader: batches.get(reader.rows, reader.now, ids))
        return await self._read(lambda reader: batches.find(reader.rows, reader.now, statuses, limit))

    async def lanes(self) -> list[Lane]:
        return await self._read(lambda reader: batches.lanes(reader.rows))

    async def change_lane(self, name: str, max_running: int) -> Lane:
        return await self._operate("change_lane", lambda act: batches.change_lane(act, name, max_running))

    def audited(self, entry: AuditEntry) -> Self:
        if self._entry is not None:
            return self
        audited = copy(self)
        audited._entry = entry
        return audited

    async def add_key(self, key: ApiKey) -> None:
        await self._operate("add_key", lambda act: access.add_key(act, key))

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        return await self._operate("revoke_key", lambda act: access.revoke_key(act, key_id))

    async def api_keys(self) -> list[ApiKey]:
        return await self._read(access.api_keys)

    async def audit_log(self, *, limit: int = 100, before: str | None = None) -> list[AuditEntry]:
        return await self._read(lambda reader: access.audit_log(reader, limit, before))

    async def remember(self, key: str, body: str, ids: Sequence[TaskId]) -> Remembered:
        return await self._write("remember", lambda act: access.remember(act, key, body, ids))

    def on_trouble(self, told: Trouble) -> None:
        self._told = told

    async def probe(self) -> None:
        """A write that changes no value still goes to the log, so that a full disk is found."""
        await self._write("probe", lambda act: act.query("UPDATE pitboss_meta SET value = value", ()))

    async def usage(self) -> StoreUsage:
        return await self._read(lambda reader: usage.usage(reader, self.path))

    async def refuse_new(self, reason: str | None, *, term: int) -> None:
        await self._write("refuse_new", lambda act: usage.refuse_new(act, reason, term))

    async def schema_version(self) -> tuple[int, int]:
        return await self._read(lambda reader: reader.schema_version()), schema.wanted_version()

    async def upgrade(self) -> list[str]:
        """Opening has upgraded the store already, so nothing is missing unless another process replaced the file."""
        return await asyncio.to_thread(upgrade, self.path, self._lock_timeout)

    async def diagnose(self, clock: Clock) -> list[Finding]:
        """Asks the writer, so that a store that cannot be written is found, too."""
        modes = await self._write("diagnose", diagnosis.modes)
        about_file = await asyncio.to_thread(diagnosis.of_file, self.path)
        return [diagnosis.of_modes(*modes), *about_file, clock_step(clock.wall() - self.clock.now())]

    async def check(self, *, seconds: float | None = None, full: bool = False, counts: bool = True) -> list[Finding]:
        differences = self._statements.by_name["maintenance_differences"] if counts else None
        return await asyncio.to_thread(maintenance.check, self.path, differences, seconds, full=full)

    async def recount(self) -> int:
        await self.open()
        return await self._write("recount", maintenance.recount)

    async def backup(self, to: Path, told: Callable[[int, int], None], *, salvage: bool = False) -> str:
        try:
            if salvage:
                recount = [self._statements.by_name[name] for name in maintenance.RECOUNT]
                return await asyncio.to_thread(maintenance.salvage_told, self.path, to, told, recount)
            return await asyncio.to_thread(maintenance.backup_checked, self.path, to, told)
        except BaseException as error:
            maintenance.remove(to)
            if isinstance(error, sqlite3.Error | OSError):
                raise translated(error, str(self.path)) from error
            raise

    async def _release_rest(self, handlers: set[str]) -> None:
        released = _RELEASED_AT_ONCE
        while released == _RELEASED_AT_ONCE:
            released = await self._write(
                "release_held", lambda act: registry.release_held(act, handlers, _RELEASED_AT_ONCE)
            )
