"""A pool that follows its load, in real processes: it grows while tasks wait, and not where a rate holds them back."""

from pitboss.model.duration import SECOND
from pitboss.model.limits import rate
from pitboss.model.queue import QueueChange
from tests.manager.house import House, pool


def test_a_pool_grows_while_tasks_wait_too_long(lite_house: House) -> None:
    house = lite_house
    spec = pool(min_workers=1, max_workers=3, concurrency=1, target_wait=SECOND)
    manager = house.manager(spec)
    house.until(lambda: len(manager.workers()) == 1)
    house.put("slow", 30, seconds=0.5)
    house.until(lambda: len(manager.workers()) == 3, within=40, what="three workers")
    assert manager.said("pool default goes from 1 to")
    house.until(lambda: any("backlog" in one.why or "worker" in one.why for one in house.snapshots()[0].pools))
    house.until(lambda: house.finished() == 30, within=40)
    assert manager.end() == 0


def test_a_pool_does_not_grow_where_a_rate_holds_the_tasks_back(lite_house: House) -> None:
    house = lite_house
    house.do(house.engine.change_queue("default", QueueChange(rate=rate("2/s"))))
    house.put("slow", 12, seconds=0.05)
    spec = pool(min_workers=1, max_workers=4, concurrency=1, target_wait=SECOND)
    manager = house.manager(spec)
    house.until(lambda: house.finished() == 12, within=40)
    assert not manager.said("goes from")
    assert manager.end() == 0
