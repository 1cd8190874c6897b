"""Where a task comes from, and which task one waits for that is held in order."""

from pitboss.model.meta import EventMark, FailureMark, Meta, TickMark, with_meta
from pitboss.model.policy import Policy
from pitboss.model.states import State
from pitboss.operate.documents import task_document
from pitboss.operate.origin import origin_document, origin_lines
from pitboss.operate.remote_documents import remote_task_document
from pitboss.operate.tasks import read_task
from pitboss.operate.why import explain
from tests.operate.bench import Bench

EVENT = EventMark("01900000-0000-7000-8000-000000000000", "user.signup", "user:7")
TICK = TickMark("nightly", 1_900_000_000_000_000, 1_899_999_900_500_000)
FAILURE = FailureMark("01900000-0000-7000-8000-000000000001", "live", 3, "error", "no route\nmore", "OSError")


async def test_every_origin_has_a_sentence_and_a_document(store: Bench) -> None:
    marks = [None, Meta(event=EVENT), Meta(tick=TICK), Meta(event=EVENT, failure=FAILURE)]
    dead = Meta(failure=FailureMark("x", "live", reason="crashed too often", dead_letter=True))
    ids = await store.add(*(store.new(meta=mark and with_meta(None, mark)) for mark in (*marks, dead)))
    plain, event, tick, fallback, letter = [task for task in await store.get(ids) if task is not None]
    assert (origin_lines(plain), origin_document(plain)) == ([], None)
    assert origin_lines(event) == [f"it handles event user.signup ({EVENT.id}) with key user:7"]
    assert origin_lines(tick) == ["schedule nightly put it for 2030-03-17T17:46:40Z"]
    assert origin_lines(fallback) == [
        f"it is the fallback of task {FAILURE.id} (live), which failed: OSError: no route",
        f"it handles event user.signup ({EVENT.id}) with key user:7",
    ]
    assert origin_lines(letter) == ["it is the dead letter of task x (live), which failed: crashed too often"]
    assert origin_document(tick) == {
        "schedule": {
            "name": "nightly",
            "scheduled_for": "2030-03-17T17:46:40Z",
            "last_success": "2030-03-17T17:45:00.500Z",
        }
    }
    assert task_document(fallback)["origin"].keys() == {"event", "fallback"}
    assert task_document(fallback)["meta"]["failure"]["attempts"] == 3
    assert remote_task_document(letter, Policy())["origin"]["dead_letter"]["task"] == "x"


async def test_a_task_that_is_held_in_order_names_the_one_before_it(store: Bench) -> None:
    first, second, third, other = await store.add(
        *(store.new(order_key=key) for key in ("ann", "ann", "ann", "bob")),
    )
    await store.manager()
    page = await read_task(store, third, store.now)
    assert page.task.state is State.HELD
    assert page.why.cause == "order"
    assert page.why.sentence == (f"it waits for task {first} (greet), the first one with its order key, which waits")
    assert page.why.helps == (f"pitboss why {first}",)
    assert not page.why.stuck
    assert (await explain(store, other, store.now)).why.cause != "order"
    await store.run_all(most=1)
    found = (await explain(store, third, store.now)).why
    assert f"task {second} " in found.sentence
    assert [gate.name for gate in found.gates if gate.shut] == ["order"]
