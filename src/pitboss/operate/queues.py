"""Changes to queues."""

from collections.abc import Sequence

import msgspec

from pitboss.engines.protocol import Queues
from pitboss.model.errors import NotFound
from pitboss.model.queue import Queue, QueueChange


async def change_queues(store: Queues, names: Sequence[str], change: QueueChange) -> list[Queue]:
    """Change queues that exist. `change_queue` of an engine would create an unknown one: a misspelt name would go
    unnoticed."""
    known = {queue.name: queue for queue in await store.queues()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"there is no queue {', '.join(unknown)}",
            why=f"the queues are {', '.join(known) or 'none yet'}",
            fix="check the name; nothing was changed",
        )
    changed = [await store.change_queue(name, change) for name in names]
    return [msgspec.structs.replace(queue, counts=known[queue.name].counts) for queue in changed]
