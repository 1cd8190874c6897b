"""Where a task comes from is known to those that follow it; and tasks with one order key run one at a time."""

import asyncio
from typing import Any

import pytest

from pitboss import App, Context, InvalidInput, State, ctx
from pitboss.testing.sandbox import sandbox


@pytest.fixture
def app() -> App:
    return App("memory://", name="shop")


def test_what_a_task_enqueues_inherits_its_origin(app: App) -> None:
    @app.event_handler("a")
    async def handle(data: Any) -> None:
        await step.aenqueue(1)
        ctx.enqueue(step, 2)
        await app.asend("of_another_app", {})

    @app.task
    def step(number: int, context: Context = ctx) -> Any:
        assert context.event is not None
        assert context.scheduled_for is None
        return context.event.id

    with sandbox(app) as box:
        event = app.publish("a").id
        box.drain()
        assert [task.value() for task in box.tasks(task="step")] == [event, event]
        (other,) = box.tasks(task="of_another_app")
        (first,) = box.tasks(task="handle")
        assert (other.meta, other.parent) == (first.meta, first.id)


def test_what_a_fallback_enqueues_does_not_follow_the_failure(app: App) -> None:
    @app.task(max_attempts=1, fallback="rescue")
    def fails() -> None:
        raise ValueError

    @app.task
    def rescue() -> None:
        assert ctx.failed is not None
        step.enqueue()

    @app.task
    def step() -> None:
        assert ctx.failed is None

    with sandbox(app) as box:
        fails.enqueue()
        box.drain()
        assert [task.meta for task in box.tasks(task="step", state="completed")] == [None]


def test_a_plain_call_and_a_plain_task_come_from_nowhere(app: App) -> None:
    @app.task
    def job() -> list[object]:
        return [ctx.scheduled_for, ctx.last_success, ctx.event, ctx.failed]

    assert job() == [None] * 4
    with sandbox(app) as box:
        job.enqueue()
        assert box.drain()[0].value() == [None] * 4


def test_tasks_with_one_order_key_run_one_at_a_time(app: App) -> None:
    @app.task
    def book(amount: int) -> int:
        return amount

    with sandbox(app) as box:
        ordered = book.using(order_key="customer:7")
        handles = [ordered.enqueue(1), ordered.using(priority=5).enqueue(2)]
        book.using(order_key="customer:8").enqueue(3)
        assert [task.order_key for task in box.tasks()] == ["book/customer:7"] * 2 + ["book/customer:8"]
        assert [handle.task().state for handle in handles] == [State.PENDING, State.HELD]
        assert [task.value() for task in box.drain()] == [1, 3, 2]


def test_order_keys_are_keys_and_not_for_batches(app: App) -> None:
    @app.task
    def book(amount: int) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be an order key"):
        book.using(order_key="")
    ordered = book.using(order_key="k")
    with sandbox(app):
        with pytest.raises(InvalidInput, match="cannot have an order key"):
            ordered.batch([{"amount": 1}])
        with pytest.raises(InvalidInput, match="cannot have an order key"):
            app.batch([book.prepared(1), ordered.prepared(2)])
        with pytest.raises(InvalidInput, match="cannot have an order key"):
            asyncio.run(app.abatch([ordered.prepared(2)]))
