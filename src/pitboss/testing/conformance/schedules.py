"""Schedules: putting and advancing are one act, under the leader's term."""

from typing import Any

import pytest
from msgspec.structs import replace

from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import InvalidInput, NotLeader
from pitboss.model.meta import read_meta
from pitboss.model.schedule import Catchup, Firing, Overlap, Schedule, ScheduleChange, ScheduleSpec, firing
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.testing.conformance.bench import Bench

MINUTE = 60 * SECOND


class ScheduleKeeping:
    async def test_one_is_added_at_run_time(self, bench: Bench) -> None:
        schedule = await bench.store.put_schedule(_every("a"))
        assert (schedule.app, schedule.version, schedule.created_at) == (None, 1, bench.now)
        assert schedule.next_at == bench.clock.wall() + MINUTE
        assert await bench.store.schedules() == [schedule]

    async def test_they_are_listed_by_name_in_pages(self, bench: Bench) -> None:
        for name in ("c", "a", "d", "b"):
            await bench.store.put_schedule(_every(name))
        assert [one.name for one in await bench.store.schedules(limit=3)] == ["a", "b", "c"]
        assert [one.name for one in await bench.store.schedules(limit=3, after="b")] == ["c", "d"]
        assert [one.name for one in await bench.store.schedules(["d", "x", "a"])] == ["a", "d"]

    async def test_defining_it_anew_counts_from_now(self, bench: Bench) -> None:
        await bench.store.put_schedule(_every("a"))
        bench.clock.advance(10)
        schedule = await bench.store.put_schedule(_every("a", every=5 * MINUTE))
        assert (schedule.next_at, schedule.version) == (bench.clock.wall() + 5 * MINUTE, 2)

    async def test_pausing_and_going_on(self, bench: Bench) -> None:
        await bench.store.put_schedule(_every("a"))
        paused = await bench.store.change_schedule("a", ScheduleChange(paused=True, by="ann"))
        assert paused is not None
        assert (paused.paused, paused.paused_by, paused.paused_at) == (True, "ann", bench.now)
        bench.clock.advance(90)
        assert (await bench.store.due_schedules()).schedules == []
        resumed = await bench.store.change_schedule("a", ScheduleChange(paused=False))
        assert resumed is not None
        assert (resumed.paused, resumed.paused_by) == (False, None)
        assert resumed.next_at == bench.clock.wall() + 30 * SECOND

    async def test_changes_stand_above_the_definition_until_they_are_withdrawn(self, bench: Bench) -> None:
        await bench.store.declare(Declared(app="a", schedules=(_every("a"),)), session=bench.me.number)
        changes = {"cron": "0 0 * * *", "priority": 3}
        changed = await bench.store.change_schedule("a", ScheduleChange(changes=changes, by="ann"))
        assert changed is not None
        assert (changed.spec.cron, changed.spec.every, changed.spec.priority) == ("0 0 * * *", None, 3)
        assert (changed.changed_by, changed.declared.every) == ("ann", MINUTE)
        back = await bench.store.change_schedule("a", ScheduleChange(changes={}))
        assert back is not None
        assert (back.spec, back.changed_by) == (_every("a"), None)

    async def test_an_impossible_change_is_refused(self, bench: Bench) -> None:
        before = await bench.store.put_schedule(_every("a"))
        with pytest.raises(InvalidInput):
            await bench.store.change_schedule("a", ScheduleChange(changes={"cron": "99 * * * *"}))
        assert await bench.store.schedules() == [before]

    async def test_one_that_was_added_can_be_removed(self, bench: Bench) -> None:
        before = await bench.store.put_schedule(_every("a"))
        assert await bench.store.change_schedule("a", None) == before
        assert await bench.store.schedules() == []
        assert await bench.store.change_schedule("a", None) is None
        assert await bench.store.change_schedule("a", ScheduleChange(paused=True)) is None

    async def test_one_that_code_declares_can_not(self, bench: Bench) -> None:
        await bench.store.declare(Declared(app="shop", schedules=(_every("a"),)), session=bench.me.number)
        with pytest.raises(InvalidInput, match="shop"):
            await bench.store.change_schedule("a", None)
        with pytest.raises(InvalidInput, match="shop"):
            await bench.store.put_schedule(_every("a", every=2 * MINUTE))
        assert [one.declared for one in await bench.store.schedules()] == [_every("a")]

    async def test_those_that_are_due_come_first_due_first(self, bench: Bench) -> None:
        for name, seconds in (("a", 30), ("b", 20), ("c", 60)):
            await bench.store.put_schedule(_every(name, every=seconds * SECOND))
        start = bench.clock.wall()
        found = await bench.store.due_schedules()
        assert (found.schedules, found.next_at) == ([], start + 20 * SECOND)
        bench.clock.advance(30)
        found = await bench.store.due_schedules()
        assert ([one.name for one in found.schedules], found.next_at) == (["b", "a"], start + 60 * SECOND)
        found = await bench.store.due_schedules(limit=1)
        assert ([one.name for one in found.schedules], found.next_at) == (["b"], start + 30 * SECOND)

    async def test_ticks_follow_the_wall_clock(self, bench: Bench) -> None:
        await bench.store.put_schedule(_every("a"))
        bench.clock.set_wall("1m")
        assert len((await bench.store.due_schedules()).schedules) == 1
        bench.clock.set_wall("10m", back=True)
        assert (await bench.store.due_schedules()).schedules == []


