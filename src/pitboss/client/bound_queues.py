"""A queue whose tasks hold members of a pool has no other tasks."""

from collections.abc import Collection, Mapping
from typing import Protocol

from pitboss.model.errors import InvalidInput


class Queued(Protocol):
    """A handler, as its neighbours on a queue need it."""

    name: str
    queue: str

    @property
    def resources(self) -> str | None: ...


def refuse_mixed(queue: str, handler: Queued, declared: Mapping[str, Queued]) -> None:
    """`handler` is to be on the queue, beside the declared ones; it may be one of them that is put elsewhere."""
    pool = handler.resources
    neighbours = [other for other in declared.values() if other.queue == queue]
    for other in neighbours:
        if other.resources != pool:
            raise InvalidInput(
                f'task "{handler.name}" cannot be on queue "{queue}"',
                why=f'"{other.name}" is on it and {_asks(other.resources)}, while "{handler.name}" {_asks(pool)}; '
                "a queue gives its tasks together with members of one pool, or without any",
                fix="give one of them a queue of its own with @app.task(queue=…)",
            )
    if handler.name in declared and pool is not None and not neighbours:
        raise InvalidInput(
            f'task "{handler.name}" cannot be put on queue "{queue}"',
            why=f'no handler binds that queue to "{pool}", so that the task would get no member of it',
            fix="leave queue= out, or declare a handler with that lease on that queue",
        )


def refuse_stranger(handler: Queued, pools: Collection[str]) -> None:
    """A handler asks for members of its own app's pools."""
    if handler.resources is not None and handler.resources not in pools:
        raise InvalidInput(
            f'task "{handler.name}" asks for a lease of "{handler.resources}", which its app does not have',
            why="the pool was declared in another app, and this one's managers know nothing of it",
            fix="declare the pool with app.resources(…) of the same app as the task",
        )


def _asks(pool: str | None) -> str:
    return f'asks for a lease of "{pool}"' if pool else "asks for no lease"
