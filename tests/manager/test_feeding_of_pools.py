"""How the scaler reads resource pools."""

import pytest

from pitboss.manager.scaler import _with_resources
from pitboss.model.limits import Window, rate
from pitboss.model.queue import Queue
from pitboss.model.resource import HOUR, Limits, PoolRules, ResourcePool, Stage
from pitboss.model.scaling import PoolLoad
from pitboss.model.states import State

PROXIES = ResourcePool(
    name="proxies", rules=PoolRules(limits=Limits(windows=(Window(36, HOUR),))), stages={Stage.READY: 100}
)
KEYS = ResourcePool(name="keys", stages={Stage.READY: 3, Stage.BUSY: 1})
POOLS = {"proxies": PROXIES, "keys": KEYS}


def _queue(name: str, pool: str | None, pending: int = 5, per: str = "") -> Queue:
    return Queue(name=name, resources=pool, rate=rate(per) if per else (), counts={State.PENDING: pending})


@pytest.mark.parametrize(
    ("queues", "feed", "per_second"),
    [
        ([], None, None),
        ([_queue("mail", None)], None, None),
        ([_queue("check", "proxies")], 100, 1.0),
        ([_queue("ask", "keys")], 4, None),
        ([_queue("check", "proxies"), _queue("ask", "keys")], 104, None),
        ([_queue("check", "proxies"), _queue("mail", None)], None, None),
        ([_queue("check", "proxies"), _queue("mail", None, pending=0)], 100, 1.0),
        ([_queue("check", "unknown")], None, None),
    ],
)
def test_a_load_is_limited_if_all_that_waits_needs_a_member(
    queues: list[Queue], feed: int | None, per_second: float | None
) -> None:
    load = _with_resources(PoolLoad(), queues, POOLS)
    assert load.feed == feed
    assert load.rate == (None if per_second is None else pytest.approx(per_second))


def test_the_tighter_of_queue_and_pool_counts() -> None:
    assert _with_resources(PoolLoad(rate=0.5), [_queue("check", "proxies")], POOLS).rate == 0.5
