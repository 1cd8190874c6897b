"""The small protocols: sessions, leader, ledger, control, queues, handlers, desired. The verbs stand in `engine.py`."""

from collections.abc import Iterable, Sequence

from pitboss.engines.protocol import Page
from pitboss.engines.sqlite import control, lead, registry
from pitboss.engines.sqlite.pool_desk import PoolDesk
from pitboss.engines.sqlite.sweep import release
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.session import Lead, Session, SessionInfo
from pitboss.model.task import Attempt, Task

# A million held tasks are released in many short transactions, so that other writers get in between.
_RELEASED_AT_ONCE = 2000


class Desk(PoolDesk):
    """What the engine does besides the six verbs, over its two ways to the store."""

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
        return await self._write("campaign", lambda act: lead.campaign(act, session))

    async def leader(self) -> Lead | None:
        return await self._read(lambda reader: reader.leader())

    async def resign(self, session: int) -> None:
        await self._write("resign", lambda act: lead.resign(act, session))

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._read(lambda reader: reader.get(ids))

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        return await self._read(lambda reader: reader.find(wanted, limit, after, oldest_first))

    async def count(self, wanted: Filter) -> int:
        return await self._read(lambda reader: reader.count(wanted))

    async def attempts(self, task: TaskId) -> list[Attempt]:
        return await self._read(lambda reader: reader.attempts(task))

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        return await self._write("cancel", lambda act: control.cancel(act, wanted, reason, limit))

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        return await self._write("retry", lambda act: control.retry(act, wanted, keep_attempts, limit))

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        return await self._write("prune", lambda act: control.prune(act, wanted, before, limit, term))

    async def queues(self) -> list[Queue]:
        return await self._read(lambda reader: reader.queues())

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        return await self._write("change_queue", lambda act: registry.change_queue(act, name, change))

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        added = tuple(handlers)
        released = await self._write("register", lambda act: registry.register(act, added, _RELEASED_AT_ONCE))
        if released == _RELEASED_AT_ONCE:
            await self._release_rest({one.name for one in added})

    async def handlers(self) -> list[HandlerInfo]:
        return await self._read(lambda reader: reader.handlers())

    async def forget(self, names: Iterable[str]) -> None:
        gone = tuple(names)
        await self._write("forget", lambda act: registry.forget(act, gone))

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        return await self._write("wish", lambda act: registry.wish(act, key, value, by))

    async def wishes(self, since: int = 0) -> list[Wish]:
        return await self._read(lambda reader: reader.wishes(since))

    async def _release_rest(self, handlers: set[str]) -> None:
        released = _RELEASED_AT_ONCE
        while released == _RELEASED_AT_ONCE:
            released = await self._write("release_held", lambda act: release(act, handlers, _RELEASED_AT_ONCE))
