"""What is read from a store to say how it is doing."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pitboss.model.batch import Batch
from pitboss.model.duration import SECOND, Span
from pitboss.model.filter import Count
from pitboss.model.finding import Finding
from pitboss.model.happening import Happening
from pitboss.model.partition_findings import WaitingKeys
from pitboss.model.queue import HandlerInfo, Queue, remote_queues
from pitboss.model.queue_forecast import QueueForecast
from pitboss.model.schedule_findings import ScheduleFigures
from pitboss.model.session import Lead, Session
from pitboss.model.states import State
from pitboss.model.waiting import Trouble, Why

LATE: Span = 300 * SECOND
LATELY: Span = 3600 * SECOND


class Ended(NamedTuple):
    """How many tasks ended within a time, and how many of them failed."""

    within: Span = LATELY
    number: int = 0
    failed: int = 0


class StoreReading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a store. `held` counts tasks by the handler that no worker knows (`more_held`: and there are
    more), `late` tasks that waited longer than `LATE`, `failed` those that failed within `LATELY`, `failure` what most
    of them failed of, and `failing` is the queue of most of the newest ones. `troubles` say why due tasks do not start;
    `oldest` says it for the one that has waited longest. `paused_batches` have items left. `schedules` None: the store
    has none; `lead` is read if some are overdue. `alerts` are those that fire. `release` is the reader's own.
    `forecasts` say what becomes of each queue. `crashes` are those of workers lately, and `answered` is how long the
    store, an engine of the name `store`, took for a small read."""

    queues: Sequence[Queue] = ()
    sessions: Sequence[Session] = ()
    handlers: Sequence[HandlerInfo] = ()
    held: Mapping[str, int] = {}
    more_held: bool = False
    late: Count = Count()
    failed: Count = Count()
    failure: str = ""
    failing: str = ""
    ended: Ended = Ended()
    troubles: Sequence[Trouble] = ()
    oldest: Why | None = None
    paused_batches: Sequence[Batch] = ()
    schedules: ScheduleFigures | None = None
    lead: Lead | None = None
    waiting_keys: Sequence[WaitingKeys] = ()
    alerts: Sequence[Finding] = ()
    release: str = ""
    forecasts: Mapping[str, QueueForecast] = {}
    crashes: Sequence[Happening] = ()
    answered: Span = 0
    store: str = ""

    def total(self, *states: State) -> int:
        return sum(queue.counts.get(state, 0) for queue in self.queues for state in states)

    @property
    def waiting(self) -> int:
        return sum(queue.waiting for queue in self.queues)

    @property
    def local(self) -> "StoreReading":
        """The same without the task types of remote workers, and without the queues that have only those."""
        remote = remote_queues(self.handlers)
        return msgspec.structs.replace(
            self,
            queues=[queue for queue in self.queues if queue.name not in remote],
            handlers=[handler for handler in self.handlers if not handler.remote],
        )
