"""Totals: what happened since the store began. They equal a recount, only grow, and are a bounded number."""

from typing import NamedTuple

from pitboss.model.figures import (
    HOUR,
    MINUTE,
    OTHERS,
    RAW,
    HandlerFigures,
    PoolSample,
    ResourceSample,
    Sample,
    bucket,
)
from pitboss.model.outcome import Failed
from pitboss.model.policy import Policy
from pitboss.model.totals import EVER, LIMITS, OWN_HANDLERS, OWN_POOLS, OWN_QUEUES, Totals
from pitboss.testing.conformance.bench import BROKEN, Bench

FOREVER = 2**62
KINDS = ("put", "completed", "failed", "cancelled", "retried", "lost", "revived")
_MANY = 150


class TotalsOfFlows:
    async def test_they_equal_the_flows(self, bench: Bench) -> None:
        await bench.complete(await bench.started(queue="a"))
        claim = await bench.started(queue="b")
        await bench.report(claim, Failed(BROKEN), Policy(max_attempts=1))
        await bench.add(queue="b")
        assert await _told(bench) == [
            ("a", "job", {"put": 1, "completed": 1}),
            ("b", "job", {"put": 2, "failed": 1}),
        ]
        assert all(one.span == EVER and one.at == 0 for one in (await bench.store.totals()).flows)

    async def test_a_sweep_changes_nothing(self, bench: Bench) -> None:
        await bench.complete(await bench.started())
        before = await _told(bench)
        await bench.store.reclaim()
        assert await _told(bench) == before
        await bench.add()
        assert await _told(bench) == [("default", "job", {"put": 2, "completed": 1})]

    async def test_they_are_no_flows_of_a_bucket(self, bench: Bench) -> None:
        await bench.add()
        await bench.store.reclaim()
        flows = await bench.store.flows(0, FOREVER, span=HOUR)
        assert sum(one.put for one in flows) == 1

    async def test_they_stay_when_flows_are_rolled_up_and_forgotten(self, bench: Bench) -> None:
        await bench.complete(await bench.started())
        before = await _told(bench)
        term = (await bench.store.campaign(bench.me.number)).term
        for span, into in ((RAW, MINUTE), (MINUTE, HOUR), (HOUR, None)):
            assert await bench.store.roll_flows(span, into, FOREVER, term=term)
            assert await _told(bench) == before
        assert await bench.store.flows(0, FOREVER, span=HOUR) == []

    async def test_the_first_handlers_have_their_own_and_keep_them(self, bench: Bench) -> None:
        await bench.put(*(bench.new(handler=f"h{number:03}") for number in range(_MANY)))
        await bench.store.reclaim()
        first = await _told(bench)
        assert len(first) == OWN_HANDLERS + 1
        assert ("default", OTHERS, {"put": _MANY - OWN_HANDLERS}) in first
        await bench.put(bench.new(handler="a-first"), bench.new(handler="h000"), bench.new(queue="new"))
        await bench.store.reclaim()
        told = {(queue, handler): counts["put"] for queue, handler, counts in await _told(bench)}
        assert told.keys() == {(queue, handler) for queue, handler, _ in first} | {(OTHERS, OTHERS)}
        assert (told["default", "h000"], told["default", OTHERS]) == (2, _MANY - OWN_HANDLERS + 1)
        assert told[OTHERS, OTHERS] == 1

    async def test_the_first_queues_have_their_own(self, bench: Bench) -> None:
        await bench.put(*(bench.new(queue=f"q{number:02}") for number in range(OWN_QUEUES + 5)))
        told = await _told(bench)
        assert len(told) == OWN_QUEUES + 1
        assert told[0] == (OTHERS, OTHERS, {"put": 5})
        await bench.store.reclaim()
        assert await _told(bench) == told
        await bench.put(bench.new(queue="q00", handler="another"), bench.new(queue="q34", handler="another"))
        await bench.store.reclaim()
        now = await _told(bench)
        assert now[0] == (OTHERS, OTHERS, {"put": 6})
        assert ("q00", "another", {"put": 1}) in now


class TotalsOfSamples:
    async def test_each_sample_counts_once(self, bench: Bench) -> None:
        first, second = _sample(bench, 7), _sample(bench, 8)
        await bench.store.add_samples([first, first])
        await bench.store.add_samples([first, second])
        measured = (await bench.store.totals()).measured
        queue = measured.queues["q"]
        assert (sum(queue.wait.counts), queue.wait.sum, queue.run.sum) == (2, 3000, 4_000_000)
        assert queue.wait.counts[0] == 2
        assert queue.run.counts[next(slot for slot, limit in enumerate(LIMITS) if limit > 2_000_000)] == 2
        assert (measured.pools["default"].restarts, measured.pools["default"].crashes) == (2, 4)
        uses = measured.resources["proxies"]
        assert (uses.uses, uses.limits_met, uses.refusals) == (10, 4, 6)

    async def test_they_stay_when_samples_are_replaced_or_deleted(self, bench: Bench) -> None:
        samples = [_sample(bench, number) for number in (1, 2, 3)]
        await bench.store.add_samples(samples)
        before = _plain(await bench.store.totals())
        term = (await bench.store.campaign(bench.me.number)).term
        made = _sample(bench, 0, length=MINUTE)
        assert await bench.store.replace_samples([one.key for one in samples], [made], term=term)
        assert await bench.store.replace_samples([made.key], [], term=term)
        assert _plain(await bench.store.totals()) == before

    async def test_a_store_without_samples_has_no_totals_of_them(self, bench: Bench) -> None:
        measured = (await bench.store.totals()).measured
        assert (measured.queues, measured.pools, measured.resources) == ({}, {}, {})

    async def test_the_first_pools_have_their_own(self, bench: Bench) -> None:
        names = [f"p{number:02}" for number in range(OWN_POOLS + 3)]
        sample = Sample(at=bucket(bench.now, RAW), session=1, pools={name: PoolSample({}, 0, 1, 0) for name in names})
        await bench.store.add_samples([sample])
        pools = (await bench.store.totals()).measured.pools
        assert list(pools) == [*names[:OWN_POOLS], OTHERS]
        assert pools[OTHERS].restarts == 3


class _Plain(NamedTuple):
    """Totals as values that can be compared."""

    waits: dict[str, list[int]]
    restarts: dict[str, int]


def _plain(totals: Totals) -> _Plain:
    measured = totals.measured
    return _Plain(
        {name: one.wait.counts for name, one in measured.queues.items()},
        {name: one.restarts for name, one in measured.pools.items()},
    )


async def _told(bench: Bench) -> list[tuple[str, str, dict[str, int]]]:
    """The totals of flows, without zeros."""
    return [
        (one.queue, one.handler, {kind: n for kind in KINDS if (n := getattr(one, kind))})
        for one in (await bench.store.totals()).flows
    ]


def _sample(bench: Bench, session: int, *, length: int = RAW) -> Sample:
    figures = HandlerFigures("q", "job", 1)
    figures.wait.add(1500)
    figures.run.add(2_000_000)
    return Sample(
        at=bucket(bench.now, length),
        span=length,
        session=session,
        covered=10,
        handlers=[figures],
        pools={"default": PoolSample({"idle": 20}, 1000, 1, 2)},
        resources={"proxies": ResourceSample({}, 0, 5, 2, {"a.test": 1, "b.test": 2})},
    )


__all__ = ["TotalsOfFlows", "TotalsOfSamples"]
