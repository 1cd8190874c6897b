"""Several processes put, cancel, retry, end and lose tasks of a few order keys: one at a time, and none is stuck."""

from pathlib import Path

import pytest

from pitboss.model.ids import make_id
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.faults.crowd import deadlocks
from tests.faults.order_crowd import broken_lines, crowded_in_order, overlapping
from tests.faults.stores import MakeUrl

# `make soak` goes on for a minute.
SECONDS = 3.0
DOINGS = ("applied", "cancelled", "claimed", "lost", "publish", "put", "retried")


@pytest.mark.fresh_loop(limit=100)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_one_task_of_a_key_at_a_time_and_none_is_stuck(engine: str, make_url: MakeUrl, tmp_path: Path) -> None:
    url = make_url(engine)
    crowd = await crowded_in_order(url, tmp_path, SECONDS, seed=1)
    assert crowd.faults == []
    assert all(crowd.done[doing] > 0 for doing in DOINGS), crowd.done
    assert crowd.looks > 5
    if engine == "postgres":
        assert deadlocks(url) == 0


def test_claims_of_one_key_that_overlap_are_seen() -> None:
    lines = ["begin k a 1.1 10", "begin l b 1.1 11", "begin k c 2.1 12", "end k a 1.1 13", "end l b 1.1 14"]
    assert len(overlapping([*lines, "end k c 2.1 15"])) == 1
    assert len(overlapping(["begin k a 1.1 10", "end k a 1.1 11", "begin k c 2.1 12", "end k c 2.1 13"])) == 0


@pytest.mark.parametrize(
    ("states", "sound"),
    [
        ((State.RUNNING, State.HELD), True),
        ((State.HELD, State.HELD), False),
        ((State.RUNNING, State.PENDING), False),
        ((), True),
    ],
)
def test_a_line_that_stands_still_or_has_two_first_ones_is_seen(states: tuple[State, ...], sound: bool) -> None:
    tasks = [
        Task(
            id=make_id(1, number, 0),
            handler="job",
            queue="a",
            params="{}",
            state=state,
            order_key="k",
            reason="order" if state is State.HELD else None,
        )
        for number, state in enumerate(states)
    ]
    assert (broken_lines(tasks) == []) is sound
