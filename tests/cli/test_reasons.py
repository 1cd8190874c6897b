"""Why something is paused: stored with who and when, and shown wherever the pause is."""

from typing import Any

from pitboss.cli.command import operator
from pitboss.model.batch import NewBatch
from pitboss.model.duration import SECOND
from pitboss.model.schedule import ScheduleSpec
from tests.cli.command_line import new, pitboss, put, with_store
from tests.cli.fake_managers import manager, pool, snapshot, worker

WHY = "the site is down"


def test_a_queue() -> None:
    (task,) = put(new(queue="mail"))
    assert pitboss("queues", "pause", "mail", "--reason", WHY).code == 0
    queue = pitboss("queues", "show", "mail", "--json").json()["queue"]
    assert (queue["paused_by"], queue["paused_reason"]) == (operator(), WHY)
    assert ["reason", *WHY.split()] in [line.split() for line in pitboss("queues", "show", "mail").out.splitlines()]
    assert WHY in pitboss("why", task).out
    assert WHY in pitboss("doctor").out
    pitboss("queues", "resume", "mail")
    assert pitboss("queues", "show", "mail", "--json").json()["queue"]["paused_reason"] is None


def test_a_batch() -> None:
    item = new()

    async def make(store: Any) -> str:
        return str((await store.create_batch(NewBatch(id=item.id[:-4] + "beef"), [item])).id)

    put(new(queue="other"))
    batch = with_store(make)
    assert pitboss("batches", "pause", batch, "--reason", WHY).code == 0
    assert pitboss("batches", "show", batch, "--json").json()["batch"]["reason"] == WHY
    assert WHY in pitboss("batches", "show", batch).out
    assert WHY in pitboss("why", batch).out


def test_a_schedule() -> None:
    put(new())

    async def add(store: Any) -> None:
        await store.put_schedule(ScheduleSpec(name="eu", handler="greet", every=3600 * SECOND))

    with_store(add)
    assert pitboss("schedules", "pause", "eu", "--reason", WHY).code == 0
    shown = pitboss("schedules", "show", "eu", "--json").json()["schedule"]
    assert (shown["paused_by"], shown["paused_reason"]) == (operator(), WHY)
    assert WHY in pitboss("schedules", "show", "eu").out


def test_a_worker_pool() -> None:
    put(new(queue="mail"))
    manager(snapshot(worker()))
    assert pitboss("pools", "pause", "download", "--reason", WHY).code == 0
    wanted = pitboss("pools", "list", "--json").json()["orders"]["download"]
    assert (wanted["paused"], wanted["paused_by"], wanted["paused_reason"]) == (True, operator(), WHY)
    assert f"paused: {WHY}" in pitboss("pools", "list").out
    assert pitboss("pools", "resume", "download").code == 0
    assert pitboss("pools", "list", "--json").json()["orders"] == {}


def test_a_pool_that_managers_report_as_paused() -> None:
    (task,) = put(new(queue="mail"))
    manager(snapshot(worker(), pools=(pool(paused=True, paused_by="ann", paused_reason=WHY, queues=("mail",)),)))
    assert WHY in pitboss("why", task).out
    assert f"is paused by ann: {WHY}" in pitboss("doctor").out
