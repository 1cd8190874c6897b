"""Declaring hooks: which functions get which facts."""

import functools
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pitboss import App, InvalidInput, facts
from pitboss.client.hooks import Hook
from pitboss.model.facts import AnyFact, Fact
from pitboss.worker.channel import FactMessage, encoded, hooks_codec
from pitboss.worker.describe import described

CLASSES: tuple[type[Fact], ...] = (
    facts.TaskCompleted,
    facts.TaskFailed,
    facts.TaskRetried,
    facts.TaskCancelled,
    facts.WorkerStarted,
    facts.WorkerCrashed,
    facts.WorkerGivenUp,
    facts.PoolScaled,
)


def done(queue: str = "default", handler: str = "fetch", pool: str = "default") -> facts.TaskCompleted:
    return facts.TaskCompleted(id="t", handler=handler, queue=queue, attempt=1, pool=pool)


def names(hooks: list[Hook]) -> list[str]:
    return [hook.name.rpartition(".")[2] for hook in hooks]


def test_a_bare_hook_hears_every_fact_of_its_kind() -> None:
    app = App()

    @app.on_task_completed
    def first(fact: facts.TaskCompleted) -> None: ...

    @app.on_task_completed
    async def second(fact: facts.TaskCompleted) -> None: ...

    assert names(app.hooks.wanting(done())) == ["first", "second"]
    assert [hook.is_async for hook in app.hooks.wanting(done())] == [False, True]
    assert app.hooks.wanting(facts.PoolScaled(before=1, after=2)) == []
    assert app.hooks.kinds() == ["task_completed"]


def test_a_filter_keeps_away_what_does_not_match_all_of_it() -> None:
    app = App()

    @app.task
    def fetch() -> None: ...

    @app.on_task_completed(queue="web")
    def of_queue(fact: facts.TaskCompleted) -> None: ...

    @app.on_task_completed(handler=fetch, pool="big")
    def of_handler(fact: facts.TaskCompleted) -> None: ...

    @app.on_task_completed(handler="fetch", queue="web")
    def of_both(fact: facts.TaskCompleted) -> None: ...

    assert names(app.hooks.wanting(done("web"))) == ["of_queue", "of_both"]
    assert names(app.hooks.wanting(done("web", "parse"))) == ["of_queue"]
    assert names(app.hooks.wanting(done(pool="big"))) == ["of_handler"]
    assert app.hooks.wanting(done()) == []


def test_workers_are_filtered_by_pool() -> None:
    app = App()

    @app.on_worker_given_up(pool="download")
    def page(fact: facts.WorkerGivenUp) -> None: ...

    assert names(app.hooks.wanting(facts.WorkerGivenUp(worker="download-1", pool="download"))) == ["page"]
    assert app.hooks.wanting(facts.WorkerGivenUp(worker="cut-1", pool="cut")) == []


def test_a_hook_is_still_the_function_that_it_was() -> None:
    app = App()

    @app.on_task_completed(queue="default")
    def plus_one(fact: facts.TaskCompleted) -> int:
        return fact.attempt + 1

    assert plus_one(done()) == 2


def test_anything_that_can_be_called_with_one_fact_is_a_hook() -> None:
    app = App()

    class Counter:
        async def __call__(self, fact: facts.TaskCompleted) -> None: ...

        def method(self, fact: facts.TaskCompleted) -> None: ...

    def with_more(word: str, fact: facts.TaskCompleted) -> None: ...

    app.on_task_completed(Counter())
    app.on_task_completed(Counter().method)
    app.on_task_completed(functools.partial(with_more, "x"))
    app.on_task_completed(str)
    assert [hook.is_async for hook in app.hooks.wanting(done())] == [True, False, False, False]


def test_what_cannot_be_called_with_one_fact_is_refused() -> None:
    app = App()

    def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="called with one argument, the fact"):
        app.on_task_completed(nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="called with one argument, the fact"):
        app.on_task_completed("download")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="cannot name a queue"):
        app.on_task_completed(queue="no spaces")
    assert app.hooks.kinds() == []


def test_a_task_is_no_hook() -> None:
    app = App()
    with pytest.raises(InvalidInput, match='task "tidy" cannot be a hook'):

        @app.on_task_completed
        @app.task
        def tidy(fact: facts.TaskCompleted) -> None: ...


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_kind_of_fact_has_its_decorator(kind: type[Fact]) -> None:
    app = App()
    name = facts.kind_of(kind)
    getattr(app, f"on_{name}")(lambda fact: None)
    assert app.hooks.kinds() == [name]
    assert name == "".join(f"_{one.lower()}" if one.isupper() else one for one in kind.__name__)[1:]


def test_a_description_names_the_kinds_that_are_wanted(tmp_path: Path) -> None:
    text = "from pitboss import App\napp = App()\n@app.task\ndef act(): ...\n"
    plain = tmp_path / "plain_app.py"
    plain.write_text(text)
    assert described(str(plain)).hooks == []
    hooked = tmp_path / "hooked_app.py"
    hooked.write_text(f"{text}@app.on_pool_scaled\ndef a(e): ...\n@app.on_task_failed(handler='act')\ndef b(e): ...\n")
    assert described(str(hooked)).hooks == ["pool_scaled", "task_failed"]


def test_a_hook_for_a_handler_that_does_not_exist_is_refused_when_the_app_is_loaded(tmp_path: Path) -> None:
    place = tmp_path / "mistyped_app.py"
    place.write_text("from pitboss import App\napp = App()\n@app.on_task_failed(handler='atc')\ndef hear(e): ...\n")
    error = described(str(place)).error
    assert error is not None
    assert 'hook hear waits for a task "atc", which this app does not have' in error


@pytest.mark.parametrize(
    "fact",
    [
        done(),
        facts.TaskRetried(id="t", handler="fetch", queue="q", attempt=2, delay=5, tags=("eu",)),
        facts.WorkerCrashed(worker="w", code=-9, lost=("t1", "t2")),
        facts.PoolScaled(before=1, after=3, why="backlog"),
    ],
)
def test_facts_survive_the_way_to_the_hooks(fact: AnyFact) -> None:
    messages: list[object] = [FactMessage(fact)]
    assert list(hooks_codec().feed(encoded(messages))) == messages  # type: ignore[arg-type]
    assert msgspec.to_builtins(fact)["kind"] == fact.kind


def test_results_and_params_are_read_when_they_are_asked_for() -> None:
    fact = facts.TaskCompleted(
        id="t", handler="fetch", queue="q", attempt=1, params='{"url":"u"}', result="[1,2]", at=1_700_000_000_500_000
    )
    assert (fact.arguments(), fact.value()) == ({"url": "u"}, [1, 2])
    assert done().value() is None
    assert fact.when == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    with pytest.raises(AttributeError):
        fact.attempt = 2  # type: ignore[misc]
