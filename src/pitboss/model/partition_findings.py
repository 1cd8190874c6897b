"""How queues with partitions are: keys with waiting tasks that no live slot takes, and tables of unclear pools."""

from collections.abc import Iterator, Sequence

import msgspec

from pitboss.model.finding import Finding, fine, warning
from pitboss.model.fleet import ManagerView, worker_pools
from pitboss.model.partition_gates import Unowned
from pitboss.model.queue import Queue
from pitboss.model.text import counted, listed

PARTITIONS = "partitions"
_SHOWN = 5


class WaitingKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a queue that no live slot takes tasks of, for one cause. `why` is that of the first; `waiting` counts the
    pending tasks of all."""

    queue: str
    keys: tuple[str, ...]
    waiting: int
    why: Unowned


def partition_findings(
    queues: Sequence[Queue], waiting: Sequence[WaitingKeys], managers: Sequence[ManagerView]
) -> Iterator[Finding]:
    """Nothing for a store without partitions."""
    divided = [queue for queue in queues if queue.partitions is not None]
    troubles = [*map(_without_slot, waiting), *(one for queue in divided for one in _two_pools(queue, managers))]
    yield from troubles
    if divided and not troubles and managers:
        yield fine(PARTITIONS, f"every key with waiting tasks has a live slot ({counted(len(divided), 'queue')})")


def _without_slot(one: WaitingKeys) -> Finding:
    tasks = f"{counted(one.waiting, 'task')} of {counted(len(one.keys), 'key')}"
    return warning(
        PARTITIONS,
        f'queue "{one.queue}": {tasks} {"waits" if one.waiting == 1 else "wait"} without a live slot: '
        f"{listed(one.keys, _SHOWN)}",
        why=f"{one.keys[0]} {one.why.says}",
        fix="; ".join((*one.why.helps, f"pitboss partitions show {one.queue}")),
    )


def _two_pools(queue: Queue, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    spec = queue.partitions
    if spec is None or spec.mode != "static" or spec.pool is not None:
        return
    views = worker_pools(managers)
    names = sorted({view.pool.name for view in views if view.pool.queues is None or queue.name in view.pool.queues})
    if len(names) > 1:
        yield warning(
            PARTITIONS,
            f'worker pools {listed(names)} serve queue "{queue.name}", whose table counts the slots of one pool',
            why=f"its keys go to slots of {names[0]}; the workers of {listed(names[1:])} take none of its tasks",
            fix=f'declare pool="{names[0]}" for the queue, or let only one pool serve it',
        )
