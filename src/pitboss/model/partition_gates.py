"""Who takes the tasks of a key in a queue with partitions, and why none does: for gates, status and people."""

from collections.abc import Sequence

import msgspec

from pitboss.model.assignment import table_pool
from pitboss.model.fleet import GONE, ManagerView
from pitboss.model.gates import Gate, Scene
from pitboss.model.partition import Partition, Partitioning
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import Queue
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.states import State
from pitboss.model.task import Task
from pitboss.model.text import counted

_UNKNOWN = Partition(queue="", key="")


class Unowned(msgspec.Struct, frozen=True, kw_only=True):
    """Why no live slot takes tasks of a key. `cause` is stable; `says` has the key as its subject ("belongs to …").

    `stuck`: without a person no slot ever does. `helps` are commands to type.
    """

    cause: str
    says: str
    stuck: bool = False
    helps: tuple[str, ...] = ()


def unowned(queue: str, spec: Partitioning, one: Partition, slots: Sequence[PoolSlot], *, led: bool) -> Unowned | None:
    """Why no live slot takes tasks of this key; None if one does.

    `slots` are those that belong to a node and serve the queue. `led`: a manager leads.
    """
    owner = next((slot for slot in slots if slot.name == one.owner), None)
    if not spec.exclusive or (owner is not None and owner.live):
        return None
    if spec.on_missing == "steal" and owner is None and any(slot.live for slot in slots):
        return None
    if one.owner is None:
        return _without_owner(queue, spec, one, slots, led=led)
    if owner is not None:
        says = f"belongs to slot {one.owner}, whose worker has just gone; the slot is kept for its return"
        return Unowned(cause="slot-away", says=says)
    if _moves_by_itself(spec) and led and slots:
        says = f"belongs to slot {one.owner}, which no worker has; the leader gives it to another slot"
        return Unowned(cause="slot-missing", says=says)
    return _missing(queue, spec, one, led=led)


def of_partition(task: Task, scene: Scene) -> Gate | None:
    """The slot of its key, and how many tasks of the key run; only in a queue with partitions."""
    queue = scene.queues.get(task.queue)
    if queue is None or queue.partitions is None or task.state not in (State.PENDING, State.HELD):
        return None
    if task.partition is None:
        return Gate(name="partition", what="Partition", says="it has no key: any worker of the queue takes it")
    one = scene.keys.get((task.queue, task.partition), _UNKNOWN)
    gate = Gate(name="partition", what=f"Partition {task.partition}", says=_says(queue.partitions, one))
    return _full(task, queue, one, gate) or _moving(task, queue, one, gate) or _owned(task, queue, one, gate, scene)


def owner_worker(managers: Sequence[ManagerView], slot: PoolSlot) -> tuple[WorkerFigures, int] | None:
    """The worker in a slot, and how many tasks it runs at the same time, as its manager published them."""
    name = f"{slot.pool}-{slot.place + 1}"
    for one in managers:
        if one.number == slot.session:
            worker = next((worker for worker in one.snapshot.workers if worker.name == name), None)
            pool = next((pool for pool in one.snapshot.pools if pool.name == slot.pool), None)
            if worker is not None and worker.state not in GONE:
                return worker, pool.concurrency if pool is not None else one.snapshot.concurrency
    return None


def serving(slots: Sequence[PoolSlot], queue: str, spec: Partitioning) -> list[PoolSlot]:
    """The slots that may own keys of a queue: for a table, those of its worker pool."""
    found = [slot for slot in slots if slot.serves(queue)]
    pool = table_pool(spec, found) if spec.mode == "static" else None
    return found if pool is None else [slot for slot in found if slot.pool == pool]


def _full(task: Task, queue: Queue, one: Partition, gate: Gate) -> Gate | None:
    running, most = one.counts.get(State.RUNNING, 0), queue.max_per_key
    if most is None or running < most:
        return None
    run = f"{counted(running, 'task')} of its key {task.partition} {'runs' if running == 1 else 'run'}"
    return msgspec.structs.replace(
        gate,
        passed=False,
        says="as many of its tasks run as may",
        figure=f"{running} of {most}",
        cause="max-per-key",
        sentence=f"{run}, as many as may (max_per_key)",
        helps=(f"pitboss queues limit {queue.name} --max-per-key …",),
    )


