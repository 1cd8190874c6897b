"""Publishing from an app: its event types are checked, and its own handlers are declared before the first event."""

import inspect
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from pitboss.client.app_core import LIMIT
from pitboss.client.client import Client
from pitboss.client.declaring import Declaring
from pitboss.client.events import EventClient, new_event
from pitboss.client.params import plain_data
from pitboss.model.errors import InvalidInput
from pitboss.model.event import NewEvent, Published

_EVENTS_PER_SECOND = 1000


class Publisher:
    """What an app publishes."""

    def __init__(self, app: Declaring) -> None:
        self._app = app
        self._known: tuple[Client, EventClient] | None = None

    def publish(self, name: str, data: Any, *, key: str | None, idempotency_key: str | None, within: Any) -> Published:
        if within is not None:
            _refuse_remembered(idempotency_key)
            return self.publish_many(name, [data], key=key, within=within)[0]
        return self._app.run(self._one(name, self._plain(name, data), key, idempotency_key), what="publishing")

    async def apublish(
        self, name: str, data: Any, *, key: str | None, idempotency_key: str | None, within: Any
    ) -> Published:
        if within is not None:
            _refuse_remembered(idempotency_key)
            return (await self.apublish_many(name, [data], key=key, within=within))[0]
        return await self._app.arun(self._one(name, self._plain(name, data), key, idempotency_key))

    def publish_many(self, name: str, datas: Iterable[Any], *, key: str | None, within: Any) -> list[Published]:
        events = self._events(name, datas, key)
        if within is None:
            limit = LIMIT + len(events) / _EVENTS_PER_SECOND
            return self._app.run(self._many(events), what="publishing", limit=limit)
        engine = self._app.within_engine("publish")
        self._app.refuse_without_tables(within)
        self._app.run(self._checked(events, within), what="checking events")
        published: list[Published] = engine.publish_within(within, events)
        return published

    async def apublish_many(self, name: str, datas: Iterable[Any], *, key: str | None, within: Any) -> list[Published]:
        events = self._events(name, datas, key)
        if within is None:
            return await self._app.arun(self._many(events))
        engine = self._app.within_engine("publish")
        self._app.refuse_without_tables(within)
        await self._app.arun(self._checked(events, within))
        answer = engine.publish_within(within, events)
        published: list[Published] = await answer if inspect.isawaitable(answer) else answer
        return published

    def _events(self, name: str, datas: Iterable[Any], key: str | None) -> list[NewEvent]:
        return [new_event(self._app.new_id(), name, self._plain(name, data), key=key) for data in datas]

    def _plain(self, name: str, data: Any) -> Any:
        kind = self._app.event_data(name)
        if kind is not None:
            return kind.plain({} if data is UNSET else data)
        return UNSET if data is UNSET else plain_data(name, data)

    async def _one(self, name: str, data: Any, key: str | None, idempotency_key: str | None) -> Published:
        events = await self._app.aask(self._ready)
        return await events.publish(name, data, key=key, idempotency_key=idempotency_key)

    async def _many(self, new: list[NewEvent]) -> list[Published]:
        return await (await self._app.aask(self._ready)).publish_events(new) if new else []

    async def _checked(self, new: list[NewEvent], within: Any) -> None:
        if getattr(within, "in_transaction", False):  # of SQLite: meanwhile nothing else can be written
            await self._app.aask(self._app.require_declared)
            events = await self._app.aask(self._opened)
        else:
            events = await self._app.aask(self._ready)
        await events.check(new)

    async def _ready(self, client: Client) -> EventClient:
        events = await self._opened(client)
        await self._app.declare_once(client)
        return events

    async def _opened(self, client: Client) -> EventClient:
        if self._known is None or self._known[0] is not client:
            self._known = client, EventClient(client, self._app.new_id)
        return self._known[1]


def _refuse_remembered(idempotency_key: str | None) -> None:
    if idempotency_key is not None:
        raise InvalidInput(
            "an event within a transaction cannot have an idempotency key",
            why="the key is stored in an act of its own, which your rollback would not undo",
            fix="leave the key out: your own rows in the same transaction can tell a repetition",
        )
