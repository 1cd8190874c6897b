"""How the scaler reads resource pools, and which queues no worker of a pool takes from."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pitboss.engines.memory import MemoryEngine
from pitboss.manager.key_watch import KeyWatch
from pitboss.manager.scaler import Scaler, _with_resources
from pitboss.model.ids import IdMaker
from pitboss.model.limits import Window, rate
from pitboss.model.pool import PoolSpec
from pitboss.model.queue import HandlerInfo, Queue, QueueChange
from pitboss.model.resource import HOUR, Limits, PoolRules, ResourcePool, Stage
from pitboss.model.scaling import PoolLoad
from pitboss.model.sealed import MissingKey
from pitboss.model.states import State
from pitboss.model.task import NewTask
from pitboss.testing.clock import FakeClock

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


async def test_tasks_of_remote_workers_add_no_workers() -> None:
    store = MemoryEngine(clock=FakeClock())
    await store.register([HandlerInfo(name="echo", queue="echo", remote=True), HandlerInfo(name="job", queue="jobs")])
    sizes: dict[str, int] = {}
    pool_set: Any = SimpleNamespace(pools={}, scale=lambda name, size, _why: sizes.__setitem__(name, size))
    spec = PoolSpec(name="web", min_workers=0, max_workers=8, concurrency=1)
    pool: Any = SimpleNamespace(spec=spec, size=0, slots={}, workers=())
    scaler = Scaler(store, pool_set, store.clock, lambda _pool: 0)
    make_id = IdMaker(store.clock.now, Random(1).getrandbits)
    await store.put([NewTask(id=make_id(), handler="echo", queue="echo") for _ in range(50)])
    await scaler.look([pool])
    assert sizes == {"web": 0}
    await store.put([NewTask(id=make_id(), handler="job", queue="jobs") for _ in range(50)])
    await scaler.look([pool])
    assert sizes["web"] > 0


async def test_queues_of_remote_workers_are_not_claimed_from_while_a_key_is_missing() -> None:
    store = MemoryEngine(clock=FakeClock())
    await store.register([HandlerInfo(name="echo", queue="echo", remote=True), HandlerInfo(name="job", queue="jobs")])
    for queue in ("echo", "jobs"):
        await store.change_queue(queue, QueueChange(paused=False))
    watch = KeyWatch(store, None, warn=print, say=print)
    assert await watch.queues() is None
    watch.missing = (MissingKey("proxies", "aaaaaaaa", 1),)
    assert await watch.queues() == frozenset({"jobs"})
