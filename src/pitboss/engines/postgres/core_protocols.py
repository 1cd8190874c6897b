"""The small protocols: ledger, control, queues, handlers, desired, sessions, leader. The verbs are in `engine.py`."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pitboss.engines.postgres import control, declared, leader, ledger, reclaim, rows
from pitboss.engines.postgres.connections import Connections
from pitboss.engines.postgres.rows import known_id, names, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements, T
from pitboss.engines.postgres.server_clock import ServerClock
from pitboss.engines.protocol import MOST_READ, Clock, Page
from pitboss.model.access import AuditEntry
from pitboss.model.duration import Moment
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.model.task import Attempt, Task, TaskChange

_AT_ONCE = 1000


class CoreProtocols:
    """Reading and control. `writing` has steady plans; `reading` lets the server choose."""

    def __init__(self, sql: Statements, writing: Connections, reading: Connections, clock: ServerClock) -> None:
        self._sql, self._writing, self._reading, self._clock = sql, writing, reading, clock
        self.clock: Clock = clock
        # What an operator does through this engine, for the audit log.
        self._entry: AuditEntry | None = None

    def _now(self) -> Moment | None:
        """The injected clock's time; None leaves it to the server."""
        return self._clock.injected()

    def _reach(self, name: str) -> None:
        raise NotImplementedError

    async def _read(self, statement: str, /, **values: object) -> list[Row]:
        return await self._reading.call(lambda: _one(self._sql.ask(statement, self._now(), **values)))

    async def _write(self, statement: str, /, **values: object) -> list[Row]:
        return await self._writing.call(lambda: _one(self._sql.ask(statement, self._now(), **values)))

    async def _act(self, make: Callable[[Moment | None], Script[T]]) -> T:
        """An act of an operator, in one transaction."""
        now = self._now()
        return await self._reading.call(lambda: self._noted(make(now), now), transaction=True)

    async def _act_once(self, statement: str, /, **values: object) -> list[Row]:
        """As `_act`, for one statement, which needs no transaction of its own."""
        now = self._now()
        return await self._writing.call(
            lambda: self._noted(_one(self._sql.ask(statement, now, **values)), now),
            transaction=self._entry is not None,
        )

    def _noted(self, script: Script[T], now: Moment | None) -> Script[T]:
        """The script, which also stores the entry for the audit log. False says that it changed nothing."""
        answer = yield from script
        if self._entry is not None and answer is not False:
            yield self._sql.ask("audit_add", now, **msgspec.structs.asdict(self._entry)).unheard()
        return answer

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        found = {row[0]: rows.task(row) for row in await self._read("task_get", ids=texts([*filter(known_id, ids)]))}
        return [found.get(task) for task in ids]

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        oldest_first: bool = False,
        most: int = MOST_READ,
    ) -> Page:
        now = self._now()
        return await self._reading.call(lambda: ledger.find(self._sql, wanted, limit, after, oldest_first, most, now))

    async def count(self, wanted: Filter, *, most: int = MOST_READ) -> Count:
        now = self._now()
        return await self._reading.call(lambda: ledger.count(self._sql, wanted, most, now))

    async def failures(self, *, most: int = MOST_READ) -> list[FailureCount]:
        return await self._reading.call(lambda: ledger.failures(self._sql, most))

    async def tasks_before(self, task: TaskId, *, limit: int = 20_000) -> int | None:
        rows = await self._read("task_before", id=task, limit=limit) if known_id(task) else []
        found: int | None = rows[0][0] if rows else None
        return found

    async def attempts(self, task: TaskId) -> list[Attempt]:
        return [rows.attempt(row) for row in await self._read("attempt_list", task=task)] if known_id(task) else []

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        return await self._act(lambda now: control.cancel(self._sql, wanted, reason, limit, now))

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        return await self._act(lambda now: control.retry(self._sql, wanted, keep_attempts, limit, now))

    async def change_tasks(self, wanted: Filter, change: TaskChange, *, limit: int = 1000) -> Changed:
        return await self._act(lambda now: control.change_tasks(self._sql, wanted, change, limit, now))

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        return await self._act(lambda now: control.prune(self._sql, wanted, before, limit, now, term))

    async def queues(self) -> list[Queue]:
        return [rows.queue(row) for row in await self._read("queue_list", name=None)]

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        await self._act(lambda now: declared.change_queue(self._sql, name, change, now))
        (row,) = await self._read("queue_list", name=name)
        return rows.queue(row)

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        added = list({handler.name: handler for handler in handlers}.values())
        if not added and self._entry is None:
            return
        now = self._now()
        await self._writing.call(lambda: self._noted(control.register(self._sql, added, now), now), transaction=True)
        await self._release([handler.name for handler in added])

    async def handlers(self) -> list[HandlerInfo]:
        return [rows.handler(row) for row in await self._read("handler_list")]

    async def forget(self, names_: Iterable[str]) -> None:
        await self._act_once("handler_remove", names=names(names_))

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        ((version,),) = await self._act_once("wish_set", key=key, value=value, by=by)
        await self._write("server_notify", payload="*")
        found: int = version
        return found

    async def wishes(self, since: int = 0) -> list[Wish]:
        return [
            Wish(key=key, value=value, version=version, by=by)
            for key, value, version, by in await self._read("wish_list", since=since)
        ]

    async def open_session(self, info: SessionInfo) -> Session:
        ((number, opened_at, expires_at),) = await self._write(
            "session_open",
            host=info.host,
            boot_id=info.boot_id,
            pid=info.pid,
            kind=info.kind,
            handlers=texts(info.handlers),
            ttl=info.ttl,
        )
        await self._release(info.handlers)
        return Session(number=number, info=info, opened_at=opened_at, expires_at=expires_at)

    async def end_session(self, session: int) -> None:
        await self._write("session_end", session=session)

    async def sessions(self) -> list[Session]:
        return [rows.session_of(row) for row in await self._read("session_list")]

    async def campaign(self, session: int) -> Lead:
        self._reach("campaign.before")
        now = self._now()
        # Usually there is a leader, and asking then locks nothing.
        found = await self._writing.call(lambda: leader.found(self._sql, now, session))
        if found is None:
            found = await self._writing.call(
                lambda: leader.elected(self._sql, now, session),
                transaction=True,
                before_commit=lambda: self._reach("campaign.commit"),
            )
        self._reach("campaign.after")
        return found

    async def leader(self) -> Lead | None:
        now = self._now()
        return await self._reading.call(lambda: leader.found(self._sql, now))

    async def resign(self, session: int) -> None:
        await self._write("leader_resign", session=session)

    async def _release(self, handlers: Iterable[str]) -> None:
        wanted, now = names(handlers), self._now()
        await self._writing.call(lambda: reclaim.release(self._sql, wanted, now))
        await self._release_items(wanted, now)

    async def _release_items(self, handlers: str | None, now: Moment | None, limit: int = _AT_ONCE) -> int:
        """Release held items of batches. There are hardly ever any, so look before locking."""
        released = 0
        while await self._write("held_list_items", handlers=handlers, limit=1):
            some = await self._writing.call(
                lambda: reclaim.release_items(self._sql, handlers, limit, now), transaction=True
            )
            released += some
            if handlers is None or some < limit:
                break
        return released


def _one(ask: Ask) -> Script[list[Row]]:
    return (yield ask)
