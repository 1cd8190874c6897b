"""pytest plugin: `async def` tests run in an event loop of their own, within a time limit, and leave no tasks behind.

It runs only tests that are marked, so that it works beside other async plugins: mark a test, class or module with
`pytest.mark.fresh_loop` (or `fresh_loop(limit=5)`), or set `fresh_loop = true` in pytest's configuration for all.
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self

import pytest

SECONDS = 30.0
_LAST_TURNS = 3


class InLoop(AbstractAsyncContextManager["InLoop"]):
    """An argument that needs the test's loop: the plugin enters it there before the test, and leaves it after.

    A plain fixture may return one, so no async fixtures are needed.
    """

    async def __aenter__(self) -> Self:
        return self

    @abstractmethod
    async def __aexit__(self, *exc: object) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("fresh_loop", "run every async test in an event loop of its own", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    line = f"fresh_loop(limit={SECONDS:g}): run an async test in its own event loop, for at most that many seconds"
    config.addinivalue_line("markers", line)
    # Must come before the first import: in a package, pytest does not explain a failed assert unless asked to.
    pytest.register_assert_rewrite("pitboss.testing.conformance")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    mark = pyfuncitem.get_closest_marker("fresh_loop")
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or not (mark or pyfuncitem.config.getini("fresh_loop")):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    limit = mark.kwargs.get("limit", SECONDS) if mark else SECONDS
    run_test(pyfuncitem.obj, arguments, limit)
    return True


def run_test(test: Callable[..., Awaitable[None]], arguments: dict[str, Any], limit: float = SECONDS) -> None:
    """Run one async test function. It fails if it exceeds the limit or leaves tasks behind."""
    with asyncio.Runner() as runner:
        left = runner.run(_run(test, arguments, limit))
    if left:
        pytest.fail("the test left asyncio tasks behind:\n" + "\n".join(left), pytrace=False)


async def _run(test: Callable[..., Awaitable[None]], arguments: dict[str, Any], limit: float) -> list[str]:
    timer = asyncio.timeout(limit)
    try:
        async with timer, AsyncExitStack() as stack:
            for value in arguments.values():
                if isinstance(value, InLoop):
                    await stack.enter_async_context(value)
            await test(**arguments)
    except TimeoutError:
        if timer.expired():
            pytest.fail(f"the test took longer than {limit:g} seconds")
        raise
    return await _left_behind()


async def _left_behind() -> list[str]:
    # A task that was cancelled at the end needs a few turns of the loop to finish.
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)
    me = asyncio.current_task()
    return sorted(repr(task) for task in asyncio.all_tasks() if task is not me)
