"""Schedules as people look at them, and one run at once."""

import pytest

from pitboss.client.schedules import ScheduleClient
from pitboss.model.access import AuditEntry
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.finding import Grade
from pitboss.model.schedule import ScheduleSpec, firing
from pitboss.model.states import State
from pitboss.operate.schedule_documents import schedule_document
from pitboss.operate.schedules import (
    coming_ticks,
    last_runs,
    list_schedules,
    read_schedule,
    read_schedules,
    run_schedule,
    schedule_figures,
    trial,
)
from pitboss.operate.status import read_status
from pitboss.operate.status_documents import status_document
from tests.operate.bench import GREET, Bench

YOU = {"name": "you"}


async def client_of(store: Bench) -> ScheduleClient:
    await store.register([GREET])
    return ScheduleClient(store, store.new_id)


async def fire(store: Bench, name: str) -> None:
    """As the leading manager does."""
    session = await store.manager(host="leads")
    term = (await store.campaign(session)).term
    (schedule,) = await store.schedules([name])
    made = firing(schedule, GREET, store.time.wall(), {})
    assert made is not None
    assert await store.fire([made], term=term) == [True]
    await store.end_session(session)


async def test_a_list_has_the_words_and_how_the_last_run_ended(store: Bench) -> None:
    client = await client_of(store)
    await client.add("often", "greet", every="10m", params=YOU)
    await client.add("morning", "greet", cron="30 6 * * 1-5", tz="Europe/Prague", params=YOU)
    await client.add("once", "greet", at="2030-01-01T08:00+01:00", tz="Europe/Prague", params=YOU)
    store.time.advance("11m")
    await fire(store, "often")
    assert [one.last_state for one in await list_schedules(store)] == [None, State.PENDING, None]
    await store.run_all(fail="no")
    found = {one.schedule.name: one for one in await list_schedules(store)}
    assert found["often"].last_state is State.FAILED
    assert found["often"].schedule.last_success is None
    assert found["morning"].when == "at 06:30 on Monday to Friday (Europe/Prague)"
    assert found["once"].when == "once, on 2030-01-01 at 08:00:00 (Europe/Prague)"
    assert found["often"].when == "every 10m"
    assert [one.schedule.name for one in await read_schedules(store, limit=1, after="morning")] == ["often"]


async def test_a_document_says_what_an_operator_changed(store: Bench) -> None:
    client = await client_of(store)
    spec = ScheduleSpec(name="nightly", handler="greet", cron="0 3 * * *", params='{"name":"you"}')
    await store.declare(Declared(app="shop", schedules=(spec,)))
    await client.change("nightly", every="90s", priority=5, by="ann")
    document = schedule_document(await read_schedule(store, "nightly"))
    assert (document["cron"], document["every"], document["priority"], document["app"]) == (None, 90.0, 5, "shop")
    assert document["changed"] == {"every": None, "priority": 0}
    assert document["changed_by"] == "ann"
    assert document["params"] == YOU


async def test_ticks_of_all_schedules_are_merged_and_paused_ones_left_out(store: Bench) -> None:
    client = await client_of(store)
    ten = await client.add("ten", "greet", every="10s", params=YOU)
    four = await client.add("four", "greet", every="4s", params=YOU)
    began = store.time.wall()
    found = coming_ticks([ten, four], 5)
    assert [((one.at - began) // SECOND, one.schedule) for one in found] == [
        (4, "four"), (8, "four"), (10, "ten"), (12, "four"), (16, "four"),
    ]  # fmt: skip
    paused = await client.pause("four")
    assert {one.schedule for one in coming_ticks([ten, paused], 5)} == {"ten"}
    assert len(coming_ticks([paused], 5)) == 5


async def test_a_line_that_is_not_stored_can_be_tried(store: Bench) -> None:
    tried = trial("0 3 * * *", None, None, "Europe/Prague", store.time.wall())
    assert len(coming_ticks([tried], 3)) == 3
    with pytest.raises(InvalidInput, match="cron"):
        trial("0 3 * *", None, None, None, store.time.wall())
    assert await store.schedules() == []


async def test_a_run_at_once_is_in_the_audit_log_and_one_that_cannot_be_is_not(store: Bench) -> None:
    client = await client_of(store)
    await client.add("often", "greet", every="10m", params=YOU)
    audited = store.audited(AuditEntry(id=store.new_id(), who="ann", act="schedules run", target="often"))
    with pytest.raises(NotFound, match=r'no schedule "oftn"'):
        await run_schedule(audited, "oftn", store.new_id)
    assert await store.audit_log() == []
    placed = await run_schedule(audited, "often", store.new_id)
    assert placed.created
    assert [one.act for one in await store.audit_log()] == ["schedules run"]


async def test_overdue_schedules_are_a_warning_and_paused_ones_are_not(store: Bench) -> None:
    client = await client_of(store)
    await client.add("often", "greet", every="10s", params=YOU)
    await client.add("seldom", "greet", every="10h", params=YOU)
    await client.add("off", "greet", every="10s", params=YOU)
    await client.pause("off", by="ann")
    store.time.advance("39s")
    figures = await schedule_figures(store, store.time.wall())
    assert figures is not None
    assert (figures.total, figures.paused, figures.next_name, figures.overdue) == (3, 1, "often", ())
    store.time.advance("2s")
    status = await read_status(store, store.now)
    (found,) = [one for one in status.findings if one.check == "schedules"]
    assert (found.grade, found.what) == (Grade.WARNING, 'schedule "often" is overdue by 31s')
    assert found.fix == "pitboss up"
    await store.manager()
    status = await read_status(store, store.now)
    assert status.verdict.sentence == 'Schedule "often" is overdue by 31s, although a manager runs.'
    assert (status.verdict.cause, status.next) == ("overdue", "pitboss logs manager")
    document = status_document(status)["schedules"]
    assert (document["total"], document["paused"], document["overdue"], document["next"]) == (3, 1, ["often"], "seldom")


async def test_last_runs_are_the_tasks_of_the_last_ticks_that_are_kept(store: Bench) -> None:
    client = await client_of(store)
    await client.add("often", "greet", every="10m", params=YOU)
    (fresh,) = await store.schedules(["often"])
    assert await last_runs(store, fresh, 5) == []
    for _ in range(4):
        store.time.advance("10m")
        await fire(store, "often")
        await store.run_all()
    (schedule,) = await store.schedules(["often"])
    runs = await last_runs(store, schedule, 3)
    assert [tick for tick, _ in runs] == [(schedule.last_tick or 0) - place * 600 * SECOND for place in range(3)]
    assert runs[0][1].id == schedule.last_task
    assert {task.state for _, task in runs} == {State.COMPLETED}
    del store.tables.tasks[runs[1][1].id]
    assert [task.id for _, task in await last_runs(store, schedule, 3)] == [runs[0][1].id, runs[2][1].id]


async def test_a_schedule_has_one_word_for_how_it_is(store: Bench) -> None:
    client = await client_of(store)
    await client.add("often", "greet", every="10m", params=YOU)
    await client.add("once", "greet", at="2100-01-01T08:00+00:00", params=YOU)

    async def status(name: str) -> str:
        return (await read_schedule(store, name)).status

    assert await status("often") == "active"
    store.time.advance("11m")
    assert await status("often") == "overdue"
    await client.pause("often")
    assert await status("often") == "paused"
