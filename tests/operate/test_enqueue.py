"""Enqueueing by name: checked against the registered handler, with everything that the handler declares."""

from typing import Any

import pytest

from pitboss import App, Lease
from pitboss.model.batch import BatchStatus
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Want
from pitboss.model.states import State
from pitboss.operate.batch_items import parse_items
from pitboss.operate.enqueue import create_batch, described_batch, enqueue
from tests.operate.bench import GREET, Bench

app = App("memory://")
accounts = app.resources("accounts")


@app.task(queue="checks")
def check(
    account: str, region: str = "eu", lease: Lease = accounts.lease(labels=["{region}"], sticky="account")
) -> None:
    """Its tasks want a member with the label of their region, and the one that their account had before."""


@app.task
def report(batch: str, status: str, lease: Lease = accounts.lease(labels=["big"])) -> None: ...


CHECK, REPORT = check.describe(), report.describe()


async def test_a_task_enqueued_by_name_has_the_labels_and_the_sticky_key_of_its_handler(store: Bench) -> None:
    """`pitboss tasks enqueue` stored tasks without them, so that they ran with any member."""
    await store.register([CHECK])
    placed = await enqueue(store.client, "check", {"account": "anna"}, store.new_id())
    task = await store.client.get(placed.id)
    assert task.want == Want(("eu",), "anna") == check.prepared("anna").want
    assert task.queue == "checks"


async def test_the_items_of_a_batch_and_its_last_task_have_them_too(store: Bench) -> None:
    """`pitboss batches create` dropped them as `pitboss tasks enqueue` did."""
    await store.register([CHECK, REPORT])
    params = parse_items('{"account":"anna"}\n{"account":"bob","region":"us"}', "auto", CHECK, "stdin")
    new = described_batch(store.new_id(), name="night run", data={"a": 1}, by="ann")
    batch = await create_batch(store.client, CHECK, params, store.new_id, new, on_complete="report")
    tasks = (await store.find(EVERYTHING, oldest_first=True)).tasks
    assert [task.want for task in tasks] == [Want(("eu",), "anna"), Want(("us",), "bob")]
    assert batch.on_complete is not None
    assert batch.on_complete.want == Want(("big",))
    assert (batch.name, batch.total, batch.status, batch.by) == ("night run", 2, BatchStatus.RUNNING, "ann")


async def test_options_are_those_of_a_handler(store: Bench) -> None:
    await store.register([GREET])
    options: dict[str, Any] = {"queue": "mail", "priority": -3, "delay": "10m", "key": "k", "tags": ["a"]}
    first = await enqueue(store.client, "greet", {"name": "you"}, store.new_id(), **options)
    task = await store.client.get(first.id)
    assert (task.queue, task.priority, task.state, task.unique_key, task.tags) == (
        "mail",
        -3,
        State.SCHEDULED,
        "greet/k",
        ("a",),
    )
    second = await enqueue(store.client, "greet", {"name": "you"}, store.new_id(), key="k")
    assert (second.id, second.created) == (first.id, False)


async def test_an_unknown_handler_is_refused_unless_its_tasks_may_be_held(store: Bench) -> None:
    await store.register([GREET])
    with pytest.raises(NotFound) as caught:
        await enqueue(store.client, "gret", {}, store.new_id())
    assert caught.value.why == "it knows greet"
    placed = await enqueue(store.client, "gret", {}, store.new_id(), held=True)
    assert placed.state is State.HELD


@pytest.mark.parametrize(
    ("params", "options"), [({}, {}), ({"name": 1}, {}), ({"name": "x"}, {"queue": "a b"}), ({"name": "x"}, {"no": 1})]
)
async def test_what_does_not_fit_is_refused_before_anything_is_stored(
    store: Bench, params: dict[str, Any], options: dict[str, Any]
) -> None:
    await store.register([GREET])
    with pytest.raises(InvalidInput):
        await enqueue(store.client, "greet", params, store.new_id(), **options)
    assert (await store.count(EVERYTHING)).number == 0


def test_cells_of_csv_get_the_types_of_their_parameters() -> None:
    schema = '{"properties":{"to":{"type":"integer"},"loud":{"type":"boolean"},"name":{"type":"string"}}}'
    count = HandlerInfo(name="count", schema=schema)
    assert parse_items('to,loud,name\n3,yes,007\n4,,\n"5",false,"a,b"\n', "auto", count, "items.csv") == [
        '{"loud":true,"name":"007","to":3}',
        '{"to":4}',
        '{"loud":false,"name":"a,b","to":5}',
    ]


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("", "auto", "items has no items"),
        ('{"name":"x"}\n{nope', "auto", "line 2 of items is not an item"),
        ('{"name":"x"}\n[1]', "jsonl", "line 2 of items is not an item"),
        ('{"name":"x"}\n{"name":1}\n{}', "auto", '2 of 3 items in items do not fit task "greet"'),
        ("nam\nx", "csv", "has no parameter nam"),
        ("name\nx,y", "csv", "it has 2 columns"),
        ("", "xml", "is not a format"),
    ],
)
def test_items_that_cannot_be_read(text: str, form: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_items(text, form, GREET, "items")
    assert said in str(caught.value)
