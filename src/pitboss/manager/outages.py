"""Tells people when the store goes away, what goes on meanwhile, and when it is back."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from pitboss.engines.protocol import Outages
from pitboss.model.duration import SECOND, spoken
from pitboss.model.errors import StoreDamaged, StoreUnavailable
from pitboss.model.happening import Kind
from pitboss.model.text import counted

_PROBE_SECONDS = 0.25
_REMIND_SECONDS = 60.0
# Outages that follow each other within this time are told together.
_QUIET_SECONDS = 5.0
# An outage that is not told at once is told after this time, if it lasts.
_TOLD_WITHIN = 1.0
_SHORT = 60.0


class Work(NamedTuple):
    """What this manager has at hand: tasks that run, outcomes that are not written yet, and how many seconds its
    session lives without a renewal (None: it has no session)."""

    running: int
    unwritten: int
    expires_in: float | None


class Listener(Protocol):
    """Hears how long the store is away, and why, with each probe that fails; and at the end how long it was."""

    def away(self, seconds: float, cause: str) -> None: ...

    def back(self, seconds: float) -> None: ...


class OutageWatch:
    """`warn` and `say` get sentences, `work` says what would be affected. An outage begins with the first error, and
    is over when a probe of the store succeeds."""

    def __init__(
        self,
        store: Outages | None,
        *,
        warn: Callable[[str], None],
        say: Callable[[str], None],
        work: Callable[[], Work],
    ) -> None:
        self._store, self._warn, self._say, self._work = store, warn, say, work
        # Called when the store is back.
        self.back: Callable[[], None] = lambda: None
        self.listener: Listener | None = None
        # Gets the sentences that belong in the log of happenings.
        self.noted: Callable[[Kind, str], None] = lambda kind, text: None
        self._loop = asyncio.get_running_loop()
        self._away = asyncio.Event()
        self._since = 0.0
        self._error: StoreUnavailable | None = None
        self._told = False
        self._last_told = self._last_damage = -_REMIND_SECONDS
        self._untold: list[float] = []
        self._again = 0
        if store is not None:
            store.on_trouble(self._heard)

    def failed(self, error: StoreUnavailable) -> None:
        """A call to the store failed. To be called in the loop."""
        now = self._loop.time()
        if isinstance(error, StoreDamaged):
            self._tell_damage(error, now)
        elif self._store is not None and not self._away.is_set():
            self._since, self._error, self._told, self._again = now, error, False, 0
            self._away.set()
            if now - self._last_told >= _QUIET_SECONDS:
                self._tell_begin()

    def session_lost(self) -> str | None:
        """The session has expired: why, if the store is away, and None otherwise."""
        if not self._away.is_set():
            return None
        if not self._told:
            self._tell_begin()
        work = self._work()
        # The store will refuse kept outcomes of this session: their tasks run again, too.
        self._again += work.running + work.unwritten
        return f"the store has been away for {_seconds(self._loop.time() - self._since)}, and the session has expired"

    async def run(self) -> None:
        """Probe while the store is away, until cancelled."""
        while self._store is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_SECONDS if self._untold else None):
                    await self._away.wait()
            if self._away.is_set():
                await self._until_back(self._store)
            elif self._untold:
                self._tell_untold()

    async def _until_back(self, store: Outages) -> None:
        reminded = self._since
        while True:
            try:
                await store.probe()
            except StoreUnavailable as error:
                self._error = error
            else:
                break
            now = self._loop.time()
            if self.listener is not None:
                self.listener.away(now - self._since, _cause(self._error))
            if not self._told and now - self._since >= _TOLD_WITHIN:
                self._tell_begin()
            if now - reminded >= _REMIND_SECONDS:
                reminded = now
                self._warn(f"the store has been away for {_seconds(now - self._since)}: {_cause(self._error)}")
            await asyncio.sleep(_PROBE_SECONDS)
        self._away.clear()
        self.back()
        lasted = self._loop.time() - self._since
        if self.listener is not None:
            self.listener.back(lasted)
        if self._told:
            text = f"the store is back after {_seconds(lasted)}: {self._effect()}"
            self._say(text)
            self.noted(Kind.STORE_BACK, text)
        else:
            self._untold.append(lasted)

    def _tell_begin(self) -> None:
        self._told, self._last_told = True, self._loop.time()
        if self._untold:
            self._tell_untold()
        expires_in = self._work().expires_in
        then = "a new session begins when it is back"
        if expires_in is not None:
            left = max(0, round(expires_in))
            then = f"if it is away for {left} s more, the session expires and running tasks start again"
        text = f"the store does not answer: {_cause(self._error)}"
        self._warn(
            f"{text}. Running tasks go on, and their outcomes are kept and written when it is back; no new tasks "
            f"start; {then}"
        )
        self.noted(Kind.STORE_AWAY, text)

    def _tell_untold(self) -> None:
        times, self._untold = self._untold, []
        self._last_told = self._loop.time()
        more = counted(len(times), "more time")
        text = f"the store was away {more}, for {_seconds(sum(times))} in all; running tasks went on"
        self._warn(text)
        self.noted(Kind.STORE_BACK, text)

    def _tell_damage(self, error: StoreDamaged, now: float) -> None:
        if now - self._last_damage >= _REMIND_SECONDS:
            self._last_damage = now
            self._warn(
                f"the store is damaged, and waiting does not help: {error.what}. To save what is left: {error.fix}"
            )

    def _effect(self) -> str:
        if self._again:
            again = counted(self._again, "task")
            return f"nothing was lost, but the session had expired: {again} of it will run again, at no attempt"
        work = self._work()
        kept = f", and {counted(work.unwritten, 'kept outcome')} can be written now" if work.unwritten else ""
        running = f"{counted(work.running, 'task')} kept running" if work.running else "no task was running"
        return f"nothing was lost; {running}{kept}"

    def _heard(self, error: StoreUnavailable) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(partial(self.failed, error))


def _cause(error: StoreUnavailable | None) -> str:
    return "no answer" if error is None else f"{error.what} ({error.why})" if error.why else error.what


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _SHORT else spoken(round(seconds) * SECOND)
