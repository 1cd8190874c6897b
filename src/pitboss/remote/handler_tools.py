"""Tools for handlers: repeat a call, keep its answer for a while, take items in batches."""

import asyncio
import functools
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from pitboss.remote.logs import logger

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")
_MISSING = object()
HOUR = 3600.0
_RETRYING = "Attempt %d failed: %s. Retrying in %gs..."


def retry(
    max_attempts: int = 3, backoff_factor: float = 2, exceptions: tuple[type[BaseException], ...] = (Exception,)
) -> Callable[[Function], Function]:
    """Repeat a function, or a coroutine function, that raises one of these; wait 1, 2, 4 … seconds in between,
    or longer if the error has a `retry_after`."""
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}: at least 1 is needed")
    # After the last attempt there is no pause: its error is raised.
    pauses = [float(backoff_factor**attempt) for attempt in range(max_attempts - 1)]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def repeated(*args: Any, **kwargs: Any) -> Any:
            for attempt, seconds in enumerate(pauses, start=1):
                try:
                    return function(*args, **kwargs)
                except exceptions as error:
                    pause = max(seconds, getattr(error, "retry_after", None) or 0.0)
                    logger.warning(_RETRYING, attempt, error, pause)
                time.sleep(pause)
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def repeated_async(*args: Any, **kwargs: Any) -> Any:
            for attempt, seconds in enumerate(pauses, start=1):
                try:
                    return await function(*args, **kwargs)
                except exceptions as error:
                    pause = max(seconds, getattr(error, "retry_after", None) or 0.0)
                    logger.warning(_RETRYING, attempt, error, pause)
                await asyncio.sleep(pause)
            return await function(*args, **kwargs)

        return repeated_async if inspect.iscoroutinefunction(function) else repeated  # type: ignore[return-value]

    return decorate


class TTLCache:
    """At most `maxsize` values, each for at most `ttl` seconds. When it is full, the least recently used one goes."""

    def __init__(self, maxsize: int = 1000, ttl: float = HOUR, clock: Callable[[], float] = time.monotonic) -> None:
        self._maxsize, self._ttl, self._clock = maxsize, ttl, clock
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, default: Any = None) -> Any:
        with self._lock:
            if key not in self._values:
                return default
            ends, value = self._values[key]
            if ends <= self._clock():
                del self._values[key]
                return default
            self._values.move_to_end(key)
            return value

    def set(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._values[key] = (self._clock() + self._ttl, value)
            self._values.move_to_end(key)
            while len(self._values) > self._maxsize:
                self._values.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __getitem__(self, key: Hashable) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self.set(key, value)


def cached(ttl: float = HOUR, maxsize: int = 1000) -> Callable[[Function], Function]:
    """Keep what a function, a method or a coroutine function returns. `function.cache_clear()` forgets everything."""

    def decorate(function: Function) -> Function:
        cache = TTLCache(maxsize, ttl)

        @functools.wraps(function)
        def remembered(*args: Any, **kwargs: Any) -> Any:
            key = (args, tuple(sorted(kwargs.items())))
            if (value := cache.get(key, _MISSING)) is _MISSING:
                cache.set(key, value := function(*args, **kwargs))
            return value

        @functools.wraps(function)
        async def remembered_async(*args: Any, **kwargs: Any) -> Any:
            key = (args, tuple(sorted(kwargs.items())))
            if (value := cache.get(key, _MISSING)) is _MISSING:
                cache.set(key, value := await function(*args, **kwargs))
            return value

        wrapper: Any = remembered_async if inspect.iscoroutinefunction(function) else remembered
        wrapper.cache, wrapper.cache_clear = cache, cache.clear
        return wrapper  # type: ignore[no-any-return]

    return decorate


def in_batches(items: Iterable[Item], size: int = 50) -> Iterator[list[Item]]:
    """The items in lists of `size`; the last list may be shorter."""
    if size < 1:
        raise ValueError(f"size is {size}: at least 1 is needed")
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch
