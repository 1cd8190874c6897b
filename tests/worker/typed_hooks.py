"""Read by mypy only: which hooks a user's editor accepts."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from pitboss import App, facts

app = App()


@app.task
def fetch(url: str) -> int:
    return len(url)


@app.on_task_completed
def bare(fact: facts.TaskCompleted) -> None: ...


@app.on_task_failed(queue="download", handler=fetch)
async def filtered(fact: facts.TaskFailed) -> str:
    return fact.id


@app.on_worker_crashed(pool="download")
def of_pool(fact: facts.WorkerCrashed) -> None: ...


@app.on_pool_scaled
def anything(fact: facts.Fact) -> None: ...


def right() -> None:
    assert_type(bare, Callable[[facts.TaskCompleted], None])
    assert_type(filtered, Callable[[facts.TaskFailed], Coroutine[Any, Any, str]])


@app.on_task_failed  # type: ignore[arg-type]
def of_another_kind(fact: facts.TaskCompleted) -> None: ...


@app.on_task_failed(queue="download")  # type: ignore[arg-type]
def of_another_kind_filtered(fact: facts.TaskCompleted) -> None: ...


def wrong() -> None:
    app.on_pool_scaled(queue="download")  # type: ignore[call-overload]
    app.on_task_completed(retries=3)  # type: ignore[call-overload]
