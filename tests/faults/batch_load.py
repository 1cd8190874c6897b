"""Three batches in one lane, whose items hold members of a pool: how they are made, worked on, and looked at.

Everything that a batch consists of follows from its number, so that a process that got no answer can repeat the call.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import IN_SLOT, OVER, Batch, BatchStatus, Cancel, Delete, Move, NewBatch, Pause, Resume
from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.ids import make_id
from pitboss.model.limits import Window
from pitboss.model.outcome import Completed, Failed, Outcome, Rotated, decide
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import Limits, NewResource, PoolRules, Report, ResourceOutcome
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask, Task, TaskError

POOL, ITEM, CLOSED, LANE = "proxies", "check", "closed", "line"
MEMBERS = 3
ITEMS = 3
POLICY = Policy(max_attempts=2, max_rotations=2, backoff=Backoff(base=0, cap=0, jitter=0.0))
BROKEN = TaskError(category="net", message="connection reset")
RULES = PoolRules(
    limits=Limits(windows=(Window(100_000, SECOND),)), max_failures=1000, cooldown=0, cooldown_cap=0, max_ejected=0.0
)
_ALL = 100_000
_ROUNDS = 60
_MILLIS = 1_790_000_000_000


class Made(NamedTuple):
    batch: NewBatch
    items: list[NewTask]


def made(number: int) -> Made:
    """The batch of that number, the same each time."""
    closed = NewTask(id=make_id(_MILLIS + number, ITEMS + 1, 0), handler=CLOSED, queue="after")
    batch = NewBatch(id=make_id(_MILLIS + number, 0, 0), lane=LANE, name=f"batch {number}", on_complete=closed)
    ids = [make_id(_MILLIS + number, 1 + place, 0) for place in range(ITEMS)]
    return Made(batch, [NewTask(id=one, handler=ITEM, queue=POOL) for one in ids])


async def prepare(store: FullStore) -> None:
    await store.declare_pool(POOL, RULES)
    await store.add_resources(POOL, [NewResource(name=f"m{number}") for number in range(MEMBERS)])
    await store.register([HandlerInfo(name=ITEM, queue=POOL, resources=POOL), HandlerInfo(name=CLOSED, queue="after")])


async def work(store: FullStore, numbers: Sequence[int]) -> None:
    """What clients, an operator and two managers do, to the end."""
    sessions = [await open_session(store, host) for host in ("one", "two")]
    first, second, third = (made(number) for number in numbers)
    for batch, items in (first, second, third):
        await store.create_batch(batch, items)
    await store.act_on_batch(third.batch.id, Move(to="top"))
    await store.act_on_batch(second.batch.id, Pause())
    for turn in range(_ROUNDS):
        session = sessions[turn % 2]
        if turn % 4 == 0:
            await store.renew(session)
        claimed = await store.claim(request(session))
        if claimed.claims:
            await store.settle([settled(claim, fate(claim)) for claim in claimed.claims])
        if turn == 3:
            await store.act_on_batch(second.batch.id, Resume())
        if turn == 7:
            await cancel_if_open(store, second.batch.id)
        if turn % 2:
            await store.reclaim()
        if not claimed.claims and all(batch.status in OVER for batch in await store.batches(ids(numbers))):
            return


async def cancel_if_open(store: FullStore, batch: str) -> None:
    (found,) = await store.batches([batch])
    if found.status not in OVER:
        await store.act_on_batch(batch, Cancel())


async def open_session(store: FullStore, host: str) -> int:
    return (await store.open_session(SessionInfo(host=host, handlers=(ITEM, CLOSED), ttl=600 * SECOND))).number


def request(session: int, free: int = 2) -> ClaimRequest:
    return ClaimRequest(session=session, slots=(Slot(free=free),), handlers=frozenset({ITEM, CLOSED}))


def fate(claim: Claim) -> tuple[Outcome, Report | None]:
    """Some fail for good, some are handed on or tried again, most are done; which, the item's place decides."""
    place = int(claim.id[15:18], 16)
    if claim.leased is None:
        return Completed(), None
    if place == 1 and claim.attempt == 1:
        return Failed(BROKEN), Report(outcome=ResourceOutcome.RESOURCE_ERROR)
    if place == 2 and claim.rotations == 0:
        return Rotated(BROKEN), Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=0)
    if place == 3 and int(claim.id[12:13] or "0", 16) % 2:
        return Failed(TaskError(category="bad", message="no", retryable=False)), None
    return Completed("1"), Report(outcome=ResourceOutcome.OK)


def settled(claim: Claim, came: tuple[Outcome, Report | None]) -> Settlement:
    outcome, report = came
    return Settlement(
        id=claim.id,
        token=claim.token,
        transition=decide(claim, outcome, POLICY, claim.claimed_at, 0.5),
        worker="w",
        queue=claim.queue,
        batch=claim.batch,
        resource=None if claim.leased is None else claim.leased.id,
        report=report,
    )


def ids(numbers: Sequence[int]) -> list[str]:
    return [made(number).batch.id for number in numbers]


