"""Events from a process that has the app: published, checked, handled."""

import asyncio
import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

from pitboss import App, Context, InvalidInput, State, ctx
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.protocol import FullStore
from pitboss.model.canonical import from_json
from pitboss.model.filter import EVERYTHING
from pitboss.testing.sandbox import sandbox


class Signup(pydantic.BaseModel):
    user_id: int
    at: datetime | None = None


@pytest.fixture
def app() -> App:
    return App("memory://", name="shop")


def test_an_event_becomes_a_task_of_each_handler(app: App) -> None:
    seen: list[object] = []

    @app.event_handler("user.signup")
    async def greet(event_data: Any) -> None:
        assert ctx.event is not None
        seen.append((event_data["user_id"], ctx.event.name, ctx.event.key))

    @app.event_handler("user.*", "*.signup")
    def audit(signup: Signup, context: Context) -> None:
        assert context.event is not None
        seen.append((signup, context.event.id))

    with sandbox(app) as box:
        published = app.publish("user.signup", {"user_id": 7}, key="u:7")
        assert (published.created, published.handlers) == (True, ("audit", "greet"))
        assert app.publish("other").handlers == ()
        box.drain()
        assert len(box.tasks(state="completed")) == 2
    assert sorted(seen, key=str) == [(7, "user.signup", "u:7"), (Signup(user_id=7), published.id)]


def test_an_event_before_the_first_manager_is_not_lost(app: App) -> None:
    """The handlers and subscriptions of the process itself are stored before its first event, and only then."""
    declared: list[str] = []

    class Watched(MemoryEngine):
        async def declare(self, one: Any, *, session: int | None = None) -> bool:
            declared.append(one.app)
            return await super().declare(one, session=session)

    @app.event_handler("a")
    def handle(data: Any) -> None: ...

    with sandbox(app) as box:
        app.use(Watched(clock=box.clock))
        for _ in range(2):
            assert app.publish("a").handlers == ("handle",)
        assert declared == ["shop"]
        page = app.ask(lambda client: client.store.find(EVERYTHING), limit=5, what="finding")
        assert {task.state for task in page.tasks} == {State.PENDING}


def test_a_process_without_handlers_declares_nothing(app: App) -> None:
    app.event("a", Signup)
    with sandbox(app) as box:
        app.publish("a", {"user_id": 1})
        assert isinstance(box.store, FullStore)
        store = box.store
        assert app.ask(lambda _: store.declarations(), limit=5, what="reading") == []


def test_data_must_fit_the_event_s_type(app: App) -> None:
    app.event("user.signup", Signup)

    @app.event_handler("user.signup")
    def greet(data: dict[str, Any]) -> None: ...

    with sandbox(app) as box:
        app.publish("user.signup", Signup(user_id=1, at=datetime(2026, 1, 2, tzinfo=UTC)))
        app.publish("user.signup", {"user_id": "2"})
        for wrong in ({}, {"user_id": "x"}, None, 5):
            with pytest.raises(InvalidInput, match=r'does not fit the event "user\.signup"'):
                app.publish("user.signup", wrong)
        stored = [from_json(task.params)["data"] for task in box.tasks()]
    assert sorted(stored, key=lambda one: one["user_id"]) == [
        {"at": "2026-01-02T00:00:00Z", "user_id": 1},
        {"at": None, "user_id": 2},
    ]


def test_another_process_is_checked_by_the_stored_schema(app: App) -> None:
    app.event("user.signup", Signup)

    @app.event_handler("user.signup")
    def greet(data: Signup) -> None: ...

    with sandbox(app) as box:
        app.publish("user.signup", {"user_id": 1})
        other = App("memory://", name="web")
        other.use(box.store)
        with pytest.raises(InvalidInput, match="user_id"):
            other.publish("user.signup", {"user": 1})
        assert other.publish("user.signup", {"user_id": 1}).handlers == ("greet",)


@dataclasses.dataclass
class Point:
    x: int


