"""Read by mypy only: what a user's editor says of right and wrong hooks."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from pitboss import App, events

app = App()


@app.task
def fetch(url: str) -> int:
    return len(url)


@app.on_task_completed
def bare(event: events.TaskCompleted) -> None: ...


@app.on_task_failed(queue="download", handler=fetch)
async def filtered(event: events.TaskFailed) -> str:
    return event.id


@app.on_worker_crashed(pool="download")
def of_pool(event: events.WorkerCrashed) -> None: ...


@app.on_pool_scaled
def anything(event: events.Event) -> None: ...


def right() -> None:
    assert_type(bare, Callable[[events.TaskCompleted], None])
    assert_type(filtered, Callable[[events.TaskFailed], Coroutine[Any, Any, str]])


@app.on_task_failed  # type: ignore[arg-type]
def of_another_kind(event: events.TaskCompleted) -> None: ...


@app.on_task_failed(queue="download")  # type: ignore[arg-type]
def of_another_kind_filtered(event: events.TaskCompleted) -> None: ...


def wrong() -> None:
    app.on_pool_scaled(queue="download")  # type: ignore[call-overload]
    app.on_task_completed(retries=3)  # type: ignore[call-overload]
