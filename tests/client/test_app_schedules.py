"""`app.schedules`: the schedules of the store, from code."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pitboss import App, Context, InvalidInput, NotFound
from pitboss.model.canonical import from_json
from pitboss.model.duration import SECOND
from pitboss.testing.sandbox import Sandbox, sandbox
from pitboss.upkeep.fire import Firer

app = App("memory://", name="shop")
seen: list[Any] = []


@app.scheduled_task(cron="0 3 * * *", priority=4)
def nightly(context: Context) -> str:
    seen.append((context.scheduled_for, context.last_success))
    return "done"


@app.task
def report(region: str, days: int = 1) -> None: ...


@pytest.fixture
def box() -> Iterator[Sandbox]:
    seen.clear()
    with sandbox(app) as box:
        yield box


def test_a_declared_schedule_is_there_before_the_first_manager(box: Sandbox) -> None:
    (schedule,) = app.schedules.list()
    assert (schedule.name, schedule.app, schedule.spec.cron) == ("nightly", "shop", "0 3 * * *")
    assert app.schedules.get("nightly") == schedule
    assert app.schedules.list(after="nightly") == []


def test_a_schedule_runs_at_once(box: Sandbox) -> None:
    handle = app.schedules.run("nightly")
    box.drain()
    assert handle.result(1) == "done"
    ((scheduled_for, last_success),) = seen
    assert scheduled_for == datetime.fromtimestamp(box.clock.wall() / SECOND, UTC)
    assert last_success is None
    assert handle.task().priority == 4


def test_a_tick_knows_the_last_success(box: Sandbox) -> None:
    async def fire(_: object) -> None:
        lead = await box.store.campaign(await box._open())
        await Firer(box.store, box.store, box.clock, warn=print).fire(lead.term)

    app.schedules.list()
    ticks = []
    for _ in range(2):
        ticks.append(app.schedules.get("nightly").next_at)
        box.clock.advance(86_400)
        app.ask(fire, limit=5, what="firing")
        box.drain()
    first, second = (datetime.fromtimestamp(tick / SECOND, UTC) for tick in ticks if tick)
    assert seen == [(first, None), (second, first)]


def test_schedules_are_added_changed_and_removed(box: Sandbox) -> None:
    schedules = app.schedules
    added = schedules.add("eu", report, every="10m", params={"region": "eu"}, tz="Europe/Prague")
    assert (added.app, from_json(added.spec.params)) == (None, {"region": "eu"})
    with pytest.raises(InvalidInput, match="region"):
        schedules.add("us", "report", every="10m")
    with pytest.raises(NotFound, match='did you mean "report"'):
        schedules.add("us", "reprot", every="10m")
    changed = schedules.change("eu", cron="0 6 * * *", params={"region": "eu", "days": 2})
    assert (changed.spec.cron, changed.spec.every) == ("0 6 * * *", None)
    assert schedules.reset("eu").spec == added.spec
    assert schedules.pause("eu").paused
    assert not schedules.resume("eu").paused
    assert schedules.remove("eu").name == "eu"
    with pytest.raises(NotFound):
        schedules.get("eu")
    with pytest.raises(InvalidInput, match='is declared by the code of "shop"'):
        schedules.remove("nightly")


def test_a_time_that_is_over_is_refused(box: Sandbox) -> None:
    """A single time of long ago was taken, and fired at once."""
    schedules, now = app.schedules, datetime.fromtimestamp(box.clock.wall() / SECOND, UTC)
    past, soon = now - timedelta(hours=1), now + timedelta(hours=1)
    with pytest.raises(InvalidInput, match="that time is over"):
        schedules.add("once", report, at=past, params={"region": "eu"})
    schedules.add("once", report, at=soon, params={"region": "eu"})
    with pytest.raises(InvalidInput, match="that time is over"):
        schedules.change("once", at=past)
    assert schedules.get("once").next_at == round(soon.timestamp() * SECOND)
    assert schedules.change("once", at=now - timedelta(seconds=5)).next_at is not None, "clocks differ a little"
    schedules.remove("once")


def test_async_callers_have_the_same_calls(box: Sandbox) -> None:
    async def main() -> None:
        schedules = app.schedules
        await schedules.aadd("eu", report, every=60, params={"region": "eu"})
        assert [one.name for one in await schedules.alist()] == ["eu", "nightly"]
        await schedules.achange("eu", every=120)
        assert (await schedules.aget("eu")).spec.every == 120 * SECOND
        await schedules.areset("eu")
        assert (await schedules.apause("eu")).paused
        assert not (await schedules.aresume("eu")).paused
        assert (await schedules.arun("eu")).created
        assert not (await schedules.arun("eu")).created, "an earlier run is unfinished"
        await schedules.aremove("eu")

    asyncio.run(main())
