"""Partitions: every way to put a task makes its key, and unfinished tasks are counted by key."""

from collections.abc import Awaitable, Callable

import pytest

from pitboss.engines.protocol import Direct
from pitboss.model.duration import SECOND
from pitboss.model.errors import QueueFull
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.filter import EVERYTHING
from pitboss.model.outcome import Failed
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.policy import MAX_CRASHES, Policy
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.states import State
from pitboss.model.task import Unique
from pitboss.testing.conformance.bench import BROKEN, Bench
from pitboss.testing.conformance.partitioned import (
    WORK,
    add,
    asked,
    counts,
    declare,
    divide,
    given,
    new,
    owners,
    params,
    row,
    two_owners,
)

KEYS: dict[str, tuple[str, str | None]] = {
    "a text": ('{"k":"tx"}', "tx"),
    "letters": ('{"k":"Ωж漢/\'é"}', "Ωж漢/'é"),
    "white space": ('{"k":" t x "}', " t x "),
    "a text like a number": ('{"k":"05"}', "05"),
    "a number": ('{"k":5}', "5"),
    "a negative number": ('{"k":-7}', "-7"),
    "a large number": ('{"k":18446744073709551615}', "18446744073709551615"),
    "a fraction": ('{"k":1.5}', "1.5"),
    "true": ('{"k":true}', "true"),
    "false": ('{"k":false}', "false"),
    "null": ('{"k":null}', None),
    "empty": ('{"k":""}', None),
    "a list": ('{"k":["tx"]}', None),
    "an object": ('{"k":{"k":"tx"}}', None),
    "missing": ('{"other":"tx"}', None),
    "no object": ('["tx"]', None),
    "as long as may be": (params("👩" * 200), "👩" * 200),
    "over-long": (params("é" * 300), f"{'é' * 167}~4bf78d5bfde016534964234b60ced94a"),
    "over-long with another end": (params("é" * 300 + "x"), f"{'é' * 167}~62faa4081277f9124922363744a8ede1"),
}
_ONCE = Policy(max_attempts=1)


async def _put(bench: Bench) -> None:
    await bench.put(new(bench, "tx"))


async def _put_directly(bench: Bench) -> None:
    if isinstance(bench.store, Direct):
        bench.store.put_sync([new(bench, "tx")])
    else:
        await _put(bench)


async def _follow_up(bench: Bench) -> None:
    await bench.complete(await bench.started(), None, new(bench, "tx"))


async def _item(bench: Bench) -> None:
    await bench.create(new(bench, "tx"))


async def _notice(bench: Bench) -> None:
    await bench.create(on_complete=new(bench, "tx"))


async def _firing(bench: Bench) -> None:
    schedule = await bench.store.put_schedule(
        ScheduleSpec(name="s", handler="job", every=60 * SECOND, queue=WORK, params=params("tx"))
    )
    bench.clock.advance(60)
    fired = firing(schedule, None, bench.clock.wall(), {})
    assert fired is not None
    assert await bench.store.fire([fired], term=(await bench.store.campaign(bench.me.number)).term) == [True]


async def _event(bench: Bench) -> None:
    settings = QueueSettings(partitions=Partitioning(by="{event_data}"))
    await declare(bench, {WORK: settings}, subscriptions=(Subscription(handler="job", pattern="x", queue=WORK),))
    await bench.store.publish([NewEvent(id=bench.ids(), name="x", data='"tx"')])


async def _fallback(bench: Bench) -> None:
    await _falls_back(bench)
    await bench.report(await bench.started(params=params("tx")), Failed(BROKEN), _ONCE)


async def _fallback_of_an_expired_one(bench: Bench) -> None:
    await _falls_back(bench)
    await bench.add(params=params("tx"), expires_in=SECOND)
    bench.clock.advance(2)
    await bench.claim(1, "default")


