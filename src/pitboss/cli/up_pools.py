"""Which worker pools `pitboss up` runs on this host."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pitboss.model.errors import InvalidInput
from pitboss.model.pool import PoolSpec, spoken_size
from pitboss.model.pool_keys import checked, same_pool
from pitboss.model.text import counted, ranges

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.worker.describe import Description

_NUMBER_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z")


def chosen_pools(
    found: "Loaded", description: "Description", sizes: Sequence[str] = (), only: str | None = None
) -> tuple[PoolSpec, ...]:
    """The pools to run, with the sizes of `--workers` and `--pool`, and of each only the workers of `--only`."""
    from pitboss import config

    pools = config.pools(found.settings, description.pools)
    if found.settings.pools or description.pools:
        pools = _with_workers(found, pools)
        _refuse_queues(found, pools)
        _refuse_unserved(pools, description)
    pools = _chosen(_resized(pools, sizes), found)
    return pools if only is None else _limited(pools, only)


def pool_lines(pools: Sequence[PoolSpec]) -> Iterator[str]:
    """A line for each pool."""
    width = max(len(pool.name) for pool in pools)
    for pool in pools:
        least, most = pool.min_workers, pool.max_workers
        number = f"{least}-{most} workers" if pool.scales else counted(most, "worker")
        if pool.only:
            number = f"{_numbers(pool.only)} of {number}"
        queues = f"queues {', '.join(pool.queues)}" if pool.queues else "all queues"
        limit = f", at most {spoken_size(pool.memory)}" if pool.memory else ""
        yield f"{pool.name:<{width}}  {number} × {counted(pool.concurrency, 'task')}, {queues}{limit}"


def _numbers(only: Sequence[int]) -> str:
    return f"{'number' if len(only) == 1 else 'numbers'} {ranges(only)}"


def _with_workers(found: "Loaded", pools: tuple[PoolSpec, ...]) -> tuple[PoolSpec, ...]:
    """`--workers` sets the number of the only declared pool."""
    if not found.origins["workers"].startswith("command line"):
        return pools
    if len(pools) > 1:
        raise InvalidInput(
            "--workers does not name a worker pool",
            why=f"the worker pools are {_names(pools)}",
            fix=f"--pool {pools[0].name}=3 sets the workers of a pool",
        )
    return _resized(pools, [f"{pools[0].name}={found.settings.workers}"])


def _refuse_queues(found: "Loaded", pools: Sequence[PoolSpec]) -> None:
    if found.origins["only_queues"].startswith("command line"):
        raise InvalidInput(
            "--queues does not name a worker pool",
            why=f"the worker pools are {_names(pools)}",
            fix=f"--only-pools {pools[0].name} chooses pools",
        )


def _limited(pools: Sequence[PoolSpec], only: str) -> tuple[PoolSpec, ...]:
    """The pools with the workers of these numbers; one that has none of them is left out."""
    from msgspec.structs import replace

    wanted: set[int] = set()
    for part in only.split(","):
        match = _NUMBER_RANGE.match(part.strip())
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise InvalidInput(
                f"--only {only!r:.60} does not name workers",
                why="it takes their numbers, which count from 0 on",
                fix="say --only 0,1 or --only 0-4",
            )
        wanted.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    limited = tuple(replace(pool, only=tuple(sorted(wanted & set(range(pool.max_workers))))) for pool in pools)
    strange = wanted - {place for pool in limited for place in pool.only}
    if strange:
        has = ", ".join(f"{pool.name} has {_numbers(range(pool.max_workers))}" for pool in pools if pool.max_workers)
        raise InvalidInput(
            f"--only names {_numbers(sorted(strange))}, which no worker has",
            why=has or "no pool has workers",
            fix="name workers that there are; --pool NAME=N sets how many a pool has",
        )
    return tuple(pool for pool in limited if pool.only)


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
