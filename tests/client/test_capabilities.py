"""An app that needs more than its engine has is refused at the start, by an error that names engines that have it."""

from collections.abc import Iterator
from typing import Any

import pytest

from pitboss import App, Lease
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.capabilities import capabilities
from pitboss.engines.memory import MemoryEngine
from pitboss.engines.resource_protocol import Leases, Resources
from pitboss.engines.verbs import verbs
from pitboss.manager.manager import Manager, Plan
from pitboss.model.errors import Unsupported
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import PoolRules
from pitboss.testing.clock import FakeClock
from pitboss.worker.describe import Description


class CoreOnly:
    """The memory engine without its optional protocols."""

    name = "plain"

    def __init__(self) -> None:
        self._engine = MemoryEngine(clock=FakeClock())

    def __getattr__(self, name: str) -> Any:
        if name in verbs() and verbs()[name].protocol in (Resources, Leases, Batches):
            raise AttributeError(name)
        return getattr(self._engine, name)


@pytest.fixture
def engine() -> Any:
    return CoreOnly()


@pytest.fixture
def app(engine: Any) -> Iterator[App]:
    with App("memory://") as app:
        app.use(engine)

        @app.task
        def plain(number: int) -> None: ...

        yield app


def test_what_an_engine_has_is_seen_by_its_methods(engine: Any) -> None:
    few, all_of_it = capabilities(engine), capabilities(MemoryEngine(clock=FakeClock()))
    assert few.engine is engine
    assert (few.resources, few.batches, few.schema, few.within) == (None, None, None, None)
    assert None not in (all_of_it.engine, all_of_it.resources, all_of_it.batches)


def test_the_core_needs_nothing_more(app: App) -> None:
    assert app.send("plain", {"number": 1}).created


def test_an_app_whose_handlers_hold_resources_is_refused_before_anything_is_written(app: App, engine: Any) -> None:
    proxies = app.resources("proxies")

    @app.task
    def check(profile: str, proxy: Lease = proxies.lease()) -> None: ...

    with pytest.raises(Unsupported, match="cannot run on the plain engine") as caught:
        app.send("plain", {"number": 1})
    assert 'task "check" holds a member of "proxies"' in caught.value.why
    assert caught.value.fix == "use SQLite or PostgreSQL"
    assert app.ask(lambda client: client.store.handlers(), limit=5, what="looking") == []


def test_a_batch_is_refused_before_anything_is_written(app: App) -> None:
    with pytest.raises(Unsupported, match="the plain engine has no batches"):
        app.handlers["plain"].batch([{"number": 1}])
    assert app.ask(lambda client: client.store.handlers(), limit=5, what="looking") == []


@pytest.mark.parametrize(
    ("handlers", "pools", "why"),
    [
        ((HandlerInfo(name="check", resources="proxies"),), (), 'task "check" holds a member of "proxies"'),
        ((), (("keys", PoolRules()),), 'it declares the resource pool "keys"'),
    ],
    ids=["handlers", "settings"],
)
async def test_a_manager_does_not_start(engine: Any, handlers: Any, pools: Any, why: str) -> None:
    manager = Manager(
        engine,
        Plan(target="app", resources=pools),
        Description(handlers=handlers),
        make_engine=None,
        clock=FakeClock(),
        luck=lambda: 0.5,
        tell=lambda _: None,
    )
    with pytest.raises(Unsupported, match="cannot run on the plain engine") as caught:
        await manager.run()
    assert why in caught.value.why
    assert await engine.handlers() == []
