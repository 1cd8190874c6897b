"""Queues and handlers of Pitboss itself: no app, caller or worker declares, fills or claims them."""

import pytest

from pitboss import App
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import checked_name, is_reserved
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.source import SourceSpec
from pitboss.model.task import NewTask
from pitboss.operate.enqueue import enqueue
from pitboss.operate.task_types import NewType, TaskTypes
from pitboss.testing.sandbox import sandbox
from tests.operate.bench import GREET, Bench

SPEC = SourceSpec(name="one", url="amqp://h", queue="in", handler="greet", dead_letter_queue="in_dlq")
OUTBOX = SPEC.outbox


@pytest.mark.parametrize("what", ["queue", "task", "task type"])
def test_reserved_names_are_refused(what: str) -> None:
    with pytest.raises(InvalidInput, match="belong to Pitboss itself"):
        checked_name("pitboss.mine", what)
    assert checked_name("pitboss.mine", what, reserved=True) == "pitboss.mine"
    assert checked_name("pitboss", what) == "pitboss"
    assert checked_name("my.pitboss.mine", what) == "my.pitboss.mine"
    assert (is_reserved("pitboss.x"), is_reserved("pitbossx")) == (True, False)


def test_an_app_declares_nothing_reserved() -> None:
    app = App("memory://")
    with pytest.raises(InvalidInput, match="belong to Pitboss itself"):
        app.task(name=OUTBOX)(lambda: None)
    with pytest.raises(InvalidInput, match="belong to Pitboss itself"):
        app.task(name="mine", queue=OUTBOX)(lambda: None)
    with pytest.raises(InvalidInput, match="belong to Pitboss itself"):
        app.queue(OUTBOX, capacity=1)


async def registered(store: Bench) -> None:
    await store.register([GREET, SPEC.outbox_info("app.py")])


async def test_nothing_is_enqueued_by_name(store: Bench) -> None:
    await registered(store)
    with pytest.raises((InvalidInput, NotFound), match=r"pitboss\.outbox|Pitboss itself"):
        await enqueue(store.client, OUTBOX, {"routing_key": "q"}, store.new_id())
    with pytest.raises(InvalidInput, match="Pitboss itself"):
        await enqueue(store.client, "greet", {"name": "x"}, store.new_id(), queue=OUTBOX)
    assert (await store.find(EVERYTHING)).tasks == []


def test_nothing_is_sent_from_python() -> None:
    app = App("memory://")

    @app.task
    def plain() -> None: ...

    with sandbox(app) as box:
        app.ask(lambda client: client.store.register([SPEC.outbox_info("x")]), limit=10, what="registering")
        with pytest.raises(InvalidInput, match="Pitboss itself"):
            app.send(OUTBOX, {"routing_key": "q"})
        with pytest.raises(InvalidInput, match="Pitboss itself"):
            plain.using(queue=OUTBOX).enqueue()
        assert box.tasks() == []


async def test_no_task_type_takes_its_place(store: Bench) -> None:
    await registered(store)
    types = TaskTypes(store, store.time.now)
    for name, queue in ((OUTBOX, None), ("mine", OUTBOX)):
        with pytest.raises(InvalidInput, match="Pitboss itself"):
            await types.register(store, NewType(name=name, version="1", schema={}, queue=queue))
    assert OUTBOX not in await types.all()
    assert types.remote == []
    with pytest.raises(NotFound):
        await types.deactivate(store, OUTBOX)


def test_no_pool_serves_it() -> None:
    with pytest.raises(InvalidInput, match="Pitboss itself"):
        App("memory://").pool("mine", queues=[OUTBOX])


async def test_no_worker_claims_it_without_naming_it(store: Bench) -> None:
    """A slot without queues takes tasks of all queues, but not those that remote workers run."""
    await registered(store)
    await store.put([NewTask(id=store.new_id(), handler=OUTBOX, queue=OUTBOX, params='{"routing_key":"q"}')])
    info = SessionInfo(host="box", pid=1, handlers=("greet",))
    session = (await store.open_session(info)).number
    for handlers in (frozenset({"greet"}), None):
        options = {} if handlers is None else {"handlers": handlers}
        claimed = await store.claim(ClaimRequest(session=session, slots=(Slot(free=5),), **options))
        assert claimed.claims == []