def _moving(task: Task, queue: Queue, one: Partition, gate: Gate) -> Gate | None:
    if one.moving_to is None or queue.partitions is None or not queue.partitions.exclusive:
        return None
    running = one.counts.get(State.RUNNING, 0)
    when = f"when {counted(running, 'running task')} {'ends' if running == 1 else 'end'}" if running else "in a moment"
    return msgspec.structs.replace(
        gate,
        passed=False,
        says=f"moves to {one.moving_to} {when}",
        figure=f"from {one.owner}",
        cause="key-moves",
        sentence=f"its key {task.partition} moves to {one.moving_to} {when}",
    )


def _owned(task: Task, queue: Queue, one: Partition, gate: Gate, scene: Scene) -> Gate:
    spec = queue.partitions
    if spec is None:
        return gate
    slots = serving(scene.slots, queue.name, spec)
    lacking = unowned(queue.name, spec, msgspec.structs.replace(one, key=task.partition or ""), slots, led=scene.led)
    if lacking is not None:
        return msgspec.structs.replace(
            gate,
            passed=False,
            says=lacking.says,
            cause=lacking.cause,
            sentence=f"its key {task.partition} {lacking.says}",
            stuck=lacking.stuck,
            helps=lacking.helps,
        )
    owner = next((slot for slot in slots if slot.name == one.owner), None)
    found = None if owner is None or not spec.exclusive else owner_worker(scene.managers, owner)
    if found is None or found[0].running < found[1]:
        return gate
    return msgspec.structs.replace(
        gate,
        passed=False,
        says=f"belongs to slot {one.owner}, whose worker is busy",
        figure=f"{found[0].running} of {found[1]} running",
        cause="slot-busy",
        sentence=f"its key {task.partition} belongs to slot {one.owner}, whose worker {found[0].name} is busy",
    )


def _says(spec: Partitioning, one: Partition) -> str:
    if one.owner is None:
        return "any worker of the queue takes it"
    return f"belongs to slot {one.owner}" if spec.exclusive else f"{one.owner} takes it first, then any slot"


def _without_owner(queue: str, spec: Partitioning, one: Partition, slots: Sequence[PoolSlot], *, led: bool) -> Unowned:
    if spec.mode == "static" and not any(one.key in keys for keys in spec.table.values()):
        return Unowned(
            cause="not-in-table",
            says="is owned by no slot: it is not in the table of partitions",
            stuck=True,
            helps=(f"add it to the partitions of queue {queue}", f"pitboss partitions move {queue} {one.key} SLOT"),
        )
    if not slots:
        return _no_slots(queue)
    if not led:
        return Unowned(cause="no-leader", says="is owned by no slot yet: no manager leads; one does within seconds")
    return Unowned(cause="unassigned", says="is owned by no slot yet: the leader gives it to one in a moment")


def _missing(queue: str, spec: Partitioning, one: Partition, *, led: bool) -> Unowned:
    if _moves_by_itself(spec) and not led:
        says = f"belongs to slot {one.owner}, which no worker has; it waits for a leader to give it to another"
        return Unowned(cause="slot-missing", says=says)
    return Unowned(
        cause="slot-missing",
        says=f"belongs to slot {one.owner}, which no worker has; start it, or set on_missing",
        stuck=True,
        helps=(_start(one.owner or ""), f"pitboss partitions pin {queue} {one.key} SLOT"),
    )


def _start(slot: str) -> str:
    """What starts the worker of a slot. `--only` is refused where the pool of a manager has too few workers."""
    number = int(slot.rpartition("/")[2])
    alone = f"pitboss up --only {number} starts this one alone, in a pool of {number + 1} or more"
    return f"pitboss up starts more workers, which take free slots; {alone}"


def _no_slots(queue: str) -> Unowned:
    return Unowned(cause="no-slots", says=f"waits: no worker has a slot for queue {queue} yet")


def _moves_by_itself(spec: Partitioning) -> bool:
    """Whether the leader gives keys of a missing slot to others."""
    return spec.mode == "balanced" or spec.on_missing == "reassign"
