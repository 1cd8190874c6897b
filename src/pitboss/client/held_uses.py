"""The uses of a held member, as its holder knows them: which are open, and when each of them was over."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from pitboss.client.resource_client import Grant, ResourceClient
from pitboss.client.standstill import seconds
from pitboss.model.blame import is_unanswered
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.leasing import grew_old
from pitboss.model.resource import Leased, ResourceChange, UseEnd
from pitboss.model.task import Token

if TYPE_CHECKING:
    from pitboss.client.resources import Resources

_log = logging.getLogger("pitboss.resources")
_TELLING_SECONDS = 5.0
# Whether the code that asked for a use is still running: while it is, its request may not have been sent yet.
Caller = tuple[object, Callable[[], bool]]


class _OpenUse(NamedTuple):
    """A use that the store remembers at `at`; `caller` asked for it at `since`, and it was over at `ended`.

    `told`: the store hears of its end already.
    """

    at: Moment
    since: float
    caller: Caller | None = None
    ended: Moment | None = None
    told: bool = False

    def over_for(self, caller: Caller) -> bool:
        """Whether it is over when this caller asks for another one."""
        if self.ended is not None or self.caller is None or self.caller[0] is caller[0] or not self.caller[1]():
            return True
        # The use that came with the lease of a handler in a thread: the coroutine that started it waits for its end.
        return isinstance(self.caller[0], asyncio.Task) and isinstance(caller[0], threading.Thread)


class HeldUses:
    """Asks for uses of one lease. With the store's answer it knows the moment under which an open use is remembered."""

    def __init__(self, pool: "Resources", leased: Leased, holder: Token | str, task: TaskId | None) -> None:
        self._pool, self._leased, self._holder, self._task = pool, leased, holder, task
        # Clients of several threads may share the lease.
        self._lock = threading.Lock()
        self._open: list[_OpenUse] = []
        if leased.open_for:
            pool.standstill.begin()
            age = 0.0 if leased.asked is None else monotonic() - leased.asked
            # Coroutines that the handler starts may send its first request: only the handler itself ends this use.
            self._open = [_OpenUse(leased.use_at, seconds() - age, caller())]
        # The use that came with the lease, as long as it belongs to no request of the lease's own clients.
        self._spare: Moment | None = leased.use_at
        self._newest = leased.use_at
        self._telling: set[Future[None]] = set()

    @property
    def end(self) -> UseEnd | None:
        """What the act that gives the member back says about its newest use."""
        newest = self._open[-1:]
        return UseEnd(newest[0].at, newest[0].ended) if newest else None

    async def add(self, wait: Span, caller: Caller) -> Grant:
        """One more use. It ends the one before, unless another caller may still be about to make that one."""
        self._spare = None
        over = next((use for use in self._open if use.over_for(caller)), None)
        if over is not None:
            self._judge(over)
        return await self._ask(wait, caller, None, None if over is None else UseEnd(over.at, over.ended))

    async def from_now(self, wait: Span, caller: Caller) -> Grant:
        """The newest use was not made yet: it counts from now on."""
        grant = await self._ask(wait, caller, self._newest, None)
        with self._lock:
            if self._spare is not None:
                self._spare = grant.moment + self._leased.open_for
        return grant

    async def for_request(self, wait: Span, caller: Caller, unsent: Grant | None = None) -> Grant:
        """A use for a request that is sent at once: first the one that came with the lease, then further ones.

        `unsent` was granted for the same request, which could not be sent then: it moves to now.
        """
        if unsent is not None:
            return await self._ask(wait, caller, unsent.moment + self._leased.open_for, None)
        with self._lock:
            leased, spare, self._spare = self._leased, self._spare, None
        if spare is None:
            return await self.add(wait, caller)
        asked = monotonic() if leased.asked is None else leased.asked
        if not leased.open_for and not grew_old(monotonic() - asked, leased.guard):
            return Grant(spare, asked)
        try:
            return await self._ask(wait, caller, spare, None)
        except BaseException:
            self._spare = spare
            raise

    def sent(self, grant: Grant) -> None:
        """The request of this use has left now. When it arrives, only the answer tells."""
        if 0 < self._leased.open_for < _lag(grant):
            self._note_late()

    def answered(self, grant: Grant) -> None:
        """The answer to the request of this use has begun: the use is over."""
        open_for, at = self._leased.open_for, grant.moment + self._leased.open_for
        if not open_for:
            return
        end = UseEnd(at, grant.moment + _lag(grant))
        with self._lock:
            told = self._leased.shared or len(self._open) > 1
            self._open = [use._replace(ended=end.ended, told=told) if use.at == at else use for use in self._open]
        if told:
            self._tell_end(end)

    def unanswered(self, grant: Grant) -> None:
        """No answer will come, and the request may still be on its way: its use stays at the last possible moment."""
        at = grant.moment + self._leased.open_for
        with self._lock:
            self._open = [use for use in self._open if use.at != at or use.ended is not None]

    async def over(self, error: BaseException | None = None) -> UseEnd | None:
        """The handler has ended: the end of its newest use, once the store knows of the others.

        If it was stopped, or its client gave up waiting for an answer, a request may still be on its way: only uses
        that were answered are over then.
        """
        with self._lock:
            if error is not None and is_unanswered(error):
                self._open = [use for use in self._open if use.ended is not None]
            held, self._open = self._open, self._open[-1:]
        for use in held:
            self._judge(use)
        for use in held[:-1]:
            if not use.told:
                self._tell_end(UseEnd(use.at, use.ended))
        # Another thread takes out what the store has answered.
        telling = [asyncio.wrap_future(one) for one in self._telling.copy()]
        if telling:
            done, _ = await asyncio.wait(telling, timeout=_TELLING_SECONDS)
            for one in done:
                # What could not be told stays as it is in the store, which is the safe side.
                one.exception()
        return self.end

    def _judge(self, use: _OpenUse) -> None:
        """Only a process that stood still can have made its request later than it was asked to."""
        took = seconds() - use.since
        if use.ended is None and took * SECOND > self._leased.open_for and self._pool.standstill.since(use.since):
            self._note_late()

    def _note_late(self) -> None:
        """A use may have passed a limit: its process had been stopped between the grant and the request."""
        name = self._leased.name
        _log.warning("a use of %s may have passed its limits: the process had been stopped", self._leased.id)
        change = ResourceChange(late=1)

        async def tell(resources: ResourceClient) -> None:
            await resources.change(self._leased.pool, [name], change)

        self._tell(self._pool.begin(tell))

    async def _ask(self, wait: Span, caller: Caller, instead: Moment | None, ends: UseEnd | None) -> Grant:
        holder, task, leased = self._holder, self._task, self._leased
        grant = await self._pool.aask(
            lambda resources: resources.use(
                holder,
                task,
                wait=wait,
                guard=leased.guard,
                open_for=leased.open_for,
                instead=instead,
                ends=ends,
            )
        )
        at, gone = grant.moment + leased.open_for, {instead, None if ends is None else ends.at}
        since = seconds() - (monotonic() - grant.asked)
        with self._lock:
            self._newest = at
            if leased.open_for:
                self._open = [*(use for use in self._open if use.at not in gone), _OpenUse(at, since, caller)]
        return grant

    def _tell_end(self, end: UseEnd) -> None:
        holder, task = self._holder, self._task
        self._tell(self._pool.begin(lambda resources: resources.end_use(holder, task, end)))

    def _tell(self, told: "Future[None]") -> None:
        self._telling.add(told)
        told.add_done_callback(self._telling.discard)


def _lag(grant: Grant) -> Span:
    return ceil((monotonic() - grant.asked) * SECOND)


def caller() -> Caller:
    """The coroutine or thread that runs now."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None:
        return task, lambda: not task.done()
    thread = threading.current_thread()
    return thread, thread.is_alive
