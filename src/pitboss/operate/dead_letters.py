"""Retries failed tasks at a rate, and stops when too many of them fail again."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.limits import Window
from pitboss.model.states import State
from pitboss.model.task import Task

_PAGE = 500
_LOOKED_AT = 1000
# A portion is what the rate allows in this time, so that a failure stops the next one soon.
_PORTION_SECONDS = 0.5
_LARGEST = 1000
# What a process takes for the store's clock may be behind it by half a second: a task that has just failed counts.
_CLOCKS: Span = SECOND


class RetryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which failed tasks, how fast, and after how many failures to stop (None: never). `began` None: now."""

    wanted: Filter
    rate: tuple[Window, ...]
    stop_on_failures: int | None = None
    began: Moment | None = None
    after: TaskId | None = None
    seconds: float | None = None

    @property
    def per_second(self) -> float:
        """The retries are spread evenly, so the slowest window counts."""
        return min(window.count / window.per for window in self.rate) * SECOND


class RetryReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is. `retried` were set to run again, and of these `failed_again` have failed since, if only one of
    several attempts. `refused`: another unfinished task has their unique key. `ended` says why it is over: "done",
    "failures", "stopped" by the caller or "time"; a retry that goes on where this one ended has its `began` and
    `after`.
    """

    matched: int = 0
    retried: int = 0
    failed_again: int = 0
    refused: tuple[TaskId, ...] = ()
    ended: str | None = None
    began: Moment = 0
    after: TaskId | None = None


async def retry_at_rate(
    store: Store,
    plan: RetryPlan,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[RetryReport], None] | None = None,
) -> RetryReport:
    """Retry what had failed before it began, the oldest task first. Each task is retried at most once: the next one
    always has a greater id. So this ends even if all of them fail again, and others fail meanwhile."""
    return await _Retrying(store, plan, stop or asyncio.Event(), progress).run()


class _Retrying:
    def __init__(
        self, store: Store, plan: RetryPlan, stop: asyncio.Event, progress: Callable[[RetryReport], None] | None
    ) -> None:
        self._store, self._plan, self._stop, self._tell = store, plan, stop, progress
        self._failed = plan.wanted.also(state=State.FAILED)
        self._watched: deque[TaskId] = deque()
        self._report = RetryReport(began=store.clock.now() if plan.began is None else plan.began, after=plan.after)

    async def run(self) -> RetryReport:
        loop = asyncio.get_running_loop()
        size = min(_LARGEST, max(1, int(self._plan.per_second * _PORTION_SECONDS)))
        due = start = loop.time()
        self._set(matched=await self._store.count(self._failed))
        async for portion in self._portions(size):
            while not self._over(loop.time() - start) and (wait := due - loop.time()) > 0:
                await self._rest(min(wait, _PORTION_SECONDS))
            if ended := self._over(loop.time() - start):
                return self._set(ended=ended)
            await self._retry(portion)
            due = max(due, loop.time()) + len(portion) / self._plan.per_second
            await self._look()
        await self._look()
        return self._set(ended="failures" if self._too_many else "done")

    def _over(self, spent: float) -> str | None:
        if self._too_many:
            return "failures"
        if self._stop.is_set():
            return "stopped"
        # At least one portion, so that calls with a time limit come to an end.
        some = self._report.after != self._plan.after
        return "time" if some and self._plan.seconds is not None and spent >= self._plan.seconds else None

    @property
    def _too_many(self) -> bool:
        most = self._plan.stop_on_failures
        return most is not None and self._report.failed_again >= most

    async def _rest(self, seconds: float) -> None:
        """Wait, and look at the retried tasks: at a slow rate they fail before the next portion."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            await self._look()

    async def _portions(self, size: int) -> AsyncIterator[list[Task]]:
        """The tasks that had failed before it began, by id. A page of tasks that were put later is the end."""
        found, after, began = list[Task](), self._plan.after, self._report.began + _CLOCKS
        while True:
            page = await self._store.find(self._failed, limit=_PAGE, after=after, oldest_first=True)
            found += [task for task in page.tasks if (task.finished_at or 0) <= began]
            while len(found) >= size:
                yield found[:size]
                del found[:size]
            after = page.next
            if after is None or all(task.created_at > began for task in page.tasks):
                break
        if found:
            yield found

    async def _retry(self, portion: Sequence[Task]) -> None:
        """A task that was retried or deleted by another operator meanwhile does not match any more."""
        ids = [task.id for task in portion]
        done = await self._store.retry(self._failed.also(id=ids), limit=len(ids))
        self._watched.extend(sorted(set(ids) - set(done.refused)))
        refused = (*self._report.refused, *done.refused)
        self._set(retried=self._report.retried + done.changed, refused=refused, after=ids[-1])

    async def _look(self) -> None:
        """Count the retried tasks that have failed again. Those that wait or run are looked at again later."""
        if not self._watched:
            return
        some = [self._watched.popleft() for _ in range(min(_LOOKED_AT, len(self._watched)))]
        found = [task for task in await self._store.get(some) if task is not None]
        failed = sum(map(_failed_again, found))
        self._watched.extend(task.id for task in found if not task.state.finished and not _failed_again(task))
        if failed:
            self._set(failed_again=self._report.failed_again + failed)

    def _set(self, **fields: object) -> RetryReport:
        self._report = msgspec.structs.replace(self._report, **fields)
        if self._tell is not None:
            self._tell(self._report)
        return self._report


def _failed_again(task: Task) -> bool:
    """A retry sets the attempts to zero, so one that was made since has failed, whether or not others follow."""
    return task.state is State.FAILED or (not task.state.finished and task.attempts > 0)
