"""The SQL for lanes decides as `model.batching` does, for every short line of batches."""

import sqlite3
from collections.abc import Iterator
from itertools import product

import pytest

from pitboss.engines.sqlite.act import Statements
from pitboss.engines.sqlite.schema import upgrade
from pitboss.model.batch import OVER, STEP, BatchStatus
from pitboss.model.batching import Place, end_of_line, promotable

SQL = Statements().by_name
# Two ranks are equal, and the ids are in another order than the ranks.
PLACES = ((30, "a"), (10, "b"), (10, "c"), (-20, "d"))


@pytest.fixture
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize("most", range(4))
def test_the_same_batches_are_promoted(store: sqlite3.Connection, most: int) -> None:
    store.execute(SQL["lane_set"], ("lane", most))
    for statuses in product(BatchStatus, repeat=3):
        _write(store, statuses)
        found = [row[0] for row in store.execute(SQL["batch_next"], ("lane",))]
        assert found == promotable(_line(statuses), most), statuses


def test_the_end_of_the_line_is_the_same(store: sqlite3.Connection) -> None:
    for statuses in product([BatchStatus.QUEUED, BatchStatus.PAUSED, BatchStatus.DONE], repeat=4):
        _write(store, statuses)
        (rank,) = store.execute(SQL["batch_last_rank"], ("lane",)).fetchone()
        assert (rank or 0) + STEP == end_of_line(_line(statuses)), statuses


def _line(statuses: tuple[BatchStatus, ...]) -> list[Place]:
    places = [Place(rank, batch, status) for (rank, batch), status in zip(PLACES, statuses, strict=False)]
    return [place for place in places if place.status not in OVER]


def _write(store: sqlite3.Connection, statuses: tuple[BatchStatus, ...]) -> None:
    store.execute("DELETE FROM pitboss_batches")
    for (rank, batch), status in zip(PLACES, statuses, strict=False):
        ended = 5 if status in OVER else None
        store.execute(SQL["batch_create"], (batch, "", "lane", status.value, rank, None, 1, "{}", None))
        store.execute("UPDATE pitboss_batches SET finished_at = ? WHERE id = ?", (ended, batch))
