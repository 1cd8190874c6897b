"""Declaring handlers and enqueueing, as a user does it. The store is in memory; engines have tests of their own."""

import asyncio
import dataclasses
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from uuid import UUID

import pydantic
import pytest

from pitboss import App, Context, InvalidInput, NotFound, QueueFull, State, TaskFailed, TimedOutWaiting, ctx
from pitboss.engines.host_clock import SystemClock
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.testing.clock import FakeClock
from pitboss.testing.sandbox import sandbox


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Page:
    url: str
    size: int


class Order(pydantic.BaseModel):
    number: UUID
    at: datetime


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:
        yield app


def stored(app: App) -> list[str]:
    store = app._connected().engine

    async def find(_: object) -> list[str]:
        return [task.params for task in (await store.find(EVERYTHING, oldest_first=True)).tasks]

    return app.ask(find, limit=5, what="finding")


def test_a_plain_call_just_runs(app: App) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task
    async def later(a: int) -> int:
        await asyncio.sleep(0)
        return a + ctx.attempt

    assert add(1) == 2
    assert asyncio.run(later(1)) == 2


def test_a_context_is_handed_to_a_plain_call(app: App) -> None:
    @app.task
    def attempt(context: Context = ctx) -> int:
        return context.attempt

    assert attempt() == 1


def test_ctx_outside_a_handler_says_so() -> None:
    with pytest.raises(RuntimeError, match="only works inside a handler"):
        _ = ctx.attempt


def test_arguments_are_stored_by_name_in_canonical_form(app: App) -> None:
    @app.task
    def act(page: Page, order: Order, colour: Colour, when: timedelta = timedelta(seconds=1)) -> None: ...

    order = Order(number=UUID(int=1), at=datetime(2026, 1, 2, tzinfo=UTC))
    act.enqueue(Page("u", 3), order=order, colour=Colour.RED)
    assert stored(app) == [
        '{"colour":"red","order":{"at":"2026-01-02T00:00:00Z","number":"00000000-0000-0000-0000-000000000001"},'
        '"page":{"size":3,"url":"u"}}'
    ]


