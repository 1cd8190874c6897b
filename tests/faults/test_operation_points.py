"""An operation whose performer dies, loses an answer or sleeps at each step of each portion: every task once."""

from itertools import product
from random import Random

import pytest

from pitboss.client.operations import OperationPerformer
from pitboss.engines.protocol import FullStore
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import parsed
from pitboss.model.ids import IdMaker
from pitboss.model.operation import NewOperation, OperationStatus, Verb
from pitboss.model.outcome import Failed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask, TaskError
from pitboss.testing.clock import FakeClock
from pitboss.testing.failpoints import OPERATION_VERBS, Action, Failpoints, Killed, names
from tests.faults.test_failpoint_matrix import ACTIONS, PAUSE, MakeStore
from tests.faults.test_failpoint_matrix import make_store as make_store  # noqa: PLC0414

TASKS, PORTION = 7, 2
CASES = [
    (engine, name, action, nth)
    for engine in ("memory", "sqlite", "postgres")
    for name, action in product(names(sql=engine != "memory", verbs=OPERATION_VERBS), ACTIONS)
    for nth in (range(1, 5) if name.startswith("advance") else [1])
]
ERROR = TaskError(category="error", type="OSError", message="no", retryable=False)
OPERATION = "01a3c000-0000-7000-8000-00000000000f"


async def fail_all(store: FullStore) -> None:
    """As workers do."""
    session = await store.open_session(SessionInfo(host="h", handlers=("job",)))
    claims = (await store.claim(ClaimRequest(session=session.number, slots=(Slot(free=100),)))).claims
    await store.settle(
        [
            Settlement(id=one.id, token=one.token, transition=decide(one, Failed(ERROR), Policy(), 0, 0.5))
            for one in claims
        ]
    )
    await store.end_session(session.number)


async def retry_all(store: FullStore, clock: FakeClock) -> None:
    """Begin it, if that was not done, and perform it while all tasks fail again."""
    new = NewOperation(id=OPERATION, verb=Verb.RETRY, wanted=parsed("state:failed"))
    await store.begin_operation(new)
    performer = OperationPerformer(store, clock, portion=PORTION)
    while await performer.perform() is not None:
        await fail_all(store)
    await fail_all(store)


@pytest.mark.parametrize(("engine", "name", "action", "nth"), CASES, ids=["-".join(map(str, case)) for case in CASES])
async def test_each_task_is_retried_once(name: str, action: Action, nth: int, make_store: MakeStore) -> None:
    clock = FakeClock()
    points = Failpoints(pause=clock.advance)
    open_with = make_store()
    stores = [await open_with(clock, points)]
    ids = IdMaker(clock.now, Random(1).getrandbits)
    try:
        await stores[0].register([HandlerInfo(name="job")])
        await stores[0].put([NewTask(id=ids(), handler="job") for _ in range(TASKS)])
        await fail_all(stores[0])
        clock.advance(1)
        points.plan(name, action, nth=nth, seconds=PAUSE)
        try:
            await retry_all(stores[0], clock)
        except (Killed, StoreUnavailable):
            stores.append(await open_with(clock, points))
            await retry_all(stores[-1], clock)
        assert points.bitten == [(name, action)]
        (operation,) = await stores[-1].operations()
        assert (operation.status, operation.done, operation.failed_again) == (OperationStatus.DONE, TASKS, TASKS)
        tasks = (await stores[-1].find(parsed("task:job"))).tasks
        assert [task.state for task in tasks] == [State.FAILED] * TASKS
        assert {len(await stores[-1].attempts(task.id)) for task in tasks} == {2}
    finally:
        for store in stores:
            await store.close()