async def complaints(store: FullStore, *, idle: bool = False) -> list[str]:
    """Whatever does not agree with the items. `idle`: no claim is held, so nothing may be in use."""
    tasks = (await store.find(EVERYTHING, limit=_ALL)).tasks
    batches = await store.batches(limit=_ALL)
    found = [fault for batch in batches for fault in _of_batch(batch, tasks)]
    found += await _of_lane(store, batches)
    found += await _of_members(store, tasks)
    found += await _of_queues(store, tasks)
    running = [task.id for task in tasks if task.state is State.RUNNING]
    return [*found, f"{running} still run"] if idle and running else found


def _of_batch(batch: Batch, tasks: Sequence[Task]) -> list[str]:
    items = [task for task in tasks if task.batch == batch.id]
    counted = Counter(item.state for item in items)
    found = []
    if {state: count for state, count in batch.counts.items() if count} != dict(counted):
        found.append(f"{batch.name} counts {batch.counts}, its items are {dict(counted)}")
    over = bool(items) and all(item.state.finished for item in items)
    if over != (batch.status in OVER):
        found.append(f"{batch.name} is {batch.status}, its items are {dict(counted)}")
    failed = counted[State.FAILED] > 0
    if batch.status in OVER - {BatchStatus.CANCELLED} and failed != (batch.status is BatchStatus.DONE_WITH_ERRORS):
        found.append(f"{batch.name} is {batch.status} with {counted[State.FAILED]} failed items")
    if batch.on_complete is not None:
        # Its id follows from the batch's, so there cannot be two; there must be none before the end.
        closing = [task for task in tasks if task.id == batch.on_complete.id]
        if len(closing) != (1 if over else 0):
            found.append(f"{batch.name} is {batch.status} and has {len(closing)} tasks for its end")
    return found


async def _of_lane(store: FullStore, batches: Sequence[Batch]) -> list[str]:
    lane = next((one for one in await store.lanes() if one.name == LANE), None)
    if lane is None:
        return []
    mine = Counter(batch.status for batch in batches if batch.lane == LANE)
    in_slot = sum(mine[status] for status in IN_SLOT)
    found = []
    if in_slot > lane.max_running:
        found.append(f"{in_slot} batches run, {lane.max_running} may: {dict(mine)}")
    if (lane.running, lane.queued) != (in_slot, mine[BatchStatus.QUEUED]):
        found.append(f"{lane} against {dict(mine)}")
    if in_slot < lane.max_running and mine[BatchStatus.QUEUED]:
        found.append(f"nothing runs although batches are queued: {dict(mine)}")
    return found


async def _of_members(store: FullStore, tasks: Sequence[Task]) -> list[str]:
    held = Counter(task.resource for task in tasks if task.state is State.RUNNING)
    members = await store.resources(POOL)
    wrong = {member.name: (member.in_use, held[member.id]) for member in members if member.in_use != held[member.id]}
    return [f"in use, and held by claims: {wrong}"] if wrong else []


async def _of_queues(store: FullStore, tasks: Sequence[Task]) -> list[str]:
    counted = Counter((task.queue, task.state) for task in tasks)
    told = {(queue.name, state): count for queue in await store.queues() for state, count in queue.counts.items()}
    return [] if told == dict(counted) else [f"queues count {told}, there are {dict(counted)}"]


async def go_on(store: FullStore, numbers: Sequence[int]) -> list[str]:
    """What is done after a crash: ask again for what was not answered, sweep, and run everything to its end."""
    for session in await store.sessions():
        if not session.ended:
            await store.end_session(session.number)
    while (await store.reclaim()).more:
        pass
    found = await complaints(store, idle=True)
    for new, items in (made(one) for one in numbers):
        await store.create_batch(new, items)
    for batch in await store.batches(ids(numbers), limit=_ALL):
        if batch.status in (BatchStatus.PAUSED, BatchStatus.PAUSING):
            await store.act_on_batch(batch.id, Resume())
    number = await open_session(store, "after")
    for _ in range(_ROUNDS):
        claimed = await store.claim(request(number, free=3))
        found += await complaints(store)
        if claimed.claims:
            await store.settle([settled(claim, (Completed("2"), None)) for claim in claimed.claims])
        elif all(batch.status in OVER for batch in await store.batches(ids(numbers), limit=_ALL)):
            break
        await store.reclaim()
    await store.end_session(number)
    left = (await store.count(by(state=["held", "pending", "scheduled", "running"]))).number
    found += [*await complaints(store, idle=True), *([f"{left} tasks did not end"] if left else [])]
    return [*found, *await _cleared(store, numbers)]


async def _cleared(store: FullStore, numbers: Sequence[int]) -> list[str]:
    """Nothing is left of them when they are deleted."""
    for batch in ids(numbers):
        await store.act_on_batch(batch, Delete())
    await store.prune(by(task=CLOSED))
    left = (await store.count(EVERYTHING)).number
    return [*await complaints(store, idle=True), *([f"{left} tasks are left of deleted batches"] if left else [])]
