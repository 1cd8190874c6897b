"""Happenings that repeat, as one line."""

from pitboss.model.happening import Happening, Kind, happening
from pitboss.operate.activity import folded
from tests.operate.bench import Bench


async def test_happenings_that_say_the_same_are_the_newest_with_the_number_of_all() -> None:
    store = Bench()
    rows = [
        happening(store.new_id(), n, Kind.WORKER_CRASHED, "worker default-1", text, host="box1", count=count)
        for n, (text, count) in enumerate([("died", 1), ("was killed", 2), ("died", 3)])
    ]
    found = folded(rows[::-1])
    assert [(one.at, one.text, one.count) for one in found if isinstance(one, Happening)] == [
        (2, "died", 4),
        (1, "was killed", 2),
    ]