def test_any_data_with_a_json_form_can_be_published(app: App) -> None:
    @app.event_handler("**")
    def note(data: Any) -> None: ...

    with sandbox(app) as box:
        for data, stored in (
            (Signup(user_id=1), {"at": None, "user_id": 1}),
            (Point(2), {"x": 2}),
            ([3], [3]),
            ("four", "four"),
            (None, None),
            (0, 0),
        ):
            app.publish("a", data)
            (task,) = box.drain()
            assert from_json(task.params)["data"] == stored
        with pytest.raises(InvalidInput, match="no JSON form"):
            app.publish("a", object())
        with pytest.raises(InvalidInput, match="cannot name an event"):
            app.publish("a b")
        app.publish("a")
        assert from_json(box.drain()[0].params)["data"] == {}


def test_a_repetition_publishes_nothing_more(app: App) -> None:
    @app.event_handler("paid")
    def book(data: Any) -> None: ...

    with sandbox(app) as box:
        first = app.publish("paid", {"n": 1}, idempotency_key="order-1")
        again = app.publish("paid", {"n": 1}, idempotency_key="order-1")
        assert (again.id, again.created, again.handlers) == (first.id, False, ("book",))
        with pytest.raises(InvalidInput, match="with other data"):
            app.publish("paid", {"n": 2}, idempotency_key="order-1")
        assert len(box.tasks()) == 1


@pytest.mark.parametrize("key", ["", "x" * 513])
def test_an_idempotency_key_has_text(app: App, key: str) -> None:
    """An empty one, as from a variable that was not set, made every event a repetition of the first."""
    with sandbox(app):
        with pytest.raises(InvalidInput, match="cannot be an idempotency key"):
            app.publish("paid", {"n": 1}, idempotency_key=key)
        assert app.publish("paid", {"n": 1}).created


def test_many_events_are_all_published_or_none(app: App) -> None:
    app.event("paid", Signup)

    @app.event_handler("paid", ordered=True)
    def book(data: Signup) -> int:
        return data.user_id

    with sandbox(app) as box:
        published = app.publish_many("paid", ({"user_id": one} for one in range(5)), key="k")
        assert len({one.id for one in published}) == 5
        with pytest.raises(InvalidInput):
            app.publish_many("paid", [{"user_id": 1}, {}])
        assert app.publish_many("paid", []) == []
        assert sorted(task.state.value for task in box.tasks()) == [*["held"] * 4, "pending"]
        assert [task.value() for task in box.drain()] == [0, 1, 2, 3, 4]


def test_async_callers_publish_too(app: App) -> None:
    @app.event_handler("a")
    async def handle(data: Any) -> None:
        if data == 1:
            await app.apublish("a", 2, key="k")
            app_wide = await app.apublish_many("a", [3, 4])
            assert len(app_wide) == 2

    async def main() -> None:
        assert (await app.apublish("a", 1)).handlers == ("handle",)

    with sandbox(app) as box:
        asyncio.run(main())
        box.drain()
        assert sorted(from_json(task.params)["data"] for task in box.tasks(state="completed")) == [1, 2, 3, 4]


def test_wrong_data_fails_the_task_without_retries(app: App) -> None:
    @app.event_handler("user.signup")
    def greet(data: Signup) -> None: ...

    with sandbox(app) as box:
        app.publish("user.signup", {"user": 1})
        (task,) = box.drain()
    assert (task.state.value, task.attempts) == ("failed", 1)
    assert task.error is not None
    assert task.error.category == "invalid"


def test_only_sql_stores_publish_within_a_transaction(app: App) -> None:
    with sandbox(app):
        with pytest.raises(InvalidInput, match="cannot publish within"):
            app.publish("a", within=object())
        with pytest.raises(InvalidInput, match="cannot have an idempotency key"):
            app.publish("a", within=object(), idempotency_key="x")


def test_what_is_published_goes_on_after_the_store_was_changed(app: App, tmp_path: Path) -> None:
    @app.event_handler("a")
    def handle(data: Any) -> None: ...

    for _ in range(2):
        with sandbox(app):
            assert app.publish("a").handlers == ("handle",)
