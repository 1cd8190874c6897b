"""What is true of members, batches and partitions at every moment. An engine without these protocols passes."""

from collections import Counter
from collections.abc import Iterable

from pitboss.engines.batch_protocol import Batches
from pitboss.engines.capabilities import ResourceStore
from pitboss.engines.partition_protocol import Partitions
from pitboss.model.batch import IN_SLOT, OVER, Batch, BatchStatus, Lane
from pitboss.model.duration import Moment
from pitboss.model.leasing import stage
from pitboss.model.resource import PoolRules, Resource, Stage
from pitboss.model.states import State
from pitboss.model.task import Task

ALL = 10_000


async def assert_members_sound(store: object, now: Moment, tasks: Iterable[Task]) -> None:
    """Members held by running tasks are in use, stages follow from the other fields, figures equal a recount."""
    if not isinstance(store, ResourceStore):
        return
    held = Counter(task.resource for task in tasks if task.state is State.RUNNING and task.resource is not None)
    for pool in await store.resource_pools():
        members = await store.resources(pool.name)
        assert [member.name for member in members] == sorted(member.name for member in members)
        for member in members:
            _assert_member_sound(member, pool.rules, now)
            # Leases outside tasks hold members too. Old claims do not hold a member that was removed and added again.
            assert member.in_use or not held[member.id] or _is_newer(member, tasks), f"held, but not in use: {member}"
        counted = Counter(member.stage for member in members)
        assert pool.stages == dict(counted), f"the figures of pool {pool.name} do not equal a recount of its members"
        away = [member.available_at for member in members if member.stage is Stage.AWAY]
        assert pool.next_at == min(away, default=None), f"pool {pool.name} shows a wrong next_at"


def _assert_member_sound(member: Resource, rules: PoolRules, now: Moment) -> None:
    assert member.in_use >= 0, f"given back more often than it was given: {member}"
    assert member.stage is stage(member, rules, now), f"the stage does not follow from the other fields: {member}"
    record = member.record
    assert member.available_at >= max(record.cooldown_until, record.blacklisted_until), f"available too early: {member}"
    assert (member.disabled_reason is None) or not member.enabled, f"enabled, but it has a reason: {member}"
    most = (member.limits or rules.limits).concurrency
    if member.stage is Stage.READY and most is not None:
        assert member.in_use < most, f"ready, but its concurrency is used up: {member}"


def _is_newer(member: Resource, tasks: Iterable[Task]) -> bool:
    begun = [task.started_at or 0 for task in tasks if task.resource == member.id and task.state is State.RUNNING]
    return member.added_at >= max(begun, default=0)


async def assert_partitions_sound(store: object, tasks: Iterable[Task]) -> None:
    """Every key of a task has a row, the counts equal a recount, and no key moves to the slot that has it."""
    if not isinstance(store, Partitions):
        return
    recount: dict[str, dict[str, Counter[State]]] = {}
    for task in tasks:
        if task.partition is not None:
            counted = recount.setdefault(task.queue, {}).setdefault(task.partition, Counter())
            counted[task.state] += not task.state.finished
    for queue, keys in recount.items():
        rows = {one.key: one for one in await store.partitions(queue)}
        assert keys.keys() <= rows.keys(), f"keys of tasks without a row: {keys.keys() - rows.keys()}"
        assert list(rows) == sorted(rows), "keys are not in order"
        for key, one in rows.items():
            assert one.counts == +keys.get(key, Counter()), f"the figures of a key do not equal a recount: {one}"
            assert one.moving_to is None or one.owner not in (None, one.moving_to), f"a move without an owner: {one}"


async def assert_batches_sound(store: object, tasks: Iterable[Task], *, forced: bool) -> None:
    """Counts equal a recount, ended batches have no unfinished items, and lanes are neither overfull nor idle."""
    if not isinstance(store, Batches):
        return
    batches = await store.batches(limit=ALL)
    recount: dict[str, Counter[State]] = {batch.id: Counter() for batch in batches}
    for task in tasks:
        if task.batch is not None:
            assert task.batch in recount, f"an item without its batch: {task}"
            recount[task.batch][task.state] += 1
    for batch in batches:
        _assert_batch_sound(batch, recount[batch.id])
    for lane in await store.lanes():
        _assert_lane_sound(lane, [batch for batch in batches if batch.lane == lane.name], forced=forced)


def _assert_batch_sound(batch: Batch, items: Counter[State]) -> None:
    assert batch.counts == dict(items), f"a batch's figures do not equal a recount: {batch} has {items}"
    assert (batch.status in OVER) == (batch.left == 0), f"the status does not fit the items left: {batch}"
    assert (batch.finished_at is not None) == (batch.status in OVER), f"finished_at does not fit the status: {batch}"
    if batch.status is BatchStatus.PAUSING:
        assert items[State.RUNNING], f"pausing, but no item runs: {batch}"
    if batch.status is BatchStatus.DONE_WITH_ERRORS:
        assert items[State.FAILED], f"done with errors, but no item failed: {batch}"
    if batch.status in (BatchStatus.QUEUED, BatchStatus.PAUSED):
        assert not items[State.PENDING], f"not running, but it has pending items: {batch}"


def _assert_lane_sound(lane: Lane, batches: list[Batch], *, forced: bool) -> None:
    in_slot = [batch for batch in batches if batch.status in IN_SLOT]
    queued = [batch for batch in batches if batch.status is BatchStatus.QUEUED]
    assert (lane.running, lane.queued) == (len(in_slot), len(queued)), f"the figures of {lane} do not equal a recount"
    assert all(batch.position == 0 for batch in in_slot), f"a batch has a slot, but its position is not 0: {in_slot}"
    assert [batch.position for batch in queued] == list(range(1, len(queued) + 1)), f"positions have gaps: {queued}"
    assert [(batch.rank, batch.id) for batch in queued] == sorted((batch.rank, batch.id) for batch in queued)
    assert not queued or len(in_slot) >= lane.max_running, f"{lane} has a free slot, but batches wait: {queued}"
    # A batch that is being cancelled may never have had a slot.
    running = [batch for batch in in_slot if batch.status is not BatchStatus.CANCELLING]
    assert forced or len(running) <= lane.max_running, f"{lane} is overfull: {running}"
