"""What the scaler makes of resource pools, and what workers hear when a lease is over."""

import pytest

from pitboss.manager.resource_answers import ARGUMENTS
from pitboss.manager.scaler import _with_resources
from pitboss.model.errors import StaleLease
from pitboss.model.limits import Window, rate
from pitboss.model.queue import Queue
from pitboss.model.resource import HOUR, Limits, PoolRules, ResourcePool, Stage
from pitboss.model.scaling import PoolLoad
from pitboss.model.states import State
from pitboss.worker.remote_resources import ManagedResources
from pitboss.worker.remote_store import _error

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


def test_a_lease_that_is_over_is_the_same_error_on_both_sides() -> None:
    met = StaleLease("1.2")
    heard = _error(met.code, met.what, met.why, met.fix)
    assert isinstance(heard, StaleLease)
    assert str(heard) == str(met)


def test_a_manager_answers_whatever_a_worker_asks() -> None:
    asked = {name for name in vars(ManagedResources) if not name.startswith("_")} - {"declare_pool"}
    assert asked == set(ARGUMENTS)
