"""Saved views of tasks."""

import pytest

from pitboss.model.errors import InvalidInput, NotFound
from pitboss.operate.views import MOST, SavedView, list_views, remove_view, save_view
from pitboss.testing.clock import FakeClock
from pitboss.testing.conformance import MakeEngine
from tests.operate.bench import Bench


async def test_views_are_shared_or_of_one_person_and_can_be_removed(make_engine: MakeEngine) -> None:
    store = await make_engine(FakeClock())
    await save_view(store, " Refused ", "state:failed  error:403", by="ann")
    await save_view(store, "mine", "queue:mail", owner="ann", by="ann")
    await save_view(store, "Refused", "queue:mail", owner="bob", by="bob")
    shared = SavedView(name="Refused", filter="state:failed  error:403")
    assert await list_views(store, "ann") == [shared, SavedView(name="mine", filter="queue:mail", owner="ann")]
    assert len(await list_views(store)) == 3
    await save_view(store, "mine", "queue:other", owner="ann", by="ann")
    assert (await list_views(store, "ann"))[1].filter == "queue:other"
    assert await remove_view(store, "Refused", by="ann") == shared
    await remove_view(store, "mine", owner="ann", by="ann")
    assert await list_views(store, "ann") == []
    with pytest.raises(NotFound, match="no shared view"):
        await remove_view(store, "Refused", by="ann")
    await store.close()


@pytest.mark.parametrize(
    ("name", "text"), [("", "queue:mail"), ("x" * 61, "queue:mail"), ("a\nb", "queue:mail"), ("a", ""), ("a", "x:")]
)
async def test_a_view_has_a_short_name_and_a_filter_that_can_be_read(store: Bench, name: str, text: str) -> None:
    with pytest.raises(InvalidInput):
        await save_view(store, name, text, by="ann")
    assert await list_views(store) == []


async def test_the_number_of_views_is_bounded(store: Bench) -> None:
    for number in range(MOST):
        await save_view(store, f"view {number}", "queue:mail", by="ann")
    with pytest.raises(InvalidInput, match="already"):
        await save_view(store, "one more", "queue:mail", by="ann")
    await save_view(store, "view 7", "queue:other", by="ann")
