"""Large calls, whose tasks are made while the first of them are stored."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitboss import App, InvalidInput
from pitboss.client.context import Context
from pitboss.client.handler import LARGE, LazyTasks
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import make_id
from pitboss.model.task import Claim, NewTask, Placed, Task, Token

MANY = 3 * LARGE


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    urls = {"memory": lambda: "memory://", "sqlite": lambda: f"sqlite:///{tmp_path}/many.db"}
    make = urls.get(request.param) or (lambda: request.getfixturevalue("postgres_dsn"))
    with App(make()) as app:
        yield app


def _task(app: App, task: str) -> Task:
    store = app._connected().engine

    async def got(_: object) -> Task | None:
        return (await store.get([task]))[0]

    found = app.ask(got, limit=5, what="looking")
    assert found is not None
    return found


def _count(app: App) -> int:
    store = app._connected().engine
    return app.ask(lambda _: store.count(EVERYTHING), limit=5, what="counting").number


def test_a_call_that_is_refused_late_stores_nothing(app: App) -> None:
    @app.task
    def take(number: int) -> None: ...

    take.enqueue(number=0)
    with pytest.raises(InvalidInput, match="number"):
        take.enqueue_many({"number": number if number != MANY - 3 else "x"} for number in range(MANY))
    assert _count(app) == 1
    assert len(take.enqueue_many({"number": number} for number in range(MANY))) == MANY
    assert _count(app) == 1 + MANY


def test_handles_are_in_the_order_of_the_calls(app: App) -> None:
    @app.task
    def take(number: int) -> None: ...

    handles = take.enqueue_many({"number": number} for number in range(MANY))
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)
    assert _task(app, handles[MANY - 2].id).params == f'{{"number":{MANY - 2}}}'


def test_async_callers_and_tasks_that_enqueue_many(app: App) -> None:
    """The parent is the task in which the call was made, wherever its tasks are made."""

    @app.task
    def take(number: int) -> None: ...

    parent = make_id(1_800_000_000_000, 1, 1)

    async def work() -> list[str]:
        with Context(Claim(id=parent, token=Token(0, 1), handler="p", queue="q", params="{}", attempt=1)).running():
            return [handle.id for handle in await take.aenqueue_many({"number": n} for n in range(MANY))]

    ids = asyncio.run(work())
    assert {_task(app, ids[0]).parent, _task(app, ids[-1]).parent} == {parent}


@pytest.mark.parametrize("many", [3, MANY])
def test_a_caller_may_use_one_mapping_for_all_calls(app: App, many: int) -> None:
    @app.task
    def take(numbers: list[int]) -> None: ...

    def calls() -> Iterator[dict[str, list[int]]]:
        call: dict[str, list[int]] = {"numbers": [0]}
        for number in range(many):
            call["numbers"][0] = number
            yield call

    handles = take.enqueue_many(calls())
    assert [_task(app, handles[place].id).params for place in (0, -1)] == [
        '{"numbers":[0]}',
        f'{{"numbers":[{many - 1}]}}',
    ]


def test_each_task_is_made_once_and_when_it_is_asked_for() -> None:
    made: list[str] = []

    def make(params: str) -> NewTask:
        made.append(params)
        return NewTask(id=make_id(1, len(made), 1), handler="a", queue="q", params=params)

    tasks = LazyTasks(make, [str(number) for number in range(MANY)])
    assert (len(tasks), len(made)) == (MANY, 0)
    assert [tasks[0], *tasks[1:5]] == tasks[:5]
    assert len(made) == 5
    assert [one.params for one in (tasks[-3], *tasks[-5:-3])] == [str(MANY - 3), str(MANY - 5), str(MANY - 4)]
    assert len(made) == MANY - 2
    assert tasks[-1] == [*tasks][-1]
    assert made == [str(number) for number in range(MANY)]
    assert tasks[MANY:] == []
    with pytest.raises(IndexError):
        tasks[MANY]


def test_a_store_that_is_away_for_a_moment_gets_the_same_tasks_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def take(number: int) -> None: ...

    take.enqueue(number=0)
    engine = app._connected().engine
    put, seen = engine.put, list[set[str]]()

    async def lost(tasks: list[NewTask]) -> list[Placed]:
        placed = await put(tasks)
        seen.append({task.id for task in tasks})
        if len(seen) == 1:
            raise StoreUnavailable("lost", why="the answer never came", fix="repeat the call")
        return placed

    monkeypatch.setattr(engine, "put", lost)
    handles = asyncio.run(take.aenqueue_many({"number": number} for number in range(MANY)))
    assert seen[0] == seen[1] == {handle.id for handle in handles}
    assert _count(app) == 1 + MANY
