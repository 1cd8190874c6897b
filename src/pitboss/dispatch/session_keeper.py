"""Renews a session from a thread of its own, because a blocked event loop must not look like a dead host."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pitboss.engines.protocol import Engine
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import PitbossError, StoreUnavailable
from pitboss.model.session import Renewal

_BEATS_PER_LIFE = 3
_TRIES_PER_BEAT = 4
# A renewal is one small write: a store that takes longer is in trouble.
_SLOW_SECONDS = 2.0


class SessionKeeper:
    """Renews one session. `told` gets every answer; `lost` is called once, when the session is over; `troubled` is told
    when the store does not answer. All are called in the loop that made the keeper.

    The session counts as lost when the store says so, or when no answer came for its whole time to live, measured on a
    monotonic clock from before the last good call: by then the store may have given its tasks to others.
    """

    def __init__(
        self,
        session: int,
        ttl: Span,
        *,
        told: Callable[[Renewal], None],
        lost: Callable[[], None],
        snapshot: Callable[[], str | None] = lambda: None,
        troubled: Callable[[StoreUnavailable], None] = lambda _error: None,
    ) -> None:
        self._session, self._ttl, self._troubled = session, ttl / SECOND, troubled
        self._told, self._lost, self._snapshot = told, lost, snapshot
        self._owner = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stop_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def keep(self, engine: Engine) -> None:
        """Renew until stopped or lost."""
        self._stopped, self._hurry = asyncio.Event(), asyncio.Event()
        loop = self._loop = asyncio.get_running_loop()
        confirmed = loop.time()
        # `stop` may have been called before there was a loop.
        while not self._stop_asked:
            asked = loop.time()
            renewal = await self._ask(engine, limit=max(0.05, confirmed + self._ttl - asked))
            if renewal is not None and renewal.alive:
                confirmed = asked
                _call_in(self._owner, partial(self._told, renewal))
            elif renewal is not None or loop.time() - confirmed >= self._ttl:
                _call_in(self._owner, self._lost)
                return
            pause = self._ttl / _BEATS_PER_LIFE
            if await self._stopped_within(pause if renewal else pause / _TRIES_PER_BEAT):
                return

    def start_thread(self, make_engine: Callable[[], Engine]) -> None:
        """Renew in a thread with an engine of its own."""
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._keep_with(make_engine)), name="pitboss-keeper", daemon=True
        )
        self._thread.start()

    def renew_now(self) -> None:
        """Renew at once: the snapshot has changed and should not wait for the next beat."""
        _call_in(self._loop, self._hurry.set)

    def stop(self) -> None:
        """Stop renewing. The session then expires, or is ended by `end_session`."""
        self._stop_asked = True
        _call_in(self._loop, self._stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    async def _keep_with(self, make_engine: Callable[[], Engine]) -> None:
        engine = make_engine()
        try:
            await engine.open()
            await self.keep(engine)
        except PitbossError:
            _call_in(self._owner, self._lost)
        finally:
            await engine.close()

    async def _ask(self, engine: Engine, limit: float) -> Renewal | None:
        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._report, _slow())
        try:
            async with asyncio.timeout(limit):
                return await engine.renew(self._session, self._snapshot())
        except StoreUnavailable as error:
            self._report(error)
        except (PitbossError, TimeoutError, OSError):
            pass
        finally:
            slow.cancel()
        return None

    def _report(self, error: StoreUnavailable) -> None:
        _call_in(self._owner, partial(self._troubled, error))

    async def _stopped_within(self, seconds: float) -> bool:
        """Also returns, with False, when `renew_now` was called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        self._hurry.clear()
        return self._stopped.is_set()

    def _stop(self) -> None:
        self._stopped.set()
        self._hurry.set()


def _slow() -> StoreUnavailable:
    return StoreUnavailable(
        f"a renewal of the session was not answered for {_SLOW_SECONDS:g} s",
        why="the store hangs, is overloaded or locked, or cannot be reached",
        fix="look at the store's host, at long transactions and locks",
    )


def _call_in(loop: asyncio.AbstractEventLoop | None, call: Callable[[], object]) -> None:
    """Run it in a loop, from any thread; nothing happens if the loop has ended."""
    if loop is not None and not loop.is_closed():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call)
