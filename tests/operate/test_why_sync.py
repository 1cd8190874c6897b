"""Why a running task does not stop, although it was asked to: a plain def is not interrupted."""

import msgspec

from pitboss.client.waiting import explain_task
from pitboss.model.filter import by
from pitboss.model.queue import SYNC, HandlerInfo
from pitboss.model.session import ClaimRequest, Slot
from pitboss.model.snapshot import CurrentTask, Snapshot, WorkerFigures, WorkerState
from pitboss.model.waiting import UNINTERRUPTED
from tests.operate.bench import Bench


async def test_it_says_that_a_sync_handler_is_not_interrupted_and_what_helps() -> None:
    """Regression: it said "Stop requested", and nothing for as long as the task ran on."""
    store = Bench()
    number = await store.manager(handlers=("plain", "quick"))
    about = f'{{"{SYNC}":true}}'
    found = await store.add(
        store.new("plain"),
        store.new("quick"),
        handlers=(HandlerInfo(name="plain", about=about), HandlerInfo(name="quick")),
    )
    await store.claim(ClaimRequest(session=number, slots=(Slot(free=2),)))
    tasks = tuple(CurrentTask(id=one, handler="any") for one in found)
    worker = WorkerFigures(name="web-1", pool="web", state=WorkerState.PROCESSING, tasks=tasks)
    await store.renew(number, msgspec.json.encode(Snapshot(workers=(worker,))).decode())
    await store.cancel(by(id=found))
    plain, quick = [await explain_task(store, one, store.now) for one in await store.get(found) if one is not None]
    assert plain.sentence.endswith(f"it was asked to stop; {UNINTERRUPTED}")
    assert plain.helps == ("pitboss pools restart web",)
    assert quick.sentence.endswith("it was asked to stop")
