"""The filter scan: pages, limits, and which tasks each verb of `Control` chooses."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.engines import scan
from pitboss.model.filter import EVERYTHING, Filter, by
from pitboss.model.matching import matches
from pitboss.model.queue import Changed
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Task

NOW = 100
filters = st.sampled_from([EVERYTHING, by(queue="q"), by(state=["failed", "cancelled"]), by(queue="none")])
limits = st.integers(1, 5)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Task]:
    """Tasks, oldest first."""
    tasks = []
    for number in range(draw(st.integers(0, 8))):
        state = draw(st.sampled_from(State))
        tasks.append(
            Task(
                id=f"{number:02}",
                handler="h",
                queue=draw(st.sampled_from("qr")),
                state=state,
                params="{}",
                finished_at=draw(st.integers(1, 9)) if state in FINISHED else None,
                cancel_asked=state is State.RUNNING and draw(st.booleans()),
                batch=draw(st.sampled_from([None, None, "b"])),
            )
        )
    return tasks


@given(ledgers(), filters, limits, st.booleans())
def test_pages_show_every_matching_task_once_in_order(
    tasks: list[Task], wanted: Filter, limit: int, oldest_first: bool
) -> None:
    ordered = tasks if oldest_first else tasks[::-1]
    shown: list[Task] = []
    after: str | None = None
    while True:
        page = scan.find(ordered, wanted, NOW, limit=limit, after=after, oldest_first=oldest_first)
        assert len(page.tasks) <= limit
        shown += page.tasks
        after = page.next
        if after is None:
            break
        assert len(page.tasks) == limit
    assert shown == [task for task in ordered if matches(wanted, task, NOW)]
    assert scan.count(tasks, wanted, NOW) == (len(shown), False)


@given(ledgers(), filters, limits)
def test_each_verb_chooses_the_oldest_tasks_that_it_may_change(tasks: list[Task], wanted: Filter, limit: int) -> None:
    matching = [task for task in tasks if matches(wanted, task, NOW)]
    cancellable = [task for task in matching if not task.state.finished and not task.cancel_asked]
    retryable = [task for task in matching if task.state in (State.FAILED, State.CANCELLED)]
    old = [task for task in matching if task.batch is None and task.finished_at is not None and task.finished_at < 5]
    prunable = [task for task in old if task.id != "01"]
    for chosen, expected in (
        (scan.to_cancel(tasks, wanted, NOW, limit), cancellable),
        (scan.to_retry(tasks, wanted, NOW, limit), retryable),
        (scan.to_prune(tasks, wanted, NOW, limit, before=5, has_key=lambda task: task.id == "01"), prunable),
    ):
        assert chosen == (expected[:limit], len(expected) > limit)


def task(number: int, state: State) -> Task:
    return Task(id=f"{number:02}", handler="h", queue="q", state=state, params="{}")


def test_the_answer_counts_running_tasks_as_asked_and_names_the_refused() -> None:
    chosen = scan.Chosen([task(1, State.PENDING), task(2, State.RUNNING), task(3, State.HELD)], more=True)
    assert chosen.answer() == Changed(changed=2, asked=1, more=True)
    failed = scan.Chosen([task(1, State.FAILED), task(2, State.FAILED)], more=False)
    assert failed.answer(["02"]) == Changed(changed=1, refused=("02",))


@pytest.mark.parametrize("limit", [1, 3])
def test_a_page_reads_no_further_than_it_needs(limit: int) -> None:
    read: list[str] = []

    def reading() -> Iterator[Task]:
        for number in range(9):
            read.append(f"{number:02}")
            yield task(number, State.PENDING)

    scan.find(reading(), EVERYTHING, NOW, limit=limit, after=None, oldest_first=True)
    assert len(read) == limit + 1