async def _fallback_of_a_lost_one(bench: Bench) -> None:
    await _falls_back(bench)
    await bench.add(params=params("tx"))
    for _ in range(MAX_CRASHES):
        await given(bench, None, lasts=SECOND, queues=("default",))
        bench.clock.advance(2)
        await bench.reclaim()


async def _falls_back(bench: Bench) -> None:
    about = '{"fallback":"instead"}'
    await bench.store.register([HandlerInfo(name="job", about=about), HandlerInfo(name="instead", queue=WORK)])


WAYS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "put": _put,
    "put without a loop": _put_directly,
    "follow-up": _follow_up,
    "item of a batch": _item,
    "notice of a batch": _notice,
    "schedule": _firing,
    "event": _event,
    "fallback": _fallback,
    "fallback of an expired task": _fallback_of_an_expired_one,
    "fallback of a lost task": _fallback_of_a_lost_one,
}


class PartitionKeys:
    @pytest.mark.parametrize("name", KEYS)
    async def test_a_key_is_made_from_the_params(self, bench: Bench, name: str) -> None:
        text, key = KEYS[name]
        await divide(bench)
        task = await bench.add(queue=WORK, params=text)
        assert (task.partition, task.params) == (key, text)
        assert [one.key for one in await bench.store.partitions(WORK)] == ([] if key is None else [key])

    async def test_a_key_of_several_parameters(self, bench: Bench) -> None:
        await divide(bench, by="{country}/{city}!")
        task = await bench.add(queue=WORK, params='{"city":"Łódź","country":7}')
        assert task.partition == "7/Łódź!"
        assert (await bench.add(queue=WORK, params='{"city":"Łódź"}')).partition is None

    @pytest.mark.parametrize("way", WAYS)
    async def test_every_way_to_put_a_task_gives_it_its_key(self, bench: Bench, way: str) -> None:
        await divide(bench)
        await WAYS[way](bench)
        await bench.look()
        (task,) = [task for task in await bench.every_task() if task.queue == WORK]
        assert task.partition == "tx"
        assert await bench.store.partitions(WORK) == [Partition(queue=WORK, key="tx", counts={task.state: 1})]

    async def test_a_queue_without_partitions_has_no_keys(self, bench: Bench) -> None:
        await divide(bench)
        assert (await bench.add(params=params("tx"))).partition is None
        assert await bench.store.partitions("default") == []
        assert await bench.store.partitions("unknown") == []

    async def test_a_queue_shows_its_partitions(self, bench: Bench) -> None:
        spec = Partitioning(
            by="{k}", mode="static", table={0: ("a", "é"), 1: ()}, pool="p", keys=("a", "é"), weights={"a": 1.5}
        )
        await declare(bench, {WORK: QueueSettings(partitions=spec, max_per_key=2)})
        queue = await bench.queue(WORK)
        assert (queue.partitions, queue.max_per_key) == (spec, 2)
        assert (queue.declared, queue.limited) == (QueueSettings(partitions=spec, max_per_key=2), ())

    async def test_tasks_that_are_held_have_their_keys(self, bench: Bench) -> None:
        await divide(bench)
        stranger = await add(bench, "a", handler="stranger")
        first, second = await add(bench, "b", order_key="o"), await add(bench, "c", order_key="o")
        later = await add(bench, "d", delay=SECOND)
        assert [one.partition for one in (stranger, first, second, later)] == ["a", "b", "c", "d"]

    async def test_a_task_keeps_its_key(self, bench: Bench) -> None:
        await divide(bench)
        task = await add(bench, "a")
        (claim,) = await given(bench, None)
        await bench.report(claim, Failed(BROKEN), _ONCE)
        assert (await bench.task(task.id)).partition == "a"
        await bench.retry(task.id)
        assert (await bench.task(task.id)).partition == "a"
        assert [one.partition for one in (await bench.store.find(EVERYTHING)).tasks] == ["a"]

    async def test_tasks_that_were_there_before_the_partitions_have_no_key(self, bench: Bench) -> None:
        before = await add(bench, "a")
        await divide(bench)
        after = await add(bench, "a")
        assert (before.partition, after.partition) == (None, "a")
        assert (await bench.task(before.id)).partition is None
        assert await counts(bench) == {"a": {State.PENDING: 1}}

    async def test_another_template_makes_keys_of_new_tasks(self, bench: Bench) -> None:
        await divide(bench)
        before = await add(bench, "a")
        await divide(bench, by="{k}-{k}")
        after = await add(bench, "a")
        assert ((await bench.task(before.id)).partition, after.partition) == ("a", "a-a")
        assert await counts(bench) == {"a": {State.PENDING: 1}, "a-a": {State.PENDING: 1}}

    async def test_without_partitions_any_slot_takes_tasks_with_keys(self, bench: Bench) -> None:
        await two_owners(bench, max_per_key=1)
        tasks = [await add(bench, key) for key in "abca"]
        await declare(bench, {})
        claims = (await asked(bench, None, free=9)).claims
        assert [claim.id for claim in claims] == [task.id for task in tasks]
        assert (await add(bench, "a")).partition is None

    async def test_a_task_that_exists_already_creates_no_key(self, bench: Bench) -> None:
        await divide(bench)
        first = await add(bench, "a", unique=Unique("u"))
        await bench.put(new(bench, "b", id=first.id), new(bench, "c", unique=Unique("u")))
        assert list(await counts(bench)) == ["a"]

    async def test_a_put_that_is_refused_creates_no_key(self, bench: Bench) -> None:
        await divide(bench)
        await bench.change(WORK, capacity=1)
        with pytest.raises(QueueFull):
            await bench.put(new(bench, "a"), new(bench, "b"))
        with pytest.raises(QueueFull):
            await bench.create(new(bench, "a"), new(bench, "b"))
        assert await bench.store.partitions(WORK) == []

    async def test_queues_have_keys_of_their_own(self, bench: Bench) -> None:
        await divide(bench, "x", "y")
        await add(bench, "a", queue="x")
        await add(bench, "b", queue="y")
        assert await counts(bench, "x") == {"a": {State.PENDING: 1}}
        assert await counts(bench, "y") == {"b": {State.PENDING: 1}}


