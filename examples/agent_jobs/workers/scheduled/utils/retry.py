"""The document's retry decorator, for a hiccup of milliseconds within one attempt.

It forgets everything if the process ends. Retries that survive are those of Pitboss: retry_limit and max_retries.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...


def with_retry(max_retries: int = 3, backoff_factor: float = 2) -> Decorator:
    """Call it up to `max_retries` times, with growing pauses. The last error is raised."""

    def decorator(func: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @wraps(func)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            retry_count = 0
            while True:
                try:
                    return await func(*args, **kwargs)
                except Exception:
                    retry_count += 1
                    if retry_count >= max_retries:
                        raise
                    await asyncio.sleep(backoff_factor**retry_count)

        return wrapper

    return decorator
