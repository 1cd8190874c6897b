"""What is wrong with a planned launch, or fine: its workers, resources and partitions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.partition import Partitioning
from pitboss.model.pool import PoolSpec
from pitboss.model.text import counted, listed, ranges
from pitboss.operate.partitions import by_number, validation
from pitboss.operate.queues import partitioning_text

if TYPE_CHECKING:
    from pitboss.operate.plan import Launch, QueuePlan, ResourcePlan, SlotPlan

_FEW_SHARE = 0.8


def findings_of(one: "QueuePlan", launch: "Launch") -> Iterator[Finding]:
    name = one.queue.name
    none = [crew.pool for crew in one.crews if not crew.workers]
    if one.left and none and not one.workers:
        yield problem(
            "workers",
            f'no worker serves queue "{name}", and {counted(one.left, "task")} wait in it',
            why=f"an operator scaled worker pool {none[0]} to 0 workers, also for managers that start later",
            fix=f"pitboss pools scale {none[0]} auto",
        )
    elif one.left and not one.workers:
        yield problem(
            "workers",
            f'no worker serves queue "{name}", and {counted(one.left, "task")} wait in it',
            why="no worker pool that runs or would be started names it"
            if launch.host
            else "no app was named, and no manager that runs serves it",
            fix=f"add {name} to the queues of a worker pool" if launch.host else "name the app: pitboss plan app.py",
        )
    if one.queue.paused and one.left:
        yield warning(
            "queues",
            f'queue "{name}" is paused',
            why="its tasks do not start until it is resumed",
            fix=f"pitboss queues resume {name}",
        )
    if one.paused:
        wait = "waits" if one.paused == 1 else "wait"
        yield warning(
            "batches",
            f'queue "{name}": {counted(one.paused, "task")} {wait} for paused batches',
            why="the items of a batch do not start until it is resumed",
            fix="pitboss batches list paused, then pitboss batches resume ID",
        )
    if one.resource is not None:
        yield _of_resource(one, one.resource)
    if one.queue.partitions is not None:
        yield from _of_partitions(one, one.queue.partitions, launch)


def _of_resource(one: "QueuePlan", found: "ResourcePlan") -> Finding:
    said = f"{found.usable:,} of {counted(found.members, 'member')} of {found.pool} are usable"
    look = f"pitboss resources show {found.pool}, or pitboss resources test {found.pool}"
    if not found.usable:
        report = problem if one.left else warning
        more = look if found.members else f"pitboss resources add {found.pool} NAME …, or resources import"
        return report("resources", said, why=f"each task of queue {one.queue.name} needs one", fix=more)
    if found.usable < found.members * _FEW_SHARE:
        return warning("resources", said, why="the others are away or disabled", fix=look)
    return fine("resources", said)


def _of_partitions(one: "QueuePlan", spec: Partitioning, launch: "Launch") -> Iterator[Finding]:
    name = one.queue.name
    checked = validation(name, spec)
    if not checked.valid:
        yield problem(
            "partitions",
            f'queue "{name}": {"; ".join(checked.problems)}',
            why="keys would wait",
            fix="correct the table",
        )
    empty = [slot for slot in one.slots if not slot.manned and slot.keys]
    missing = bool(empty) and (bool(one.stranded) or (spec.mode == "static" and spec.on_missing == "hold"))
    if missing:
        yield _without_worker(one, spec, empty, launch.pools)
    if one.unlisted:
        first = next(iter(one.unlisted))
        tasks = counted(sum(one.unlisted.values()), "task")
        yield warning(
            "partitions",
            f'queue "{name}": {tasks} cannot start: not in the table: {listed(one.unlisted)}',
            why="in mode static a key that is not in the table belongs to no slot",
            fix=f"add it to the partitions of the queue, or pitboss partitions move {name} {first} SLOT",
        )
    if spec.exclusive and one.kept:
        nodes = listed(sorted({slot.node for slot in one.kept}))
        yield warning(
            "partitions",
            f'queue "{name}": {listed([slot.name for slot in one.kept])} '
            f"{'is' if len(one.kept) == 1 else 'are'} kept for {nodes}, whose manager has just stopped",
            why="a manager of that node gets them back at once; one of another node gets higher numbers first, and the"
            " keys wait until the slots are free, within the time to live of a session (15 seconds)",
            fix="wait, or start it with the same node",
        )
    if checked.valid and not missing and not one.unlisted:
        yield fine("partitions", f'queue "{name}": {partitioning_text(spec)}')


def _without_worker(
    one: "QueuePlan", spec: Partitioning, empty: "Sequence[SlotPlan]", pools: Sequence[PoolSpec]
) -> Finding:
    """Slots that have keys and no worker."""
    keys = counted(sum(len(slot.keys) for slot in empty), "key")
    return warning(
        "partitions",
        f'queue "{one.queue.name}": no worker has {counted(len(empty), "slot")} '
        f"({listed([slot.slot for slot in empty])})",
        why=f"{counted(sum(one.stranded.values()), 'task')} of {keys} wait for them",
        fix=_manned_by(one, spec, empty, pools),
    )


def _manned_by(one: "QueuePlan", spec: Partitioning, empty: "Sequence[SlotPlan]", pools: Sequence[PoolSpec]) -> str:
    """What gives these slots workers. `pitboss up --only` names workers of one manager's pool, so it may have too
    few."""
    there = sorted({crew.pool for crew in one.crews})
    if spec.pool is not None and there and spec.pool not in there:
        return f"name a pool that serves the queue ({listed(there)}): the table counts the slots of {spec.pool}"
    (pool, _), *_ = numbers = [by_number(slot.slot) for slot in empty]
    needed = max(number for _, number in numbers) + 1
    if needed <= max((each.max_workers for each in pools if each.name == pool), default=0):
        said = ranges(number for _, number in numbers).replace(" ", "")
        how = f"start all workers with pitboss up, or these with pitboss up --only {said}"
    else:
        how = f"start more managers, whose workers take free slots, or more workers: pitboss up --pool {pool}={needed}"
    return f'{how}; or set on_missing to "reassign" or "steal"'


def idle(found: "Sequence[QueuePlan]") -> Iterator[Finding]:
    if found and not any(one.left for one in found):
        yield fine("tasks", "no tasks wait")
