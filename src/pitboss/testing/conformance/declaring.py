"""What apps declare: the newest version of each app counts, and what operators set stays."""

from typing import Any

from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.event import EventType, NewEvent, Subscription
from pitboss.model.limits import rate
from pitboss.model.queue import Queue, QueueSettings
from pitboss.model.schedule import ScheduleChange, ScheduleSpec
from pitboss.model.states import State
from pitboss.testing.conformance.bench import Bench

HOURLY = ScheduleSpec(name="hourly", handler="job", cron="0 * * * *")
ON_SIGNUP = Subscription(handler="job", pattern="user.signup")


class Declaring:
    async def test_a_new_store_has_no_declarations(self, bench: Bench) -> None:
        assert await bench.store.declarations() == []
        assert await bench.store.schedules() == []

    async def test_what_an_app_declares_is_kept(self, bench: Bench) -> None:
        declared = Declared(
            app="shop",
            queues={"q": QueueSettings(capacity=5, rate=rate("2/s"), retention={State.FAILED: 60 * SECOND})},
            schedules=(HOURLY,),
            subscriptions=(ON_SIGNUP,),
            events=(EventType("user.signup", '{"type":"object"}'),),
        )
        assert await _declare(bench, declared)
        (kept,) = await bench.store.declarations()
        assert (kept.app, kept.queues, kept.schedules) == ("shop", declared.queues, ())
        assert (kept.subscriptions, kept.events) == (declared.subscriptions, declared.events)
        (schedule,) = await bench.store.schedules()
        assert (schedule.declared, schedule.app, schedule.version) == (HOURLY, "shop", 1)
        queue = await bench.queue("q")
        assert (queue.capacity, queue.rate, queue.declared) == (5, rate("2/s"), declared.queues["q"])

    async def test_apps_do_not_touch_each_other(self, bench: Bench) -> None:
        await _declare(bench, Declared(app="a", schedules=(HOURLY,), queues={"q": QueueSettings(capacity=1)}))
        await _declare(bench, Declared(app="b", subscriptions=(ON_SIGNUP,)))
        await _declare(bench, Declared(app="b"))
        assert [one.name for one in await bench.store.schedules()] == ["hourly"]
        assert (await bench.queue("q")).capacity == 1
        assert [one.app for one in await bench.store.declarations()] == ["a", "b"]

    async def test_a_newer_version_withdraws_what_it_no_longer_declares(self, bench: Bench) -> None:
        queues = {"q": QueueSettings(capacity=1), "kept": QueueSettings(capacity=2)}
        await _declare(bench, Declared(app="a", schedules=(HOURLY,), subscriptions=(ON_SIGNUP,), queues=queues))
        await _declare(bench, Declared(app="a", queues={"kept": QueueSettings(capacity=3)}))
        assert await bench.store.schedules() == []
        (published,) = await bench.store.publish([NewEvent(id=bench.ids(), name="user.signup")])
        assert published.handlers == ()
        assert await bench.queue("q") == Queue(name="q")
        assert (await bench.queue("kept")).capacity == 3

    async def test_an_old_version_that_starts_again_during_a_rollout_changes_nothing(self, bench: Bench) -> None:
        old, new = Declared(app="a", schedules=(HOURLY,)), Declared(app="a", subscriptions=(ON_SIGNUP,))
        first, second, third = [await bench.session("job") for _ in range(3)]
        assert await bench.store.declare(old, session=first.number)
        assert await bench.store.declare(new, session=second.number)
        assert not await bench.store.declare(old, session=third.number)
        assert await bench.store.schedules() == []
        assert (await bench.store.declarations())[0].subscriptions == (ON_SIGNUP,)

    async def test_the_present_version_may_declare_again(self, bench: Bench) -> None:
        declared = Declared(app="a", schedules=(HOURLY,))
        await _declare(bench, declared)
        (before,) = await bench.store.schedules()
        bench.clock.advance(10)
        assert await _declare(bench, declared)
        assert await bench.store.schedules() == [before]

    async def test_an_old_version_returns_when_the_newer_one_has_gone(self, bench: Bench) -> None:
        old, new = Declared(app="a", schedules=(HOURLY,)), Declared(app="a")
        first, second = [await bench.session("job") for _ in range(2)]
        await bench.store.declare(old, session=first.number)
        await bench.store.declare(new, session=second.number)
        assert not await bench.store.declare(old, session=first.number)
        await bench.end(second)
        assert await bench.store.declare(old, session=first.number)
        assert [one.name for one in await bench.store.schedules()] == ["hourly"]

    async def test_without_a_session_only_a_new_app_is_declared(self, bench: Bench) -> None:
        assert await bench.store.declare(Declared(app="a", subscriptions=(ON_SIGNUP,)))
        assert not await bench.store.declare(Declared(app="a"))
        assert (await bench.store.declarations())[0].subscriptions == (ON_SIGNUP,)
        assert await _declare(bench, Declared(app="a"))
        assert (await bench.store.declarations())[0].subscriptions == ()

    async def test_a_changed_schedule_keeps_what_operators_did(self, bench: Bench) -> None:
        await _declare(bench, Declared(app="a", schedules=(HOURLY,)))
        await bench.store.change_schedule("hourly", ScheduleChange(paused=True, by="ann"))
        changed = ScheduleSpec(name="hourly", handler="job", cron="30 * * * *")
        await _declare(bench, Declared(app="a", schedules=(changed,)))
        (schedule,) = await bench.store.schedules()
        assert (schedule.declared, schedule.paused, schedule.paused_by) == (changed, True, "ann")
        assert (schedule.next_at or 0) % (3600 * SECOND) == 1800 * SECOND

    async def test_a_schedule_that_comes_back_keeps_what_operators_did(self, bench: Bench) -> None:
        spec = ScheduleSpec(name="often", handler="job", every=60 * SECOND)
        await _declare(bench, Declared(app="a", schedules=(spec,)))
        (before,) = await bench.store.schedules()
        await bench.store.change_schedule("often", ScheduleChange(paused=True, by="ann"))
        await bench.store.change_schedule("often", ScheduleChange(changes={"priority": 3}, by="ann"))
        await _declare(bench, Declared(app="a"))
        assert await bench.store.schedules() == await bench.store.schedules(["often"]) == []
        assert await bench.store.change_schedule("often", ScheduleChange(paused=False)) is None
        assert (await bench.store.due_schedules()).next_at is None
        bench.clock.advance(90)
        await _declare(bench, Declared(app="a", schedules=(spec,)))
        (after,) = await bench.store.schedules()
        assert (after.paused, after.paused_by, after.spec.priority) == (True, "ann", 3)
        assert after.next_at == (before.next_at or 0) + 60 * SECOND

    async def test_the_name_of_a_withdrawn_schedule_is_free(self, bench: Bench) -> None:
        await _declare(bench, Declared(app="a", schedules=(HOURLY,)))
        await _declare(bench, Declared(app="a"))
        added = await bench.store.put_schedule(ScheduleSpec(name="hourly", handler="job", every=60 * SECOND))
        assert (added.app, added.version) == (None, 1)
        assert await bench.store.schedules() == [added]

    async def test_what_an_operator_limited_stays_until_it_is_withdrawn(self, bench: Bench) -> None:
        await bench.change("q", capacity=7)
        await _declare(bench, Declared(app="a", queues={"q": QueueSettings(capacity=1, rate=rate("1/s"))}))
        queue = await bench.queue("q")
        assert (queue.capacity, queue.rate, queue.limited) == (7, rate("1/s"), ("capacity",))
        queue = await bench.change("q", withdraw=("capacity",))
        assert (queue.capacity, queue.rate, queue.limited) == (1, rate("1/s"), ())
        await bench.change("q", rate=())
        await _declare(bench, Declared(app="a", queues={"q": QueueSettings(capacity=1, rate=rate("5/s"))}))
        assert (await bench.queue("q")).rate == ()
        assert (await bench.change("q", withdraw=("capacity", "rate"))).rate == rate("5/s")

    async def test_withdrawing_without_a_declaration_leaves_no_limit(self, bench: Bench) -> None:
        await bench.change("q", capacity=7, rate=rate("1/s"))
        assert await bench.change("q", withdraw=("capacity", "rate")) == Queue(name="q")

    async def test_the_last_app_that_declares_a_queue_has_it(self, bench: Bench) -> None:
        await _declare(bench, Declared(app="a", queues={"q": QueueSettings(capacity=1)}))
        await _declare(bench, Declared(app="b", queues={"q": QueueSettings(capacity=2)}))
        await _declare(bench, Declared(app="a"))
        assert (await bench.queue("q")).capacity == 2
        await _declare(bench, Declared(app="b"))
        assert (await bench.queue("q")).capacity is None


async def _declare(bench: Bench, declared: Declared, **options: Any) -> bool:
    """As a new manager does, which then ends."""
    session = await bench.session("job")
    answer = await bench.store.declare(declared, session=session.number, **options)
    await bench.end(session)
    await bench.look()
    return answer


__all__ = ["Declaring"]