def test_a_handler_gets_the_types_it_asked_for() -> None:
    app = App("memory://")
    seen: list[object] = []

    @app.task
    def act(page: Page, order: Order, colour: Colour) -> Page:
        seen.extend([page, order, colour])
        return page

    order = Order(number=UUID(int=1), at=datetime(2026, 1, 2, tzinfo=UTC))
    with sandbox(app, inline=True):
        assert act.enqueue(Page("u", 3), order, Colour.RED).result(1) == Page("u", 3)
    assert seen == [Page("u", 3), order, Colour.RED]


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "url: Field required"),
        (("x", 1, 2), {}, "too many positional arguments"),
        (("x",), {"dept": 1}, "dept: Extra inputs are not permitted"),
        (("x",), {"depth": "deep"}, "depth: Input should be a valid integer"),
        ((b"\xff",), {}, "url"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_stored(
    app: App, args: tuple[object, ...], kwargs: dict[str, object], said: str
) -> None:
    @app.task
    def fetch(url: str, depth: int = 1) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        fetch.enqueue(*args, **kwargs)  # type: ignore[arg-type]
    assert said in caught.value.why
    assert "fetch(url: str, depth: int = 1)" in caught.value.fix
    assert stored(app) == []


@pytest.mark.parametrize("value", [float("nan"), "nul\0", "\ud800", 2**70, {"a": object()}])
def test_values_that_a_store_could_not_hold_are_refused(app: App, value: object) -> None:
    @app.task
    def take(value) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(InvalidInput):
        take.enqueue(value)
    assert stored(app) == []


def test_many_are_stored_in_one_act_or_not_at_all(app: App) -> None:
    @app.task
    def take(number: int) -> None: ...

    with pytest.raises(InvalidInput):
        take.enqueue_many([{"number": 1}, {"number": "x"}])
    assert stored(app) == []
    handles = take.enqueue_many({"number": number} for number in range(1000))
    assert [from_json(params)["number"] for params in stored(app)] == list(range(50))
    assert len({handle.id for handle in handles}) == 1000


def test_options_reach_the_task(app: App) -> None:
    @app.task(queue="mail", priority=3, tags=["eu"])
    def send(to: str) -> None: ...

    task = (
        send.using(delay="10m", priority=1, max_attempts=2, timeout=30, expires_in="1h", tags="us", queue="slow")
        .enqueue("a")
        .task()
    )
    assert (task.queue, task.priority, task.tags, task.max_attempts) == ("slow", 1, ("us",), 2)
    assert task.timeout == 30 * SECOND
    assert task.run_at is not None
    assert task.expires_at is not None
    assert task.expires_at - task.run_at == 50 * 60 * SECOND
    plain = send.enqueue("b").task()
    assert (plain.queue, plain.priority, plain.tags, plain.run_at) == ("mail", 3, ("eu",), None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dely": 3}, "no option dely"),
        ({"delay": "soon"}, "not a duration"),
        ({"delay": -1}, "not a duration"),
        ({"run_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - the missing zone is the point
        ({"priority": 10**6}, "whole number"),
        ({"priority": True}, "whole number"),
        ({"max_attempts": 0}, "whole number"),
        ({"key": ""}, "unique key"),
        ({"tags": ["a b"]}, "cannot name a tag"),
        ({"queue": "no spaces"}, "cannot name a queue"),
    ],
)
def test_options_that_make_no_sense_are_refused(app: App, options: dict[str, object], said: str) -> None:
    @app.task
    def act() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        act.using(**options)
    assert said in str(caught.value)


def test_a_unique_key_meets_the_task_that_is_there(app: App) -> None:
    @app.task
    def sync(account: int) -> None: ...

    @app.task
    def other(account: int) -> None: ...

    first = sync.using(key="a:1").enqueue(1)
    second = sync.using(key="a:1").enqueue(1)
    assert (second.id, first.created, second.created) == (first.id, True, False)
    assert other.using(key="a:1").enqueue(1).created


def test_by_name_is_checked_like_a_call(app: App) -> None:
    @app.task(queue="mail")
    def send(to: str) -> None: ...

    assert app.send("send", {"to": "a"}).task().queue == "mail"
    with pytest.raises(InvalidInput, match="to: Input should be a valid string"):
        app.send("send", {"to": 5})


def test_a_handler_of_another_process_is_checked_by_its_schema(app: App) -> None:
    schema = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
    info = HandlerInfo(name="far", queue="away", schema=schema)
    app.ask(lambda client: client.store.register([info]), limit=5, what="registering")
    task = app.send("far", {"n": 1}, priority=2).task()
    assert (task.queue, task.priority, task.state) == ("away", 2, State.PENDING)
    with pytest.raises(InvalidInput) as caught:
        app.send("far", {"n": "x"})
    assert "n:" in caught.value.why


def test_an_unknown_name_is_held_not_lost(app: App) -> None:
    task = app.send("unknown", {"a": 1}).task()
    assert (task.state, task.reason) == (State.HELD, "handler")


def test_two_handlers_of_one_name_are_refused(app: App) -> None:
    @app.task
    def act() -> None: ...

    with pytest.raises(InvalidInput, match='two handlers named "act"'):

        @app.task(name="act")
        def another() -> None: ...


def test_signatures_that_cannot_be_stored_are_refused_with_the_reason(app: App) -> None:
    @app.task
    def many(*urls: str) -> None: ...

    with pytest.raises(InvalidInput, match="stored by name"):
        many.enqueue("a")

    @app.task
    def thread(lock: threading.Thread) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be stored as JSON"):
        thread.enqueue(threading.current_thread())


def test_a_full_queue_refuses_or_waits(app: App) -> None:
    @app.task(queue="small")
    def act() -> None: ...

    store = app._connected().engine
    app.ask(lambda _: store.change_queue("small", QueueChange(capacity=1)), limit=5, what="limiting")
    first = act.enqueue()
    with pytest.raises(QueueFull, match='queue "small" is full: 1 of 1'):
        act.enqueue()
    with pytest.raises(QueueFull):
        act.using(wait="50ms").enqueue()
    timer = threading.Timer(0.2, first.cancel)
    timer.start()
    assert act.using(wait="5s").enqueue().created
    timer.join()


def test_waiting_for_a_result_ends(app: App) -> None:
    @app.task
    def act() -> None: ...

    handle = act.enqueue()
    with pytest.raises(TimedOutWaiting, match="did not end within 50ms"):
        handle.result(timeout=0.05)
    assert handle.cancel("bored") is State.CANCELLED
    with pytest.raises(TaskFailed, match="bored"):
        handle.result(timeout=1)


def test_async_callers_have_the_same(app: App) -> None:
    @app.task
    async def act(number: int = 1) -> None: ...

    async def main() -> None:
        handle = await act.aenqueue(5)
        assert (await handle.atask()).params == '{"number":5}'
        assert len(await act.aenqueue_many([{}, {"number": 2}])) == 2
        assert (await app.asend("act", {})).created
        with pytest.raises(TimedOutWaiting):
            await handle.aresult(timeout=0.02)
        assert await handle.acancel() is State.CANCELLED

    asyncio.run(main())


def test_many_threads_share_one_app(app: App) -> None:
    @app.task
    def act(number: int) -> None: ...

    ids: list[str] = []

    def enqueue() -> None:
        ids.extend(act.enqueue(number).id for number in range(50))

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 400


def test_a_task_that_is_not_there_is_named(app: App) -> None:
    @app.task
    def act() -> None: ...

    handle = act.enqueue()
    store = app._connected().engine
    handle.cancel()
    app.ask(lambda _: store.prune(EVERYTHING), limit=5, what="pruning")
    with pytest.raises(NotFound, match=handle.id):
        handle.task()


def test_the_store_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_STORE", "memory://")
    with App() as app:

        @app.task
        def act() -> None: ...

        assert act.enqueue().created
        assert app._connected().engine.name == "memory"


@pytest.mark.parametrize("url", ["", "pitboss.db", "mysql://x", "sqlite://pitboss.db", "sqlite:///"])
def test_a_url_that_names_no_store_is_refused_with_the_forms(url: str) -> None:
    app = App(url or "nothing")

    @app.task
    def act() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        act.enqueue()
    assert "sqlite:///" in str(caught.value)


def test_a_fork_opens_its_own_way_to_the_store(app: App) -> None:
    @app.task
    def act() -> None: ...

    act.enqueue()
    child = os.fork()
    if child == 0:
        # The parent's loop thread does not exist here: hanging would be the bug.
        code = 1
        try:
            code = 0 if act.enqueue().created else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_why_it_took_too_long_is_told_by_the_stores_clock(app: App) -> None:
    """It is a day behind the host's, as after a step; by the host's clock the task is due."""
    app.use("memory://", clock=FakeClock(SystemClock().now() - 24 * 3600 * SECOND))

    @app.task
    def act() -> None: ...

    later = act.using(delay="1h")
    with pytest.raises(TimedOutWaiting, match="it is due in 1h"):
        later.enqueue().result(timeout=0)
    batch = app.batch([later.prepared()])
    batch.start()
    with pytest.raises(TimedOutWaiting, match="due later: is due in 1h"):
        batch.wait(0)
