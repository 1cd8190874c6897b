"""A time limit for a block or a function, on every platform and in every thread."""

import asyncio
import contextvars
import ctypes
import functools
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def timeout(seconds: float) -> "Timeout":
    """Raise TimeoutError after `seconds`: `with timeout(5):`, `async with timeout(5):` or `@timeout(5)`.

    In the main thread of a Unix process, `with` interrupts whatever runs. In other threads it takes effect between two
    steps of Python code: a blocking call, such as `time.sleep`, returns first. The decorator runs a plain function in a
    thread of its own and returns in time in every case; a blocking call goes on in that thread, its result is dropped.
    """
    if seconds <= 0:
        raise ValueError(f"a timeout of {seconds} seconds: it must be above 0")
    return Timeout(seconds)


class Timeout:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._message = f"Operation timed out after {seconds} seconds"
        self._block: AbstractContextManager[None] | None = None
        self._scope: asyncio.Timeout | None = None

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        limit = by_alarm if main and hasattr(signal, "SIGALRM") else by_timer
        self._block = limit(self._seconds, self._message)
        self._block.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        assert self._block, "it was not entered"
        return self._block.__exit__(*raised)

    async def __aenter__(self) -> None:
        self._scope = asyncio.timeout(self._seconds)
        await self._scope.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        assert self._scope, "it was not entered"
        try:
            await self._scope.__aexit__(*raised)
        except TimeoutError:
            raise TimeoutError(self._message) from None

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        async def limited_async(*args: Any, **kwargs: Any) -> Any:
            async with Timeout(self._seconds):
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            def work() -> Any:
                with by_timer(self._seconds, self._message):
                    return function(*args, **kwargs)

            future = in_thread(work)
            try:
                return future.result(self._seconds)
            except TimeoutError:
                if future.done():  # in time, or by its own timer
                    return future.result()
                raise TimeoutError(self._message) from None

        return limited_async if inspect.iscoroutinefunction(function) else limited  # type: ignore[return-value]


@contextmanager
def by_alarm(seconds: float, message: str) -> Iterator[None]:
    """By SIGALRM. An outer alarm that is due earlier stays; one that is due later is set again at the end."""

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(message)

    began = time.monotonic()
    outer = signal.getitimer(signal.ITIMER_REAL)[0]
    if 0 < outer <= seconds:
        yield
        return
    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)
            if outer:
                signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - began), 0.001))


@contextmanager
def by_timer(seconds: float, message: str) -> Iterator[None]:
    """By an exception that a timer's thread puts into this thread."""

    thread, lock = threading.get_ident(), threading.Lock()
    over = expired = raised = False

    class Expired(TimeoutError):
        def __init__(self) -> None:
            nonlocal raised
            raised = True
            super().__init__(message)

    def expire() -> None:
        nonlocal expired
        with lock:
            if not over:
                expired = True
                _raise_in(thread, Expired)

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True
            if expired:
                _raise_in(thread, None)  # what has not been raised by now is raised below, not after this block
        timer.cancel()
    if expired and not raised:
        raise Expired


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(error) if error else ctypes.c_void_p()
    )


def in_thread(function: Callable[..., Any], *args: Any) -> "Future[Any]":
    """Run a function in a daemon thread, with the context of the caller. No exit of a process waits for it."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    return future
