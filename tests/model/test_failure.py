"""What follows a failure. The engines' side is in the conformance suite."""

from typing import Any

import pydantic
import pytest
from msgspec.structs import replace

from pitboss.model.canonical import from_json
from pitboss.model.failure import DeadTask, failed_for_good, failure_tasks, has_routes, needed_handlers
from pitboss.model.ids import checked_id
from pitboss.model.queue import HandlerInfo
from pitboss.model.states import State
from pitboss.model.task import Task, TaskError

FAILED = Task(
    id="01900000-0000-7000-8000-000000000000",
    handler="job",
    queue="q",
    state=State.FAILED,
    params='{"n":1}',
    attempts=3,
    claim=4,
    created_at=1_000_000,
    finished_at=2_000_000,
    reason="attempts used up",
    error=TaskError(category="net", message="m" * 3000, type="OSError", traceback="tb", fingerprint="f"),
)


def test_ids_follow_from_the_task_and_its_claim() -> None:
    handlers = _handlers(job='{"fallback":"other"}', bury='{"dead_letters":["q"]}')
    first = failure_tasks(FAILED, handlers)
    assert [checked_id(task.id) for task in first] == [task.id for task in failure_tasks(FAILED, handlers)]
    later = failure_tasks(replace(FAILED, claim=5), handlers)
    assert not {task.id for task in first} & {task.id for task in later}
    assert len({task.id for task in first}) == 2


def test_the_dead_letter_reads_back_as_a_dead_task() -> None:
    (letter,) = failure_tasks(FAILED, _handlers(bury='{"dead_letters":["*"],"parameter":"it"}'))
    dead = pydantic.TypeAdapter(DeadTask).validate_python(from_json(letter.params)["it"])
    assert (dead.id, dead.handler, dead.queue, dead.params, dead.attempts) == (FAILED.id, "job", "q", {"n": 1}, 3)
    assert dead.error is not None
    assert (dead.error.category, dead.error.type, dead.error.traceback) == ("net", "OSError", "tb")
    assert dead.failed_at is not None
    assert dead.failed_at.timestamp() == 2


def test_the_mark_of_a_fallback_is_short() -> None:
    (fallback,) = failure_tasks(FAILED, _handlers(job='{"fallback":"other"}'))
    assert len(from_json(fallback.meta or "")["failure"]["message"]) == 2000


def test_only_needed_handlers_are_read() -> None:
    abouts = {"job": '{"fallback":"other"}', "bury": '{"dead_letters":["q"]}', "far": '{"dead_letters":["x"]}'}
    assert needed_handlers([FAILED], abouts) == {"job", "other", "bury"}
    assert needed_handlers([replace(FAILED, handler="plain", queue="y")], abouts) == set()


@pytest.mark.parametrize(
    ("about", "has"),
    [("{}", False), ('{"version":3}', False), ('{"fallback":"x"}', True), ('{"dead_letters":["*"]}', True)],
)
def test_routes_are_told_from_other_facts(about: str, has: bool) -> None:
    assert has_routes(about) is has


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({}, True),
        ({"state": State.CANCELLED, "reason": "expired"}, True),
        ({"state": State.CANCELLED, "reason": "enough"}, False),
        ({"state": State.COMPLETED}, False),
        ({"state": State.PENDING}, False),
    ],
)
def test_what_counts_as_a_failure(changes: dict[str, Any], follows: bool) -> None:
    assert failed_for_good(replace(FAILED, **changes)) is follows


def _handlers(**abouts: str) -> dict[str, HandlerInfo]:
    return {name: HandlerInfo(name=name, about=about) for name, about in abouts.items()}


def _source(name: str, handler: str = "job") -> str:
    return f'{{"dead_letters":[],"dead_letters_of":["{handler}"],"source":"{name}"}}'


def _from(source: str) -> str:
    return f'{{"message":{{"source":"{source}","queue":"in","id":"m1"}}}}'


def _followers(task: Task, **abouts: str) -> list[str]:
    return [one.handler for one in failure_tasks(task, _handlers(**abouts))]


def test_a_source_gets_the_failures_of_its_handler_in_any_queue() -> None:
    assert has_routes(_source("one"))
    assert _followers(FAILED, out_one=_source("one")) == ["out_one"]
    assert _followers(replace(FAILED, queue="elsewhere"), out_one=_source("one")) == ["out_one"]
    assert _followers(replace(FAILED, handler="other"), out_one=_source("one")) == []
    assert needed_handlers([FAILED], {"out_one": _source("one"), "out_two": _source("two", "x")}) == {"out_one"}


def test_of_several_sources_with_one_handler_only_its_own_gets_a_failure() -> None:
    abouts = {"out_a": _source("a"), "out_b": _source("b"), "bury": '{"dead_letters":["q"]}'}
    assert _followers(replace(FAILED, meta=_from("b")), **abouts) == ["bury", "out_b"]
    assert _followers(replace(FAILED, meta=_from("a")), **abouts) == ["bury", "out_a"]
    # Of no source, or of one that is gone: the first.
    assert _followers(FAILED, **abouts) == ["bury", "out_a"]
    assert _followers(replace(FAILED, meta=_from("gone")), **abouts) == ["bury", "out_a"]


def test_the_only_source_of_a_handler_gets_also_what_came_from_another() -> None:
    assert _followers(replace(FAILED, meta=_from("b")), out_a=_source("a"), out_b=_source("b", "other")) == ["out_a"]


def test_a_source_hears_whether_the_task_follows_from_another() -> None:
    """A dead-letter handler of the app does not: it reads its parameter as a `DeadTask`."""
    child = replace(FAILED, parent="01900000-0000-7000-8000-000000000001")
    told = {one.handler: from_json(one.params)["dead"] for one in failure_tasks(child, _both())}
    assert told["out_one"]["parent"] == child.parent
    assert "parent" not in told["bury"]
    own = {one.handler: from_json(one.params)["dead"] for one in failure_tasks(FAILED, _both())}
    assert own["out_one"]["parent"] is None


def _both() -> dict[str, HandlerInfo]:
    return _handlers(out_one=_source("one"), bury='{"dead_letters":["q"]}')


def test_a_message_that_cannot_be_published_is_no_dead_letter_itself() -> None:
    (letter,) = failure_tasks(FAILED, _handlers(out_one=_source("one")))
    dead = replace(FAILED, handler=letter.handler, queue="out_one", meta=letter.meta)
    assert failure_tasks(dead, _handlers(out_one=_source("one", "out_one"), all='{"dead_letters":["*"]}')) == []
