"""The values of `@app.worker_state` in this worker: opened at first use, replaced when worn out, closed at the end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from pitboss.client.state import StatePlaceholder, WorkerState
from pitboss.model.duration import SECOND


class WorkerStates:
    """One open value per declared state, shared by the tasks that run at the same time."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenState] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def using(self, wanted: Mapping[str, StatePlaceholder]) -> AsyncIterator[dict[str, Any]]:
        """The values for a handler's parameters, held for the time of one task."""
        async with AsyncExitStack() as stack:
            yield {name: await stack.enter_async_context(self._use(want.state)) for name, want in wanted.items()}

    async def close(self) -> None:
        states, self._open = list(self._open.values()), {}
        for one in states:
            await one.retire()

    @asynccontextmanager
    async def _use(self, state: WorkerState[Any]) -> AsyncIterator[Any]:
        one = await self._fresh(state)
        one.users += 1
        one.uses += 1
        try:
            yield one.value
        finally:
            one.users -= 1
            await one.close_if_unused()

    async def _fresh(self, state: WorkerState[Any]) -> "_OpenState":
        key = id(state)
        async with self._opening.setdefault(key, asyncio.Lock()):
            one = self._open.get(key)
            if one is not None and one.worn:
                del self._open[key]
                await one.retire()
                one = None
            if one is None:
                one = self._open[key] = await _OpenState.opened(state)
            return one


class _OpenState:
    """A state's value, with its uses counted. After `retire` it closes when its last user has finished."""

    def __init__(self, state: WorkerState[Any], manager: AbstractAsyncContextManager[Any], value: Any) -> None:
        self._state, self._manager, self.value = state, manager, value
        self._opened_at = asyncio.get_running_loop().time()
        self.users = 0
        self.uses = 0
        self._retired = False
        self._closed = False

    @classmethod
    async def opened(cls, state: WorkerState[Any]) -> "_OpenState":
        manager = state.open()
        return cls(state, manager, await manager.__aenter__())

    @property
    def worn(self) -> bool:
        age = asyncio.get_running_loop().time() - self._opened_at
        too_old = self._state.max_age is not None and age * SECOND >= self._state.max_age
        return too_old or (self._state.max_uses is not None and self.uses >= self._state.max_uses)

    async def retire(self) -> None:
        self._retired = True
        await self.close_if_unused()

    async def close_if_unused(self) -> None:
        if self._retired and not self.users and not self._closed:
            self._closed = True
            await self._manager.__aexit__(None, None, None)
