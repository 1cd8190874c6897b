"""The compared systems: how each is run, on which store, and with how many tasks."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Numbers of tasks: enqueued one by one, many per call, drained, end to end. Slow systems get fewer."""

    one: int
    many: int
    drain: int
    e2e: int


class System(NamedTuple):
    name: str
    module: str
    environment: str
    server: str
    sizes: Sizes
    best: str
    workers: str
    kept: str
    variant: str = ""

    @property
    def ours(self) -> bool:
        return self.environment == "pitboss"


_SLOW, _FAIR = Sizes(1000, 20_000, 2500, 2500), Sizes(4000, 12_000, 12_000, 12_000)
_FAST = Sizes(2000, 50_000, 60_000, 60_000)

SYSTEMS = (
    System(
        "pitboss-sqlite",
        "pitboss_peer",
        "pitboss",
        "file",
        _FAST,
        "enqueue_many, 1000 per call",
        "`pitboss up --workers 2 --quiet`, else defaults (16 at once in each)",
        "settled after the run; rows, results and attempts kept; WAL, synchronous=FULL",
    ),
    System(
        "pitboss-postgres",
        "pitboss_peer",
        "pitboss",
        "postgres",
        _FAST,
        "enqueue_many, 1000 per call",
        "`pitboss up --workers 2 --quiet`, else defaults (16 at once in each)",
        "settled after the run; rows, results and attempts kept",
    ),
    System(
        "pgqueuer",
        "pgqueuer_peer",
        "pgqueuer",
        "postgres",
        _FAST,
        "queries.enqueue(lists), 1000 per call",
        "2 × `pgq run --batch-size 100`, uvloop",
        "completed after the run in batches; row deleted, log row kept; no result, no attempts",
        "100",
    ),
    System(
        "pgqueuer-1000",
        "pgqueuer_peer",
        "pgqueuer",
        "postgres",
        _FAST,
        "queries.enqueue(lists), 1000 per call",
        "2 × `pgq run --batch-size 1000`, uvloop",
        "as pgqueuer",
        "1000",
    ),
    System(
        "procrastinate",
        "procrastinate_peer",
        "procrastinate",
        "postgres",
        _SLOW,
        "batch_defer_async, 1000 per call",
        "2 × `worker -c 20`, pool of 20",
        "completed after the run; job deleted (keeping is its default, and slower)",
    ),
    System(
        "dramatiq-redis",
        "dramatiq_peer",
        "dramatiq",
        "redis",
        _FAIR,
        "loop of send (no bulk)",
        "`dramatiq -p 2 -t 8` (default threads)",
        "acknowledged after the run; nothing kept",
    ),
    System(
        "huey-redis",
        "huey_peer",
        "huey",
        "redis",
        _FAIR,
        "loop of calls (no bulk)",
        "2 × `huey_consumer -w 8 -k thread -q`",
        "no acknowledgement: popped, lost if the worker dies; nothing kept",
        "redis",
    ),
    System(
        "taskiq-redis-stream",
        "taskiq_peer",
        "taskiq",
        "redis",
        _FAIR,
        "gather of 100 kiq (no bulk)",
        "`taskiq worker --workers 2`, 100 at once, uvloop",
        "acknowledged after the run; no result backend",
        "stream",
    ),
    System(
        "taskiq-redis-list",
        "taskiq_peer",
        "taskiq",
        "redis",
        _FAIR,
        "gather of 100 kiq (no bulk)",
        "`taskiq worker --workers 2`, 100 at once, uvloop",
        "no acknowledgement: popped, lost if the worker dies; no result backend",
        "list",
    ),
    System(
        "celery-redis",
        "celery_peer",
        "celery",
        "redis",
        Sizes(1500, 3000, 3000, 3000),
        "loop of apply_async, one producer (no bulk)",
        "`celery worker -c 2`, prefork (default), prefetch ×4 (default)",
        "acknowledged before the run (default); nothing kept",
    ),
    System(
        "celery-redis-solo",
        "celery_peer",
        "celery",
        "redis",
        Sizes(1500, 4000, 4000, 4000),
        "loop of apply_async, one producer (no bulk)",
        "2 × `celery worker -P solo`, prefetch ×64 (best found)",
        "acknowledged before the run (default); nothing kept",
        "solo",
    ),
    System(
        "huey-sqlite",
        "huey_peer",
        "huey",
        "file",
        Sizes(2000, 5000, 5000, 4000),
        "loop of calls (no bulk)",
        "2 × `huey_consumer -w 8 -k thread -q`",
        "no acknowledgement: deleted when taken, lost if the worker dies; nothing kept; WAL, synchronous=FULL",
        "sqlite",
    ),
)
QUICK = ("pitboss-sqlite", "pitboss-postgres", "pgqueuer-1000", "dramatiq-redis", "huey-sqlite")
