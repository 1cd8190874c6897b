"""Names and pieces of ids."""

import pytest

from pitboss.model.batch import NewBatch
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.operate.lookup import closest, did_you_mean, find_batch, find_task
from tests.operate.bench import Bench


async def test_a_task_by_its_id_or_by_an_end_of_it(store: Bench) -> None:
    first, second = await store.add(store.new(), store.new())
    for text in (first, first.upper(), f" {first[-8:]} "):
        assert (await find_task(store, text)).id == first
    with pytest.raises(InvalidInput, match="matches several tasks") as caught:
        await find_task(store, first[:8])
    assert {first, second} == set(caught.value.why.split(", "))


async def test_a_batch_by_its_id_or_by_an_end_of_it(store: Bench) -> None:
    batch, other = store.new_id(), store.new_id()
    for one in (batch, other):
        await store.create_batch(NewBatch(id=one), [store.new()])
    for text in (batch, batch[-6:]):
        assert (await find_batch(store, text)).id == batch
    with pytest.raises(InvalidInput, match="matches several batches"):
        await find_batch(store, batch[:8])


@pytest.mark.parametrize("find", [find_task, find_batch])
@pytest.mark.parametrize(("text", "error"), [("12345", InvalidInput), ("no-id!", InvalidInput), ("abcdef", NotFound)])
async def test_what_is_no_id_and_what_is_not_there(store: Bench, find: object, text: str, error: type) -> None:
    with pytest.raises(error):
        await find(store, text)  # type: ignore[operator]


def test_the_name_that_was_probably_meant() -> None:
    assert closest("mial", ["default", "mail"]) == "mail"
    assert closest("x", ["default", "mail"]) is None
    assert did_you_mean("mial", ["mail"], "look") == "did you mean mail?"
    assert did_you_mean("x", ["mail"], "look") == "look"