class FiringSchedules:
    async def test_a_tick_puts_its_task_and_advances(self, bench: Bench) -> None:
        tick = await _due(bench, _every("a", params='{"n":1}', priority=2))
        (task,) = await _fired(bench)
        assert (task.state, task.handler, task.params, task.priority) == (State.PENDING, "job", '{"n":1}', 2)
        mark = read_meta(task.meta).tick
        assert mark is not None
        assert (mark.schedule, mark.scheduled_for, mark.last_success) == ("a", tick, None)
        (schedule,) = await bench.store.schedules()
        assert (schedule.next_at, schedule.last_tick, schedule.last_task) == (tick + MINUTE, tick, task.id)
        assert (schedule.fired, schedule.skipped, schedule.version, schedule.open) == (1, 0, 2, ((tick, task.id),))

    async def test_a_firing_for_an_older_version_does_nothing(self, bench: Bench) -> None:
        await _due(bench, _every("a"))
        old = await _firings(bench)
        await bench.store.put_schedule(_every("a", priority=1))
        (before,) = await bench.store.schedules()
        assert await bench.store.fire(old, term=await _term(bench)) == [False]
        assert await bench.store.schedules() == [before]
        assert await bench.every_task() == []

    async def test_a_repeated_firing_puts_nothing_more(self, bench: Bench) -> None:
        await _due(bench, _every("a", overlap=Overlap.ALLOW))
        firings = await _firings(bench)
        term = await _term(bench)
        assert await bench.store.fire(firings, term=term) == [True]
        assert await bench.store.fire(firings, term=term) == [False]
        (schedule,) = await bench.store.schedules()
        # A leader that read the schedule anew, but computed the tick before: the task's id is the same.
        again = [replace(firings[0], schedule=schedule)]
        assert await bench.store.fire(again, term=term) == [True]
        assert len(await bench.every_task()) == 1

    async def test_only_the_leader_fires(self, bench: Bench) -> None:
        await _due(bench, _every("a"))
        firings, term = await _firings(bench), await _term(bench)
        await bench.store.resign(bench.me.number)
        other = await bench.session("job")
        await bench.store.campaign(other.number)
        (before,) = await bench.store.schedules()
        with pytest.raises(NotLeader):
            await bench.store.fire(firings, term=term)
        assert await bench.store.schedules() == [before]
        assert await bench.every_task() == []

    async def test_a_paused_or_removed_one_does_not_fire(self, bench: Bench) -> None:
        await _due(bench, _every("a"))
        await bench.store.put_schedule(_every("b"))
        firings, term = await _firings(bench), await _term(bench)
        paused = await bench.store.change_schedule("a", ScheduleChange(paused=True))
        assert paused is not None
        assert await bench.store.fire([replace(firings[0], schedule=paused)], term=term) == [False]
        await bench.store.change_schedule("a", None)
        assert await bench.store.fire(firings, term=term) == [False]
        assert await bench.every_task() == []

    async def test_a_tick_is_skipped_while_the_last_task_is_unfinished(self, bench: Bench) -> None:
        await _due(bench, _every("a"))
        (first,) = await _fired(bench)
        bench.clock.advance(60)
        assert await _fired(bench) == []
        (schedule,) = await bench.store.schedules()
        assert (schedule.fired, schedule.skipped, schedule.last_task) == (1, 1, first.id)
        await bench.complete(await bench.take())
        bench.clock.advance(60)
        (second,) = await _fired(bench)
        mark, before = read_meta(second.meta).tick, read_meta(first.meta).tick
        assert mark is not None
        assert before is not None
        assert mark.last_success == before.scheduled_for

    async def test_queued_ticks_run_one_after_the_other(self, bench: Bench) -> None:
        await _due(bench, _every("a", overlap=Overlap.QUEUE))
        (first,) = await _fired(bench)
        bench.clock.advance(60)
        (second,) = await _fired(bench)
        assert (second.state, second.reason) == (State.HELD, "order")
        claim = await bench.take()
        assert claim.id == first.id
        assert await bench.claim() == []
        await bench.complete(claim)
        assert (await bench.take()).id == second.id

    async def test_every_missed_tick_is_made_up_for(self, bench: Bench) -> None:
        first = await _due(bench, _every("a", overlap=Overlap.ALLOW, catchup=Catchup.ALL))
        bench.clock.advance(180)
        marks = [read_meta(task.meta).tick for task in await _fired(bench)]
        assert [mark.scheduled_for for mark in marks if mark] == [first + n * MINUTE for n in range(4)]

    async def test_jitter_delays_the_task(self, bench: Bench) -> None:
        tick = await _due(bench, _every("a", jitter=3600 * SECOND))
        (task,) = await _fired(bench)
        if task.state is State.SCHEDULED:
            assert tick < (task.run_at or 0) < tick + 3600 * SECOND

    async def test_a_full_queue_does_not_stop_it(self, bench: Bench) -> None:
        await bench.change("default", capacity=0)
        await _due(bench, _every("a"))
        assert len(await _fired(bench)) == 1

    async def test_many_fire_in_one_act(self, bench: Bench) -> None:
        for number in range(30):
            await bench.store.put_schedule(_every(f"s{number:02}", queue=f"q{number % 3}"))
        bench.clock.advance(60)
        assert len(await _fired(bench)) == 30
        assert (await bench.store.due_schedules()).schedules == []

    async def test_a_single_time_fires_once(self, bench: Bench) -> None:
        at = bench.clock.wall() + 5 * SECOND
        await bench.store.put_schedule(ScheduleSpec(name="once", handler="job", at=at))
        bench.clock.advance(5)
        assert len(await _fired(bench)) == 1
        bench.clock.advance(3600)
        found = await bench.store.due_schedules()
        assert (found.schedules, found.next_at) == ([], None)


