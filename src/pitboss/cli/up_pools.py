"""Which worker pools `pitboss up` runs on this host."""

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec, spoken_size
from pitboss.model.pool_keys import checked, same_pool
from pitboss.model.text import counted

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.worker.describe import Description

# Options for the one pool that runs when none is declared, by setting, and what to use otherwise.
_OF_ONE_POOL = {
    "workers": ("--workers", "--pool {}=3 sets the workers of a pool"),
    "only_queues": ("--queues", "--only-pools {} chooses pools"),
}


def chosen_pools(found: "Loaded", description: "Description", sizes: Sequence[str] = ()) -> tuple[PoolSpec, ...]:
    """The pools to run, with the sizes of `--pool`."""
    from pitboss import config

    pools = config.pools(found.settings, description.pools)
    if found.settings.pools or description.pools:
        _refuse_options_of_one_pool(found, pools)
        _refuse_unserved(pools, description)
    return _chosen(_resized(pools, sizes), found)


def pool_lines(pools: Sequence[PoolSpec]) -> Iterator[str]:
    """A line for each pool."""
    width = max(len(pool.name) for pool in pools)
    for pool in pools:
        least, most = pool.min_workers, pool.max_workers
        number = f"{least}-{most} workers" if pool.scales else counted(most, "worker")
        queues = f"queues {', '.join(pool.queues)}" if pool.queues else "all queues"
        limit = f", at most {spoken_size(pool.memory)}" if pool.memory else ""
        yield f"{pool.name:<{width}}  {number} × {counted(pool.concurrency, 'task')}, {queues}{limit}"


def _refuse_options_of_one_pool(found: "Loaded", pools: Sequence[PoolSpec]) -> None:
    for key, (option, instead) in _OF_ONE_POOL.items():
        if found.origins[key].startswith("command line"):
            raise InvalidInput(
                f"{option} does not name a worker pool",
                why=f"the worker pools are {_names(pools)}",
                fix=instead.format(pools[0].name),
            )


def _refuse_unserved(pools: Sequence[PoolSpec], description: "Description") -> None:
    if any(pool.queues is None for pool in pools):
        return
    served = {queue for pool in pools for queue in pool.queues or ()}
    for handler in description.handlers:
        if handler.queue not in served:
            raise InvalidInput(
                f'no worker pool serves the queue "{handler.queue}", which the task {handler.name} uses',
                why=f"its tasks would wait for ever; the worker pools serve {', '.join(sorted(served))}",
                fix=f'add "{handler.queue}" to the queues of a pool, or add a pool without queues: it serves them all',
            )


def _resized(pools: tuple[PoolSpec, ...], sizes: Sequence[str]) -> tuple[PoolSpec, ...]:
    from msgspec.structs import replace

    for text in sizes:
        name, equals, number = text.partition("=")
        if not equals:
            raise InvalidInput(
                f"--pool {text} has no number of workers",
                why="it takes a pool's name and a number",
                fix=f"say --pool {name}=3, or --pool {name}=1-8 to scale with the load",
            )
        wanted = _found(pools, name, "--pool")
        least, most = checked("workers", number)
        resized = replace(wanted, min_workers=least, max_workers=most)
        pools = tuple(resized if pool is wanted else pool for pool in pools)
    return pools


def _chosen(pools: tuple[PoolSpec, ...], found: "Loaded") -> tuple[PoolSpec, ...]:
    only = found.settings.only_pools
    wanted = [_found(pools, name, f"only_pools ({found.origins['only_pools']})") for name in only]
    return tuple(pool for pool in pools if pool in wanted) if only else pools


def _found(pools: Sequence[PoolSpec], name: str, origin: str) -> PoolSpec:
    by_name = {same_pool(pool.name): pool for pool in pools}
    pool = by_name.get(same_pool(name.strip()))
    if pool is None:
        close = difflib.get_close_matches(same_pool(name), by_name, n=1)
        raise InvalidInput(
            f'{origin} names a worker pool "{name}", which does not exist',
            why=f"the worker pools are {_names(pools)}",
            fix=f'write "{by_name[close[0]].name}"' if close else "name one of these",
        )
    return pool


def _names(pools: Sequence[PoolSpec]) -> str:
    return ", ".join(pool.name for pool in pools)
