"""What a verdict is made from: the facts of a store, and a cause that applies."""

from collections.abc import Sequence
from typing import NamedTuple

from pitboss.model.duration import Moment
from pitboss.model.filter import Count
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView, WorkerPoolView, worker_pools
from pitboss.model.source_findings import SOURCES
from pitboss.model.store_reading import StoreReading
from pitboss.model.text import counted
from pitboss.model.verdict import Verdict


class Found(NamedTuple):
    """A cause that applies, with the queues whose waiting it explains, and the commands that help."""

    verdict: Verdict
    queues: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()


class Case(NamedTuple):
    reading: StoreReading
    managers: Sequence[ManagerView]
    findings: Sequence[Finding]
    now: Moment

    @property
    def wrong(self) -> Finding | None:
        return next((one for one in self.findings if one.grade is Grade.PROBLEM), None)

    @property
    def of_sources(self) -> bool:
        """Work that does not even arrive is worse than tasks that failed or wait for long."""
        return self.wrong is not None and self.wrong.check == SOURCES

    def serving(self, pool: str) -> frozenset[str]:
        """The queues that a worker pool serves."""
        views = [view for view in worker_pools(self.managers) if view.pool.name == pool]
        return frozenset(queue.name for queue in self.reading.queues if any(serves(view, queue.name) for view in views))


def serves(view: WorkerPoolView, queue: str) -> bool:
    return view.pool.queues is None or queue in view.pool.queues


def tasks_wait(number: int) -> str:
    return f"{counted(number, 'task')} {'waits' if number == 1 else 'wait'}"


def counted_tasks(count: Count) -> str:
    return counted(count.number, "task", more=count.more)