def _every(name: str, **options: Any) -> ScheduleSpec:
    made: dict[str, Any] = {"name": name, "handler": "job", "every": MINUTE}
    return ScheduleSpec(**made | options)


async def _due(bench: Bench, spec: ScheduleSpec) -> Moment:
    """Add it, and let its first tick come; that tick."""
    schedule = await bench.store.put_schedule(spec)
    bench.clock.advance(60)
    assert schedule.next_at is not None
    return schedule.next_at


async def _firings(bench: Bench) -> list[Firing]:
    """What the leader would do now."""
    due = (await bench.store.due_schedules()).schedules
    ids = [task for schedule in due for _, task in schedule.open]
    tasks = zip(ids, await bench.store.get(ids), strict=True)
    states = {one: None if task is None else task.state for one, task in tasks}
    made = [_firing(bench, schedule, states) for schedule in due]
    return [one for one in made if one is not None]


def _firing(bench: Bench, schedule: Schedule, states: dict[str, State | None]) -> Firing | None:
    return firing(schedule, None, bench.clock.wall(), states)


async def _term(bench: Bench) -> int:
    return (await bench.store.campaign(bench.me.number)).term


async def _fired(bench: Bench) -> list[Task]:
    """Fire what is due; the tasks that are new."""
    before = {task.id for task in await bench.every_task()}
    assert all(await bench.store.fire(await _firings(bench), term=await _term(bench)))
    await bench.look()
    return [task for task in await bench.every_task() if task.id not in before]


__all__ = ["FiringSchedules", "ScheduleKeeping"]
