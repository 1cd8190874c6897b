"""Figures over time: flows equal what happened, in the act itself, and samples are kept as they were written."""

import pytest

from pitboss.model.batch import Delete, Requeue
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND, span
from pitboss.model.errors import NotLeader, QueueFull
from pitboss.model.event import NewEvent, Subscription
from pitboss.model.figures import (
    HOUR,
    MINUTE,
    MOST_HANDLERS,
    OTHERS,
    RAW,
    SPANS,
    Flow,
    HandlerFigures,
    PoolSample,
    Sample,
    SampleKey,
    added_flows,
    bucket,
)
from pitboss.model.filter import by
from pitboss.model.outcome import Cancelled, Crashed, Failed, Released, Snooze, Transition
from pitboss.model.policy import Policy
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.session import Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.testing.conformance.bench import BROKEN, Bench

ONCE = Policy(max_attempts=1)
FOREVER = 2**62
DONE = Transition(state=State.COMPLETED, outcome="completed", charged=True)


class Flows:
    async def test_a_put_and_an_end_count_once(self, bench: Bench) -> None:
        claim = await bench.started(queue="q")
        assert await _told(bench) == [("q", "job", {"put": 1})]
        await bench.complete(claim)
        await bench.complete(claim)
        assert await _told(bench) == [("q", "job", {"put": 1, "completed": 1})]

    async def test_tasks_that_meet_others_are_not_put(self, bench: Bench) -> None:
        new = bench.new()
        await bench.put(new, new)
        await bench.put(new)
        assert await _told(bench) == [("default", "job", {"put": 1})]

    async def test_an_act_that_did_not_happen_counts_nothing(self, bench: Bench) -> None:
        await bench.change("default", capacity=1)
        with pytest.raises(QueueFull):
            await bench.put(bench.new(), bench.new())
        assert await _told(bench) == []
        claim = await bench.started()
        await bench.end(bench.me)
        await bench.complete(claim)
        assert await _told(bench) == [("default", "job", {"put": 1})]

    async def test_queues_and_handlers_are_told_apart(self, bench: Bench) -> None:
        await bench.put(bench.new(queue="a"), bench.new(queue="a", handler="rare"), bench.new(queue="b"))
        told = [("a", "job", {"put": 1}), ("a", "rare", {"put": 1}), ("b", "job", {"put": 1})]
        assert await _told(bench) == told
        assert [(one.queue, one.handler, one.put) for one in await _flows(bench, by_handler=False)] == [
            ("a", "", 2),
            ("b", "", 1),
        ]
        assert [one.queue for one in await _flows(bench, queue="b")] == ["b"]
        assert [one.handler for one in await _flows(bench, handler="rare")] == ["rare"]

    async def test_a_retry_counts_until_the_task_has_failed(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN))
        assert await _told(bench) == [("default", "job", {"put": 1, "retried": 1})]
        bench.clock.advance(5)
        await bench.report(await bench.take(), Failed(BROKEN), ONCE)
        assert await _told(bench) == [("default", "job", {"put": 1, "retried": 1, "failed": 1})]

    async def test_what_is_given_back_is_no_retry(self, bench: Bench) -> None:
        await bench.report(await bench.started(), Released())
        await bench.report(await bench.take(), Snooze(SECOND))
        assert await _told(bench) == [("default", "job", {"put": 1})]

    async def test_a_cancelled_task_counts_whoever_cancelled_it(self, bench: Bench) -> None:
        await bench.report(await bench.started(queue="q"), Cancelled("enough"))
        waiting = await bench.add(queue="q")
        await bench.cancel(waiting.id)
        running = await bench.started(queue="q")
        await bench.cancel(running.id)
        assert (await _told(bench))[0][2] == {"put": 3, "cancelled": 2}
        await bench.report(running, Failed(BROKEN))
        assert await _told(bench) == [("q", "job", {"put": 3, "cancelled": 3})]

    async def test_an_expired_task_counts_as_cancelled(self, bench: Bench) -> None:
        await bench.add(expires_in=SECOND)
        bench.clock.advance(1)
        assert await bench.claim() == []
        assert await _told(bench) == [("default", "job", {"put": 1, "cancelled": 1})]

    async def test_a_lost_run_counts_and_so_does_the_end_of_its_task(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Crashed(alone=False))
        assert await _told(bench) == [("default", "job", {"put": 1, "lost": 1})]
        for _ in range(3):
            await bench.report(await bench.take(), Crashed(alone=True))
        assert await _told(bench) == [("default", "job", {"put": 1, "lost": 4, "failed": 1})]

    async def test_a_dead_session_loses_its_runs(self, bench: Bench) -> None:
        worker = await bench.session("job")
        await bench.put(*(bench.new() for _ in range(3)))
        held = await bench.claim(3, session=worker)
        await bench.cancel(held[0].id)
        await bench.end(worker)
        await bench.reclaim()
        assert await _told(bench) == [("default", "job", {"put": 3, "lost": 3, "cancelled": 1})]

    async def test_claims_that_ran_out_are_lost(self, bench: Bench) -> None:
        await bench.add()
        for _ in range(3):
            assert len((await bench.ask(Slot(free=1, lasts=SECOND))).claims) == 1
            bench.clock.advance(1)
            await bench.reclaim()
        assert await _told(bench) == [("default", "job", {"put": 1, "lost": 3, "failed": 1})]

    async def test_a_finished_task_that_waits_again_is_revived(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN), ONCE)
        await bench.retry(by(state="failed"))
        await bench.complete(await bench.take())
        assert await _told(bench) == [("default", "job", {"put": 1, "failed": 1, "revived": 1, "completed": 1})]

    async def test_follow_ups_are_put(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.complete(claim, None, bench.new(queue="next"))
        assert await _told(bench) == [("default", "job", {"put": 1, "completed": 1}), ("next", "job", {"put": 1})]

    async def test_removing_tasks_changes_nothing(self, bench: Bench) -> None:
        await bench.complete(await bench.started())
        await bench.prune()
        assert await _told(bench) == [("default", "job", {"put": 1, "completed": 1})]

    async def test_many_ends_in_one_call(self, bench: Bench) -> None:
        await bench.put(*(bench.new(queue="q", handler="job") for _ in range(5)))
        claims = await bench.claim(5)
        good, bad = claims[:3], claims[3:]
        done = [Settlement(id=one.id, token=one.token, transition=DONE, queue="q", handler="job") for one in good]
        await bench.settle(*done)
        await bench.store.settle(done)
        for one in bad:
            await bench.report(one, Failed(BROKEN), ONCE)
        assert await _told(bench) == [("q", "job", {"put": 5, "completed": 3, "failed": 2})]

    async def test_buckets_follow_the_clock(self, bench: Bench) -> None:
        bench.clock.advance((RAW - bench.now % RAW) / SECOND)
        begun = bench.now
        await bench.add()
        bench.clock.advance(20)
        await bench.add()
        assert [(one.at, one.span) for one in await _flows(bench)] == [(begun, RAW), (begun + 2 * RAW, RAW)]
        assert await _flows(bench, since=begun + RAW, until=begun + 2 * RAW) == []
        assert [one.at for one in await _flows(bench, since=begun + 1)] == [begun + 2 * RAW]
        assert sum(one.put for one in await _flows(bench, span=HOUR)) == 2


class FlowsOfOtherActs:
    async def test_items_of_a_batch_count_like_other_tasks(self, bench: Bench) -> None:
        batch = await bench.create(*(bench.new() for _ in range(3)), on_complete=bench.new(queue="after"))
        (claim,) = await bench.claim(1)
        await bench.report(claim, Failed(BROKEN), ONCE)
        await bench.cancel(by(batch=batch.id))
        assert (await _told(bench))[-1] == ("default", "job", {"put": 3, "failed": 1, "cancelled": 2})
        assert (await _told(bench))[0] == ("after", "job", {"put": 1})
        await bench.act(batch, Requeue())
        assert (await _told(bench))[-1][2] == {"put": 3, "failed": 1, "cancelled": 2, "revived": 1}
        worker = await bench.session("job")
        await bench.claim(1, "default", session=worker)
        await bench.end(worker)
        await bench.reclaim()
        before = await _told(bench)
        assert before[-1][2] == {"put": 3, "failed": 1, "cancelled": 2, "revived": 1, "lost": 1}
        await bench.act(batch, Delete(force=True))
        assert await _told(bench) == before

    async def test_events_and_schedules_put_tasks(self, bench: Bench) -> None:
        wants = Declared(app="a", subscriptions=(Subscription(handler="job", pattern="user.*", queue="events"),))
        await bench.store.declare(wants, session=bench.me.number)
        await bench.store.publish([NewEvent(id=bench.ids(), name="user.signup")])
        await bench.store.put_schedule(ScheduleSpec(name="s", handler="job", queue="ticks", every=60 * SECOND))
        bench.clock.advance(60)
        (due,) = (await bench.store.due_schedules()).schedules
        made = firing(due, None, bench.clock.wall(), {})
        assert made is not None
        await bench.store.fire([made], term=await _term(bench))
        assert await _told(bench) == [("events", "job", {"put": 1}), ("ticks", "job", {"put": 1})]

    async def test_when_an_item_of_a_batch_was_due_is_not_known(self, bench: Bench) -> None:
        await bench.create(bench.new())
        assert (await bench.take()).due_at is None


class RollingUpFlows:
    async def test_flows_move_into_longer_buckets_and_lose_nothing(self, bench: Bench) -> None:
        begun = await _three_buckets(bench)
        before, term = await _flows(bench), await _term(bench)
        assert await bench.store.roll_flows(RAW, MINUTE, begun + MINUTE, term=term)
        assert not await bench.store.roll_flows(RAW, MINUTE, begun + MINUTE, term=term)
        after = await _flows(bench, span=MINUTE)
        assert after == added_flows(before, MINUTE)
        assert [one.at for one in await _flows(bench)] == [begun, begun + MINUTE]
        assert await bench.store.roll_flows(RAW, MINUTE, begun + 2 * MINUTE, term=term)
        assert await bench.store.roll_flows(MINUTE, HOUR, begun + HOUR, term=term)
        assert sum(one.put for one in await _flows(bench, span=HOUR)) == 3

    async def test_what_comes_late_is_added(self, bench: Bench) -> None:
        begun, term = await _three_buckets(bench), await _term(bench)
        await bench.store.roll_flows(RAW, MINUTE, begun + 20 * SECOND, term=term)
        await bench.store.roll_flows(RAW, MINUTE, begun + MINUTE, term=term)
        assert [(one.at, one.put) for one in await _flows(bench)] == [(begun, 2), (begun + MINUTE, 1)]

    async def test_old_flows_are_forgotten(self, bench: Bench) -> None:
        begun, term = await _three_buckets(bench), await _term(bench)
        assert await bench.store.roll_flows(RAW, None, begun + MINUTE, term=term)
        assert await bench.store.roll_flows(RAW, None, begun + MINUTE, term=term)
        assert not await bench.store.roll_flows(RAW, None, begun + MINUTE, term=term)
        assert [one.at for one in await _flows(bench)] == [begun + MINUTE]

    async def test_only_the_leader_rolls_up(self, bench: Bench) -> None:
        begun, term = await _three_buckets(bench), await _term(bench)
        with pytest.raises(NotLeader):
            await bench.store.roll_flows(RAW, MINUTE, begun + MINUTE, term=term + 1)
        assert len(await _flows(bench)) == 3

    async def test_a_thousand_handlers_are_a_bounded_number(self, bench: Bench) -> None:
        most = MOST_HANDLERS + 50
        await bench.put(*(bench.new(handler=f"h{number:04}") for number in range(most)))
        await bench.put(*(bench.new(handler=f"h{number:04}") for number in range(50, most)))
        term = await _term(bench)
        await bench.store.roll_flows(RAW, MINUTE, FOREVER, term=term)
        flows = await _flows(bench)
        assert len(flows) == MOST_HANDLERS + 1
        assert sum(one.put for one in flows) == 2 * most - 50
        assert next(one.put for one in flows if one.handler == OTHERS) == 50


class KeepingSamples:
    async def test_samples_come_back_as_they_were(self, bench: Bench) -> None:
        sample = _sample(bench, 1)
        await bench.store.add_samples([sample, _sample(bench, 2)])
        assert await _samples(bench) == [sample, _sample(bench, 2)]
        assert await bench.store.samples(0, sample.at, span=RAW) == []
        assert await bench.store.samples(sample.at, sample.at + 1, span=MINUTE) == []
        assert await bench.store.samples(sample.at, sample.at + 1, span=RAW, limit=1) == [sample]

    async def test_the_newest_samples_are_read_first_if_asked(self, bench: Bench) -> None:
        earlier = [_sample(bench, 1), _sample(bench, 2)]
        bench.clock.advance(10)
        later = [_sample(bench, 1), _sample(bench, 2)]
        await bench.store.add_samples([*earlier, *later])
        newest = [*reversed(later), *reversed(earlier)]
        for limit in (1, 3, 4, 9):
            found = await bench.store.samples(0, FOREVER, span=RAW, limit=limit, newest=True)
            assert found == newest[:limit]

    async def test_a_repeated_sample_changes_nothing(self, bench: Bench) -> None:
        sample = _sample(bench, 1)
        await bench.store.add_samples([sample])
        await bench.store.add_samples([_sample(bench, 1, started=99)])
        assert await _samples(bench) == [sample]

    async def test_samples_are_replaced_in_one_act(self, bench: Bench) -> None:
        first, second = _sample(bench, 1), _sample(bench, 2)
        whole = _sample(bench, 0, length=MINUTE)
        await bench.store.add_samples([first, second])
        term = await _term(bench)
        assert await bench.store.replace_samples([first.key, second.key], [whole], term=term)
        assert not await bench.store.replace_samples([first.key, second.key], [whole], term=term)
        assert await _samples(bench) == [whole]
        newer = _sample(bench, 0, length=MINUTE, started=7)
        assert await bench.store.replace_samples([], [newer], term=term)
        assert await _samples(bench) == [newer]

    async def test_nothing_is_replaced_if_one_is_missing(self, bench: Bench) -> None:
        first = _sample(bench, 1)
        await bench.store.add_samples([first])
        missing = SampleKey(RAW, first.at, 9)
        whole = _sample(bench, 0, length=MINUTE)
        assert not await bench.store.replace_samples([first.key, missing], [whole], term=await _term(bench))
        assert await _samples(bench) == [first]

    async def test_only_the_leader_replaces_samples(self, bench: Bench) -> None:
        first, term = _sample(bench, 1), await _term(bench)
        await bench.store.add_samples([first])
        await bench.store.resign(bench.me.number)
        with pytest.raises(NotLeader):
            await bench.store.replace_samples([first.key], [], term=term)
        assert await _samples(bench) == [first]


class DueTimes:
    async def test_a_task_was_due_when_it_was_put(self, bench: Bench) -> None:
        task = await bench.add()
        bench.clock.advance(7)
        assert (await bench.take()).due_at == task.created_at

    async def test_an_intended_delay_is_no_wait(self, bench: Bench) -> None:
        await bench.add(delay=5 * SECOND)
        due = bench.now + 5 * SECOND
        bench.clock.advance(8)
        claim = await bench.take()
        assert claim.due_at == due
        await bench.report(claim, Snooze(10 * SECOND))
        due = bench.now + 10 * SECOND
        bench.clock.advance(12)
        assert (await bench.take()).due_at == due

    async def test_a_retried_task_was_due_when_it_was_retried(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Failed(BROKEN), ONCE)
        bench.clock.advance(60)
        await bench.retry(by(state="failed"))
        due = bench.now
        bench.clock.advance(7)
        assert (await bench.take()).due_at == due

    async def test_it_is_not_known_for_a_task_that_ran_before(self, bench: Bench) -> None:
        claim = await bench.started()
        await bench.report(claim, Released(started=True))
        assert (await bench.take()).due_at is None

    async def test_a_claim_that_is_given_again_says_the_same(self, bench: Bench) -> None:
        await bench.add()
        slot = Slot(free=1, lasts=span("1m"), repeat="k")
        first = (await bench.ask(slot)).claims
        bench.clock.advance(1)
        assert (await bench.ask(slot)).claims == first
        assert first[0].due_at is not None


async def _three_buckets(bench: Bench) -> int:
    """A task in the first bucket of a minute, in its second one, and in the next minute."""
    bench.clock.advance(-bench.now % MINUTE / SECOND)
    begun = bench.now
    for seconds in (10, 50, 1):
        await bench.add()
        bench.clock.advance(seconds)
    return begun


async def _flows(
    bench: Bench,
    since: int = 0,
    until: int = FOREVER,
    *,
    span: int = RAW,
    queue: str | None = None,
    handler: str | None = None,
    by_handler: bool = True,
) -> list[Flow]:
    return await bench.store.flows(since, until, span=span, queue=queue, handler=handler, by_handler=by_handler)


async def _told(bench: Bench) -> list[tuple[str, str, dict[str, int]]]:
    """What happened so far, without zeros."""
    kinds = ("put", "completed", "failed", "cancelled", "retried", "lost", "revived")
    return [
        (one.queue, one.handler, {kind: n for kind in kinds if (n := getattr(one, kind))})
        for one in added_flows(await _flows(bench), FOREVER)
    ]


async def _samples(bench: Bench) -> list[Sample]:
    return [one for length in SPANS for one in await bench.store.samples(0, FOREVER, span=length)]


def _sample(bench: Bench, session: int, *, length: int = RAW, started: int = 1) -> Sample:
    figures = HandlerFigures("q", "job", started)
    figures.wait.add(1500)
    figures.run.add(2_000_000)
    pools = {"default": PoolSample({"idle": 20}, 1000, 1, 0)}
    at = bucket(bench.now, length)
    return Sample(at=at, span=length, session=session, covered=10, handlers=[figures], pools=pools)


async def _term(bench: Bench) -> int:
    return (await bench.store.campaign(bench.me.number)).term


__all__ = ["DueTimes", "Flows", "FlowsOfOtherActs", "KeepingSamples", "RollingUpFlows"]