class CountingKeys:
    async def test_unfinished_tasks_are_counted_by_state(self, bench: Bench) -> None:
        await two_owners(bench)
        for _ in range(3):
            await add(bench, "a")
        await add(bench, "a", delay=60 * SECOND)
        await add(bench, "b", handler="stranger")
        done, _ = await given(bench, 0, free=2)
        await bench.complete(done)
        assert await counts(bench) == {
            "a": {State.PENDING: 1, State.RUNNING: 1, State.SCHEDULED: 1},
            "b": {State.HELD: 1},
        }

    async def test_a_key_stays_when_its_tasks_are_gone(self, bench: Bench) -> None:
        await two_owners(bench)
        await add(bench, "a")
        await bench.complete((await given(bench, 0))[0])
        await bench.prune()
        assert (await row(bench, "a")).counts == {}
        assert (await owners(bench))["a"] == "default/0"

    async def test_items_of_batches_count_before_they_are_drawn(self, bench: Bench) -> None:
        await two_owners(bench)
        await bench.create(*(new(bench, key) for key in "aab"), paused=True)
        assert await counts(bench) == {"a": {State.HELD: 2}, "b": {State.HELD: 1}}

    async def test_keys_come_by_name_and_counts_can_be_left_out(self, bench: Bench) -> None:
        await divide(bench)
        for key in ("é", "b", "B", "10", "9", "b ", "ß", "漢"):
            await add(bench, key)
        found = await bench.store.partitions(WORK, counts=False)
        assert [one.key for one in found] == ["10", "9", "B", "b", "b ", "ß", "é", "漢"]
        assert [one.counts for one in found] == [{}] * 8


__all__ = ["CountingKeys", "PartitionKeys"]
