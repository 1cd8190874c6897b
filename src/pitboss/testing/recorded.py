"""An engine that writes down what it is asked and what it answers."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pitboss.engines.protocol import Page
from pitboss.model.duration import Moment
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.session import Claimed, ClaimRequest, Lead, Reclaimed, Renewal, Session, SessionInfo
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.task import Attempt, NewTask, Placed, Task
from pitboss.testing import history as told
from pitboss.testing.recorded_batches import RecordedBatches
from pitboss.testing.recorded_resources import RecordedResources


class Recorded(RecordedResources, RecordedBatches):
    """Wraps any engine, as one process of a history. `clock` is the store's, if it is known here.

    Once a call ended in `Killed`, the process is dead: every further call is `Killed` too and is not recorded.
    Reading is passed through; only what changes the store, or proves something about it, is evidence.
    """

    async def open(self) -> None:
        await self.engine.open()

    async def close(self) -> None:
        await self.engine.close()

    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        act = told.Put(tasks=tuple(tasks))
        return await self._call(act, self.engine.put, tasks, lambda placed: replace(act, placed=tuple(placed)))

    async def claim(self, request: ClaimRequest) -> Claimed:
        act = told.Claim(request=request)
        return await self._call(act, self.engine.claim, request, lambda claimed: replace(act, claimed=claimed))

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        act = told.Renew(session=session)
        return await self._call(
            act,
            lambda number: self.engine.renew(number, snapshot),
            session,
            lambda renewal: replace(act, renewal=renewal),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        act = told.Settle(settlements=tuple(settlements))
        return await self._call(
            act, self.engine.settle, settlements, lambda verdicts: replace(act, verdicts=tuple(verdicts))
        )

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        act = told.Reclaim(limit=limit)
        return await self._call(act, self.engine.reclaim, limit, lambda done: replace(act, reclaimed=done))

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        self._check_alive()
        return await self.engine.wait(queues, timeout)

    async def open_session(self, info: SessionInfo) -> Session:
        act = told.OpenSession(info=info)
        return await self._call(act, self.engine.open_session, info, lambda session: replace(act, session=session))

    async def end_session(self, session: int) -> None:
        act = told.EndSession(session=session)
        await self._call(act, self.engine.end_session, session, lambda _: act)

    async def campaign(self, session: int) -> Lead:
        act = told.Campaign(session=session)
        return await self._call(act, self.engine.campaign, session, lambda lead: replace(act, lead=lead))

    async def resign(self, session: int) -> None:
        act = told.Resign(session=session)
        await self._call(act, self.engine.resign, session, lambda _: act)

    async def leader(self) -> Lead | None:
        return await self.engine.leader()

    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        act = told.Cancel(wanted=wanted)
        return await self._call(
            act,
            lambda one: self.engine.cancel(one, reason=reason, limit=limit),
            wanted,
            lambda done: replace(act, changed=done),
        )

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        act = told.Retry(wanted=wanted)
        return await self._call(
            act,
            lambda one: self.engine.retry(one, keep_attempts=keep_attempts, limit=limit),
            wanted,
            lambda done: replace(act, changed=done),
        )

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        act = told.Prune(wanted=wanted, term=term)
        return await self._call(
            act,
            lambda one: self.engine.prune(one, before=before, limit=limit, term=term),
            wanted,
            lambda done: replace(act, changed=done),
        )

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        act = told.ChangeQueue(name=name, change=change)
        return await self._call(
            act,
            lambda one: self.engine.change_queue(name, one),
            change,
            lambda queue: replace(act, queue=queue),
        )

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        self._check_alive()
        await self.engine.register(handlers)

    async def forget(self, names: Iterable[str]) -> None:
        self._check_alive()
        await self.engine.forget(names)

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        self._check_alive()
        return await self.engine.wish(key, value, by=by)

    async def wishes(self, since: int = 0) -> list[Wish]:
        return await self.engine.wishes(since)

    async def handlers(self) -> list[HandlerInfo]:
        return await self.engine.handlers()

    async def sessions(self) -> list[Session]:
        return await self.engine.sessions()

    async def queues(self) -> list[Queue]:
        return await self.engine.queues()

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self.engine.get(ids)

    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        return await self.engine.find(wanted, limit=limit, after=after, oldest_first=oldest_first)

    async def count(self, wanted: Filter) -> int:
        return await self.engine.count(wanted)

    async def attempts(self, task: TaskId) -> list[Attempt]:
        return await self.engine.attempts(task)


__all__ = ["Recorded"]
