"""Every sync call has an async twin that takes the same arguments and gives the same answer."""

import gc
import inspect
from typing import Any

import pytest

from pitboss import App, BatchHandle, Handle, InvalidInput, Lease, Resources
from pitboss.client.handler import Handler

NAMED_OTHERWISE = {"wait": "awaited", "use_sync": "use"}
# What the sync calls are made of; it takes a time limit besides.
PLUMBING = {"ask", "run"}
PAIRS = [
    (kind, name, twin)
    for kind in (App, Handler, Handle, BatchHandle, Resources, Lease)
    for name in dir(kind)
    if name[0] != "_" and name not in PLUMBING and hasattr(kind, twin := NAMED_OTHERWISE.get(name, f"a{name}"))
]


def test_the_pairs_are_found() -> None:
    names = {(kind.__name__, name) for kind, name, _ in PAIRS}
    assert {("App", "send"), ("Handle", "result"), ("BatchHandle", "items"), ("Resources", "acquire")} <= names
    assert len(names) > 35


def test_a_store_that_cannot_be_named_is_refused_without_a_forgotten_coroutine() -> None:
    """Python would warn of it, when it is collected."""
    app = App("nonsense://x")
    with pytest.raises(InvalidInput, match="does not name a store"):
        app.send("job")
    with pytest.raises(InvalidInput, match="does not name a store"):
        app.batch_handle("id").batch()
    gc.collect()


@pytest.mark.parametrize(("kind", "name", "twin"), PAIRS, ids=lambda one: getattr(one, "__name__", one))
def test_a_sync_call_has_the_signature_of_its_async_twin(kind: type, name: str, twin: str) -> None:
    sync, core = getattr(kind, name), getattr(kind, twin)
    assert inspect.iscoroutinefunction(core) or inspect.isasyncgenfunction(core)
    function: Any = sync.fget if isinstance(sync, property) else sync
    assert str(inspect.signature(function)) == str(inspect.signature(core)).replace("AsyncIterator", "Iterator")
