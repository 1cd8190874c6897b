"""What follows when a task fails for good: fallbacks and dead letters, as code declares them."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pitboss import App, Context, DeadTask, Fail, InvalidInput, ctx
from pitboss.model.canonical import from_json
from pitboss.testing.sandbox import sandbox


@pytest.fixture
def app() -> App:
    return App("memory://", name="shop")


def about(app: App, name: str) -> Any:
    return {info.name: json.loads(info.about) for info in app.describe()}[name]


def test_a_fallback_gets_the_params_of_the_failed_task(app: App) -> None:
    seen: list[object] = []

    @app.task
    async def cached_price(product: int, currency: str = "EUR") -> None:
        assert ctx.failed is not None
        seen.append((product, ctx.failed.handler, ctx.failed.message, ctx.failed.attempts))

    @app.task(max_attempts=2, backoff="1s", fallback=cached_price)
    async def live_price(product: int, currency: str = "EUR") -> None:
        assert ctx.failed is None
        raise ConnectionError("the price server is down")

    assert about(app, "live_price") == {"fallback": "cached_price"}
    assert about(app, "cached_price") == {}
    with sandbox(app) as box:
        live_price.enqueue(7)
        box.drain_all()
        assert [task.handler for task in box.tasks(state="completed")] == ["cached_price"]
    assert seen == [(7, "live_price", "the price server is down", 2)]


def test_a_fallback_can_be_named_and_declared_later(app: App) -> None:
    @app.scheduled_task(every="1h", fallback="tell")
    def poll() -> None:
        raise Fail("no")

    @app.task(fallback="of_another_app")
    def lonely() -> None: ...

    @app.task
    def tell(**params: Any) -> None: ...

    app.describe()
    with sandbox(app) as box:
        app.schedules.run("poll")
        assert [task.handler for task in box.drain()] == ["poll", "tell"]
        (told,) = box.tasks(task="tell")
        assert from_json(told.meta or "{}")["tick"]["schedule"] == "poll"


def test_a_handler_is_not_its_own_fallback(app: App) -> None:
    with pytest.raises(InvalidInput, match="its own fallback"):
        app.task(name="job", fallback="job")(lambda: None)


def test_a_plain_function_is_no_fallback(app: App) -> None:
    """It ended in a TypeError about strings, which said nothing of the missing decorator."""

    def cached() -> None: ...

    declaring: list[Callable[..., Any]] = [app.task, partial(app.scheduled_task, every="1h")]
    for declare in declaring:
        with pytest.raises(InvalidInput, match=r"cannot be a fallback[\s\S]*@app\.task first"):
            declare(name="job", fallback=cached)(lambda: None)
    assert app.handlers == {}


def test_a_fallback_that_cannot_take_the_params_is_refused(app: App) -> None:
    @app.task(fallback="second")
    def first(a: int, b: int = 1) -> None: ...

    @app.task(fallback="third")
    def second(a: int) -> None: ...

    with pytest.raises(InvalidInput, match="does not take b"):
        app.describe()
    del app.handlers["first"]

    @app.task
    def third(a: int, c: int) -> None: ...

    with pytest.raises(InvalidInput, match="it needs c"):
        app.describe()


def test_dead_letters_of_a_queue_go_to_its_handler(app: App) -> None:
    seen: list[object] = []

    @app.dead_letter_handler("mail", "sms", queue="support", max_attempts=2)
    async def tell_support(letter: DeadTask, context: Context) -> None:
        assert letter.error is not None
        assert letter.failed_at is not None
        assert letter.failed_at.tzinfo is not None
        assert context.failed is not None
        seen.append((letter.handler, letter.queue, letter.params, letter.error.message, context.failed.id == letter.id))

    @app.dead_letter_handler("*")
    def note(dead: Any) -> None:
        seen.append(sorted(dead)[:3])

    @app.task(queue="mail", max_attempts=1)
    def send(to: str) -> None:
        raise ValueError("no such address")

    assert about(app, "tell_support") == {"dead_letters": ["mail", "sms"], "parameter": "letter"}
    assert tell_support.queue == "support"
    with sandbox(app) as box:
        send.enqueue("a@b")
        box.drain_all()
        assert len(box.tasks(state="completed")) == 2
    assert sorted(seen, key=str) == [
        ("send", "mail", {"to": "a@b"}, "no such address", True),
        ["attempts", "created_at", "error"],
    ]


def test_a_handler_of_dead_letters_needs_a_queue_and_a_function(app: App) -> None:
    with pytest.raises(InvalidInput, match="has no queue"):
        app.dead_letter_handler()
    with pytest.raises(InvalidInput, match="cannot name a queue"):
        app.dead_letter_handler("my queue")
    with pytest.raises(InvalidInput, match="no option 'tags'"):
        app.dead_letter_handler("q", tags="x")  # type: ignore[call-arg]

    @app.task
    def job(dead: Any) -> None: ...

    with pytest.raises(InvalidInput, match="is a handler already"):
        app.dead_letter_handler("q")(job)
