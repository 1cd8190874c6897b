"""Claims for remote workers: one claim in the store serves all that are waiting, however many they are."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import SessionLost, StoreUnavailable
from pitboss.model.outcome import Transition
from pitboss.model.session import Claimed, ClaimRequest, Order, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim

TTL: Span = 30 * SECOND
# How many waiting workers one claim serves at most: if all of them got something, another claim follows.
_SERVED_AT_ONCE = 64
_LONGEST_WAIT = 5.0
# Turns of the event loop in which requests gather before the store is asked.
GATHERING_TURNS = 2
_UNHEARD = Transition(state=State.PENDING, outcome="released", recorded=False)


class RemoteWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote worker wants to claim: up to `most` tasks of these handlers, which are in these queues."""

    worker: str
    handlers: tuple[str, ...]
    queues: tuple[str, ...]
    lasts: Span
    most: int = 1
    order: Order | None = None
    repeat: str | None = None

    def slot(self) -> Slot:
        return Slot(
            free=self.most,
            queues=self.queues,
            handlers=self.handlers,
            order=self.order,
            worker=self.worker,
            lasts=self.lasts,
            repeat=self.repeat,
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """Wishes of one kind stand in one line: if the first gets nothing, the others get nothing either."""
        return self.queues, self.handlers, self.order


class _Waiter:
    """One request. `asked`: the store has said that there is nothing for it now."""

    __slots__ = ("answer", "asked", "waits", "wish")

    def __init__(self, wish: RemoteWish, answer: "asyncio.Future[list[Claim]]", *, waits: bool) -> None:
        self.wish, self.answer, self.waits, self.asked = wish, answer, waits, False


class RemoteClaims:
    """The claim loop of one server process. `queues` answers with the queues of all task types.

    A request that comes is served by the next claim, together with all others that came meanwhile. Those that got
    nothing and may wait are served again, in the order in which they came, when a queue is rung or a task falls due.
    """

    def __init__(self, store: Store, info: SessionInfo, queues: Callable[[], Sequence[str]]) -> None:
        self._store, self._info, self._queues = store, msgspec.structs.replace(info, ttl=TTL), queues
        self._session: int | None = None
        self._waiting: dict[int, _Waiter] = {}
        self._fresh: deque[_Waiter] = deque()
        self._number = 0
        self._rung = False
        self._work = asyncio.Event()
        self._listening = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._releases: set[asyncio.Task[None]] = set()
        # When workers last asked for these types. It goes into the session, for `why`.
        self._asked: dict[tuple[str, ...], Moment] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(_lasting(work)) for work in (self._serve, self._listen, self._renew)]

    async def stop(self) -> None:
        """Answer all that wait with nothing, and end the session."""
        for waiter in self._waiting.values():
            _answer(waiter, [])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._releases, return_exceptions=True)
        if self._session is not None:
            with suppress(StoreUnavailable):
                await self._store.end_session(self._session)

    async def claim(self, wish: RemoteWish, wait: float = 0.0) -> list[Claim]:
        """The tasks, at most `wait` seconds later; none if there were none. A caller that is cancelled gets nothing,
        and what was claimed for it goes back at once."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(wish, loop.create_future(), waits=wait > 0)
        self._asked[wish.handlers] = self._store.clock.now()
        self._number += 1
        number = self._number
        self._waiting[number] = waiter
        self._fresh.append(waiter)
        self._work.set()
        timer = loop.call_later(wait, self._give_up, waiter) if wait > 0 else None
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter.answer.done() and not waiter.answer.cancelled() and waiter.answer.exception() is None:
                self.give_back(waiter.answer.result())
            raise
        finally:
            self._waiting.pop(number, None)
            if timer is not None:
                timer.cancel()

    def give_back(self, claims: Iterable[Claim]) -> None:
        """No client got this answer: let the tasks wait again, at no cost."""
        gone = [Settlement(id=one.id, token=one.token, transition=_UNHEARD, queue=one.queue) for one in claims]
        if gone:
            work = asyncio.create_task(self._release(gone))
            self._releases.add(work)
            work.add_done_callback(self._releases.discard)

    async def _release(self, gone: list[Settlement]) -> None:
        # If the store is away, the time limit of the claims ends them.
        with suppress(StoreUnavailable):
            await self._store.settle(gone)

    def _give_up(self, waiter: _Waiter) -> None:
        """Its time is over. If it was never asked for, the next claim still asks."""
        waiter.waits = False
        if waiter.asked:
            _answer(waiter, [])

    async def _serve(self) -> None:
        while True:
            await self._work.wait()
            # Let all requests that have arrived be read first: one claim for many costs little more than for one.
            for _ in range(GATHERING_TURNS):
                await asyncio.sleep(0)
            self._work.clear()
            if self._rung:
                self._rung = False
                self._fresh.clear()
                await self._ask([one for one in self._waiting.values() if not one.answer.done()])
            elif self._fresh:
                fresh = [one for one in self._fresh if not one.answer.done()]
                self._fresh.clear()
                await self._ask(fresh)

    async def _ask(self, waiters: list[_Waiter]) -> None:
        """Serve them in portions, the first of each line first. A line that ran dry is not asked for again."""
        dry: set[tuple[object, ...]] = set()
        while waiters:
            portion: list[_Waiter] = []
            rest: list[_Waiter] = []
            for one in waiters:
                # A key that was never asked for may have claims, whatever the queue has.
                if one.wish.kind in dry and (one.asked or one.wish.repeat is None):
                    self._conclude(one)
                else:
                    (portion if len(portion) < _SERVED_AT_ONCE else rest).append(one)
            if portion:
                dry |= await self._claim(portion)
            waiters = rest

    async def _claim(self, portion: list[_Waiter]) -> set[tuple[object, ...]]:
        """One claim for these; answers with the kinds of wishes that there is nothing more for.

        Alike wishes are put side by side: an engine can serve neighbours as one.
        """
        alike: dict[tuple[object, ...], list[_Waiter]] = {}
        for one in portion:
            alike.setdefault((*one.wish.kind, one.wish.lasts), []).append(one)
        portion = [one for group in alike.values() for one in group]
        try:
            claimed = await self._claimed([one.wish.slot() for one in portion])
        except Exception as error:
            for one in portion:
                _fail(one, error)
            return set()
        found: list[list[Claim]] = [[] for _ in portion]
        for claim in claimed.claims:
            found[claim.slot].append(claim)
        self._look_again(claimed.next_due)
        dry = set()
        for one, claims in zip(portion, found, strict=True):
            if len(claims) < one.wish.most:
                dry.add(one.wish.kind)
            if claims:
                self._hand_over(one, claims)
            else:
                self._conclude(one)
        return dry

    def _hand_over(self, waiter: _Waiter, claims: list[Claim]) -> None:
        if waiter.answer.done():
            self.give_back(claims)
        else:
            waiter.answer.set_result(claims)

    def _conclude(self, waiter: _Waiter) -> None:
        """There is nothing for it now."""
        waiter.asked = True
        if waiter.waits:
            self._listening.set()
        else:
            _answer(waiter, [])

    async def _claimed(self, slots: list[Slot]) -> Claimed:
        for _ in range(2):
            session = self._session
            if session is None:
                session = self._session = (await self._store.open_session(self._info)).number
            try:
                return await self._store.claim(ClaimRequest(session=session, slots=tuple(slots)))
            except SessionLost:
                self._session = None
        raise StoreUnavailable(
            "the server's session was lost twice in a row", why="the store ends it at once", fix="try again"
        )

    def _look_again(self, due: Moment | None) -> None:
        """Without a ring, the next task falls due at that moment."""
        if due is None:
            return
        if self._due is not None:
            self._due.cancel()
        seconds = max(0.0, (due - self._store.clock.now()) / SECOND)
        self._due = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._rung = True
        self._work.set()

    async def _listen(self) -> None:
        """One bell for all that wait; none rings while there are none."""
        while True:
            await self._listening.wait()
            if not self._waiting:
                self._listening.clear()
                continue
            # A wait that ends without a ring looks all the same: rings may be lost.
            await self._store.wait(list(self._queues()), _LONGEST_WAIT)
            self._ring()
            await asyncio.sleep(0)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(TTL / SECOND / 3)
            if self._session is None:
                self._session = (await self._store.open_session(self._info)).number
            if not (await self._store.renew(self._session, self._snapshot())).alive:
                self._session = None

    def _snapshot(self) -> str:
        """For each type, when a worker last asked for it."""
        asked: dict[str, Moment] = {}
        for handlers, moment in sorted(self._asked.items(), key=lambda one: one[1]):
            asked |= dict.fromkeys(handlers, moment)
        return msgspec.json.encode({"asked": asked}).decode()


def _answer(waiter: _Waiter, claims: list[Claim]) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(claims)


def _fail(waiter: _Waiter, error: Exception) -> None:
    if not waiter.answer.done():
        waiter.answer.set_exception(error)


async def _lasting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Go on when the store is back."""
    while True:
        with suppress(StoreUnavailable):
            await work()
        await asyncio.sleep(0.5)
