"""`app.schedules`: the schedules of the store, for code. Every call has an async twin."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pitboss.client.acting import who_acts
from pitboss.client.app_core import LIMIT
from pitboss.client.client import Client
from pitboss.client.declaring import Declaring
from pitboss.client.handle import Handle
from pitboss.client.handler import Handler
from pitboss.client.schedules import ScheduleClient
from pitboss.model.schedule import Schedule
from pitboss.model.task import Placed

T = TypeVar("T")
# Inside the class, `list` is the method.
Found = list[Schedule]
_Work = Callable[[ScheduleClient], Coroutine[Any, Any, T]]
_Fields = dict[str, Any] | None


class AppSchedules:
    """Schedules that code declares, and those that are added at run time."""

    def __init__(self, app: Declaring) -> None:
        self._app = app

    def add(self, name: str, handler: Handler[Any, Any, Any] | str, **fields: Any) -> Schedule:
        """Add a schedule, or define one anew that was added so: `add("eu", report, cron="0 6 * * *", params={…})`.

        The fields are those of `scheduled_task`: `cron`, `every` or `at`, `tz`, `params`, `overlap`, `catchup`,
        `jitter`, and `queue`, `priority`, `max_attempts` and `timeout` of its tasks.
        """
        return self._run(self._add(name, handler, fields), "add", name, fields)

    async def aadd(self, name: str, handler: Handler[Any, Any, Any] | str, **fields: Any) -> Schedule:
        """As `add`, for async callers."""
        return await self._arun(self._add(name, handler, fields), "add", name, fields)

    def get(self, name: str) -> Schedule:
        """One schedule; `NotFound` if there is none of that name."""
        return self._run(lambda schedules: schedules.get(name))

    async def aget(self, name: str) -> Schedule:
        """As `get`, for async callers."""
        return await self._arun(lambda schedules: schedules.get(name))

    def list(self, *, limit: int = 1000, after: str | None = None) -> Found:
        """All schedules of the store by name, of other apps too; `after`: only names greater than this."""
        return self._run(lambda schedules: schedules.find(limit=limit, after=after))

    async def alist(self, *, limit: int = 1000, after: str | None = None) -> Found:
        """As `list`, for async callers."""
        return await self._arun(lambda schedules: schedules.find(limit=limit, after=after))

    def change(self, name: str, **fields: Any) -> Schedule:
        """Set fields above the definition, until `reset`: `change("daily", cron="0 6 * * *")`."""
        return self._run(lambda schedules: schedules.change(name, **fields), "change", name, fields)

    async def achange(self, name: str, **fields: Any) -> Schedule:
        """As `change`, for async callers."""
        return await self._arun(lambda schedules: schedules.change(name, **fields), "change", name, fields)

    def reset(self, name: str) -> Schedule:
        """Withdraw what was changed: the definition holds again."""
        return self._run(lambda schedules: schedules.reset(name), "reset", name)

    async def areset(self, name: str) -> Schedule:
        """As `reset`, for async callers."""
        return await self._arun(lambda schedules: schedules.reset(name), "reset", name)

    def pause(self, name: str, reason: str = "") -> Schedule:
        """Let it put no tasks until `resume`."""
        return self._run(self._pausing(name, reason), "pause", name, {"reason": reason})

    async def apause(self, name: str, reason: str = "") -> Schedule:
        """As `pause`, for async callers."""
        return await self._arun(self._pausing(name, reason), "pause", name, {"reason": reason})

    def resume(self, name: str) -> Schedule:
        """Go on with the next tick."""
        return self._run(lambda schedules: schedules.resume(name), "resume", name)

    async def aresume(self, name: str) -> Schedule:
        """As `resume`, for async callers."""
        return await self._arun(lambda schedules: schedules.resume(name), "resume", name)

    def run(self, name: str) -> Handle[Any]:
        """Put its task now, besides its ticks, paused or not."""
        return self._handle(name, self._run(lambda schedules: schedules.run(name), "run", name))

    async def arun(self, name: str) -> Handle[Any]:
        """As `run`, for async callers."""
        return self._handle(name, await self._arun(lambda schedules: schedules.run(name), "run", name))

    def remove(self, name: str) -> Schedule:
        """Remove a schedule that was added at run time; code that declares one would bring it back."""
        return self._run(lambda schedules: schedules.remove(name), "remove", name)

    async def aremove(self, name: str) -> Schedule:
        """As `remove`, for async callers."""
        return await self._arun(lambda schedules: schedules.remove(name), "remove", name)

    def _add(
        self, name: str, handler: Handler[Any, Any, Any] | str, fields: dict[str, Any]
    ) -> "Callable[[ScheduleClient], Coroutine[Any, Any, Schedule]]":
        target = handler.name if isinstance(handler, Handler) else handler

        async def add(schedules: ScheduleClient) -> Schedule:
            if target in self._app.handlers:
                await self._app.introduced(target)
            return await schedules.add(name, target, **fields)

        return add

    def _pausing(self, name: str, reason: str) -> "_Work[Schedule]":
        by = who_acts()
        return lambda schedules: schedules.pause(name, by=by, reason=reason)

    def _run(self, work: _Work[T], act: str = "", name: str = "", fields: _Fields = None) -> T:
        return self._app.ask(
            lambda client: self._ready(client, work, act, name, fields), limit=LIMIT, what="asking for schedules"
        )

    async def _arun(self, work: _Work[T], act: str = "", name: str = "", fields: _Fields = None) -> T:
        return await self._app.aask(lambda client: self._ready(client, work, act, name, fields))

    async def _ready(self, client: Client, work: _Work[T], act: str, name: str, fields: _Fields) -> T:
        """Without an `act` it only reads."""
        await self._app.declare_once(client)
        if act:
            client = self._app.acting(client, f"schedules {act}", name, **(fields or {}))
        return await work(ScheduleClient(client.store, self._app.new_id))

    def _handle(self, name: str, placed: Placed) -> Handle[Any]:
        handler = self._app.scheduled_handler(name)
        return Handle(self._app, placed, handler.params.unpack_result if handler else None)
