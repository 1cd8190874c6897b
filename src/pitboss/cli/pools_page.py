"""The pools of every manager on one page."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pitboss.cli.documents import pool_document
from pitboss.cli.orders import Wished
from pitboss.cli.screen import Column, Screen
from pitboss.model.fleet import Place

_POOL = "pool/"
_COLUMNS = (
    Column("Pool", fills=True),
    Column("Host"),
    Column("State"),
    Column("Workers", right=True),
    Column("Range", right=True, drop=4),
    Column("Slots", right=True, drop=6),
    Column("Running", right=True),
    Column("Generation", right=True, drop=7),
    Column("Ordered", drop=3),
    Column("Queues", drop=5),
    Column("Why", drop=2),
)


def pools_document(places: Sequence[Place], known: Wished) -> dict[str, Any]:
    """`orders` are the wishes of pools as they are written, by pool and host."""
    orders = {key.removeprefix(_POOL): wish for key, wish in known.written.items() if key.startswith(_POOL)}
    return {"pools": [_document(place) for place in places], "orders": orders}


def draw_pools(screen: Screen, places: Sequence[Place], known: Wished) -> None:
    if places:
        screen.table(_COLUMNS, [pool_row(place, known) for place in places])
    else:
        screen.note("no manager is running on this store; start one with pitboss up")
    running = {place.pool.name for place in places}
    for key in sorted(known.written):
        name, _, host = key.removeprefix(_POOL).partition("@")
        if key.startswith(_POOL) and name not in running:
            where = f" on {host}" if host else ""
            screen.note(f'note: something is ordered of pool "{name}"{where}, which nobody runs now')


def pool_row(place: Place, known: Wished) -> list[str]:
    pool = place.pool
    span = str(pool.least) if pool.least == pool.most else f"{pool.least}–{pool.most}"
    return [
        pool.name,
        place.manager.host,
        pool_state(place),
        f"{len(place.ready)}/{pool.wanted}",
        span,
        str(pool.concurrency),
        str(place.running),
        str(pool.generation),
        _ordered(place, known),
        "all" if pool.queues is None else ", ".join(pool.queues),
        pool.why or "; ".join(f"{worker.name}: {worker.why or 'crashed'}" for worker in place.crashed),
    ]


def pool_state(place: Place) -> str:
    """The worst first."""
    if place.crashed:
        return "crashed"
    if place.pool.paused:
        return "paused"
    if place.manager.told.draining:
        return "draining"
    changing = len(place.live) != place.pool.wanted or len(place.ready) != len(place.live)
    return "changing" if changing else "running"


def _ordered(place: Place, known: Wished) -> str:
    wish = known.sense.pool(place.pool.name, place.manager.host)
    parts = [f"{wish.size} workers" if wish.size is not None else "", "paused" if wish.paused else ""]
    return ", ".join(part for part in parts if part)


def _document(place: Place) -> dict[str, Any]:
    return {
        "host": place.manager.host,
        "session": place.manager.number,
        **pool_document(place.pool),
        "state": pool_state(place),
        "running": place.running,
        "workers": dict(Counter(worker.state.value for worker in place.workers)),
    }
