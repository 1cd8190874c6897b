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
