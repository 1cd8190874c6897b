"""Runs hooks: a limited number at once, each within a time limit, never on the loop that talks to the manager."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from pitboss.client.hooks import Hook
from pitboss.client.private_loop import PrivateLoop
from pitboss.model.facts import Fact

Tell = Callable[[bool], None]


class Registry(Protocol):
    """The hooks of an app."""

    def wanting(self, fact: Fact) -> list[Hook]: ...


class _Call(NamedTuple):
    """A started hook. `ended` gets whether it failed; `thread` holds the id of its thread once it runs."""

    ended: "asyncio.Future[bool]"
    thread: list[int]
    cancel: Callable[[], object]


class HookRunner:
    """Sync hooks run in threads, async hooks in an event loop of their own, where they can also use the store.

    `stuck` counts hooks that neither ended in time nor reacted to cancellation: only killing the process ends them.
    """

    def __init__(
        self, registry: Registry, *, concurrency: int, limit: float, grace: float, on_stuck: Callable[[], None]
    ) -> None:
        self._registry, self._limit, self._grace, self._on_stuck = registry, limit, grace, on_stuck
        self._room = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="pitboss-hook")
        self._own_loop = PrivateLoop("pitboss-hook-loop")
        self._loop = asyncio.get_running_loop()
        self._log = logging.getLogger("pitboss.hooks")
        self.stuck = 0

    async def run(self, fact: Fact) -> int:
        """Call every hook that wants the fact; returns how many of them failed."""
        hooks = self._registry.wanting(fact)
        failed = await asyncio.gather(*(self._run_one(hook, fact) for hook in hooks))
        return sum(failed)

    async def _run_one(self, hook: Hook, fact: Fact) -> bool:
        async with self._room:
            call = self._start(hook, fact)
            if await _within(call.ended, self._limit):
                return call.ended.result()
            await self._give_up(hook, fact, call)
            return True

    def _start(self, hook: Hook, fact: Fact) -> _Call:
        ended: asyncio.Future[bool] = self._loop.create_future()
        thread: list[int] = []

        def tell(failed: bool) -> None:
            self._loop.call_soon_threadsafe(ended.set_result, failed)

        if hook.is_async:
            return _Call(ended, thread, self._own_loop.submit(self._await(hook, fact, thread, tell)).cancel)
        return _Call(ended, thread, self._threads.submit(self._call, hook, fact, thread, tell).cancel)

    def _call(self, hook: Hook, fact: Fact, thread: list[int], tell: Tell) -> None:
        thread.append(threading.get_ident())
        failed = True
        try:
            hook.function(fact)
            failed = False
        except BaseException as error:  # SystemExit of one hook must not end the others
            self._report(hook, fact, error)
        finally:
            tell(failed)

    async def _await(self, hook: Hook, fact: Fact, thread: list[int], tell: Tell) -> None:
        thread.append(threading.get_ident())
        failed = True
        try:
            work: Any = hook.function(fact)
            await work
            failed = False
        except BaseException as error:
            self._report(hook, fact, error)
        finally:
            tell(failed)

    async def _give_up(self, hook: Hook, fact: Fact, call: _Call) -> None:
        """Past its time limit: cancel a coroutine; a thread cannot be cancelled."""
        self._log.error("hook %s did not end within %g s on %s", hook.name, self._limit, _shown(fact))
        where = _stack(call.thread)
        call.cancel()
        if not await _within(call.ended, self._grace):
            self.stuck += 1
            self._log.error(
                "hook %s ignores its cancellation, so its process will be replaced; the hook is here:\n%s",
                hook.name,
                where,
            )
            self._on_stuck()

    def _report(self, hook: Hook, fact: Fact, error: BaseException) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        self._log.error("hook %s failed on %s", hook.name, _shown(fact), exc_info=(type(error), error, trace))


async def _within(ended: "asyncio.Future[bool]", seconds: float) -> bool:
    await asyncio.wait({ended}, timeout=seconds)
    return ended.done()


def _stack(thread: list[int]) -> str:
    frame = sys._current_frames().get(thread[0]) if thread else None
    return "".join(traceback.format_stack(frame)).rstrip() if frame is not None else "(it has not started)"


def _shown(fact: Fact) -> str:
    about = getattr(fact, "id", None) or getattr(fact, "worker", None) or fact.pool
    return f"{fact.kind} of {about}"
