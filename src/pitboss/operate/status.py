"""How a store is doing: its verdict with the next step, its findings, and the figures behind them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from pitboss.client.queue_flows import read_forecasts
from pitboss.client.waiting import read_waiting
from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Clock, Store
from pitboss.model.batch import IN_SLOT, Batch, BatchStatus
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.figures import HOUR
from pitboss.model.filter import Count, by, parsed
from pitboss.model.finding import Finding, fine
from pitboss.model.fleet import live_managers
from pitboss.model.happening import Happening, Kind
from pitboss.model.judgement import CRASHES_WITHIN
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import QueueForecast
from pitboss.model.resource import ResourcePool
from pitboss.model.schedule_findings import ScheduleFigures
from pitboss.model.sealed import MissingKey, missing, sealing_keys
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.status import assess, key_finding
from pitboss.model.store_reading import LATE, LATELY, Ended, StoreReading
from pitboss.model.text import one_line
from pitboss.model.verdict import Verdict
from pitboss.model.waiting import troubles
from pitboss.operate.alerts import alert_findings
from pitboss.operate.batches import BatchReading, read_batches
from pitboss.operate.partitions import read_waiting_keys
from pitboss.operate.schedules import schedule_figures

_HELD_READ = 500
_UNFINISHED = (*sorted(IN_SLOT), BatchStatus.QUEUED, BatchStatus.PAUSED)
MOST_BATCHES = 10
_COUNTED = 10_000
_CRASHES_READ = 200
_FAILURES_READ = 50
_WITHIN = (LATELY, 600 * SECOND, 60 * SECOND, 10 * SECOND, SECOND)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A store at one moment. `next` is the command for the verdict; `batches` are those that have not ended."""

    now: Moment
    verdict: Verdict
    next: str
    findings: tuple[Finding, ...]
    queues: tuple[Queue, ...]
    forecasts: Mapping[str, QueueForecast]
    sessions: tuple[Session, ...]
    batches: tuple[BatchReading, ...] = ()
    resource_pools: tuple[ResourcePool, ...] = ()
    schedules: ScheduleFigures | None = None
    # The wall clock, by which ticks are.
    wall: Moment = 0


async def read_status(store: Store, now: Moment, release: str = "") -> Status:
    reading = await read_store(store, now, release)
    found = assess(reading, now)
    has = capabilities(store)
    unfinished = await has.batches.batches(statuses=_UNFINISHED, limit=MOST_BATCHES) if has.batches else []
    return Status(
        now=now,
        verdict=found.verdict,
        next=found.verdict.next,
        findings=found.findings,
        queues=tuple(reading.queues),
        forecasts=reading.forecasts,
        sessions=tuple(reading.sessions),
        batches=tuple(await read_batches(store, unfinished, now)) if unfinished else (),
        resource_pools=tuple(await has.resources.resource_pools()) if has.resources else (),
        schedules=reading.schedules,
        wall=store.clock.wall(),
    )


async def check_store(store: Store, clock: Clock, release: str) -> list[Finding]:
    """Every finding that the store allows: how it is set up, then managers, workers, queues and handlers."""
    diagnosis = capabilities(store).diagnosis
    setup = [] if diagnosis is None else await diagnosis.diagnose(clock)
    now = store.clock.now()
    return [*setup, *assess(await read_store(store, now, release), now).findings]


async def check_keys(store: Store, known: Collection[str], where: str, now: Moment) -> list[Finding]:
    """Whether the keys of this process open all secrets. Managers know their own keys: while one is alive, its word
    counts, and this says nothing."""
    resources = capabilities(store).resources
    if resources is None or live_managers(await store.sessions(), now):
        return []
    needed: list[MissingKey] = []
    for pool in await resources.resource_pools():
        needed += sealing_keys(await resources.resources(pool.name))
    if not needed:
        return []
    if lacking := missing(needed, known):
        return [key_finding(lacking, where, waiting=True)]
    return [fine("keys", f"{where} has the keys of all secrets")]


async def read_store(store: Store, now: Moment, release: str = "") -> StoreReading:
    began = store.clock.now()
    queues = await store.queues()
    answered, sessions = store.clock.now() - began, await store.sessions()
    whole = await read_waiting(store, queues, sessions, now)
    waiting = whole.tasks
    held, more_held = await _held_by_handler(store, queues)
    late = spoken(LATE)
    failed = await _ended(store, State.FAILED, LATELY)
    waiting_keys = await read_waiting_keys(store, queues)
    return StoreReading(
        queues=queues,
        sessions=sessions,
        handlers=await store.handlers(),
        held=held,
        more_held=more_held,
        # An item is as old as its batch, which may have queued for hours: that is no delay. Who waits is at least as
        # old: fresh tasks need not be looked at.
        late=await store.count(parsed(f"state:pending age:>{late} wait:>{late} -batch:*"), most=_COUNTED),
        failed=failed,
        failure=await _usual_failure(store) if failed.number else "",
        ended=await _ended_lately(store, now),
        troubles=troubles(waiting, queues, waiting_keys),
        forecasts=await read_forecasts(store, now, queues=queues, sessions=sessions, waiting=whole),
        paused_batches=await _paused_batches(store, queues),
        schedules=await schedule_figures(store, store.clock.wall()),
        waiting_keys=waiting_keys,
        oldest=min(waiting, key=lambda one: one.task.created_at).why if waiting else None,
        alerts=await alert_findings(store),
        crashes=await _crashes(store, now),
        answered=answered,
        release=release,
    )


async def _crashes(store: Store, now: Moment) -> list[Happening]:
    log = capabilities(store).happenings
    if log is None:
        return []
    return await log.happenings(limit=_CRASHES_READ, since=now - CRASHES_WITHIN, kinds=[Kind.WORKER_CRASHED])


async def _paused_batches(store: Store, queues: list[Queue]) -> list[Batch]:
    batches = capabilities(store).batches
    if batches is None or not any(queue.counts.get(State.HELD) for queue in queues):
        return []
    return [one for one in await batches.batches(statuses=[BatchStatus.PAUSED]) if one.left]


async def _held_by_handler(store: Store, queues: list[Queue]) -> tuple[dict[str, int], bool]:
    """Tasks that are held because no worker knows their handler, and whether there are more. Beyond the first 500 the
    handlers are not read: the most frequent one gets the rest."""
    unknown = by(state=State.HELD, reason="handler")
    total = Count()
    if any(queue.counts.get(State.HELD) for queue in queues):
        total = await store.count(unknown, most=_COUNTED)
    counts: dict[str, int] = {}
    for task in (await store.find(unknown, limit=_HELD_READ)).tasks if total.number else ():
        counts[task.handler] = counts.get(task.handler, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    if most:
        counts[most] += total.number - sum(counts.values())
    return counts, total.more


async def _ended_lately(store: Store, now: Moment) -> Ended:
    """Of the longest of some times in which not more ended than are counted: a share must be of all."""
    found = Ended()
    for within in await _countable(store, now):
        failed = await _ended(store, State.FAILED, within)
        completed = await _ended(store, State.COMPLETED, within)
        found = Ended(within, failed.number + completed.number, failed.number)
        if not failed.more and not completed.more:
            break
    return found


async def _countable(store: Store, now: Moment) -> Sequence[Span]:
    """The times in which not more ended than are counted, as far as flows know: they say it without counting tasks."""
    figures = capabilities(store).figures
    for place, within in enumerate(_WITHIN):
        flows = [] if figures is None else await figures.flows(now - within, now + 1, span=HOUR)
        if max(sum(one.completed for one in flows), sum(one.failed for one in flows)) <= _COUNTED:
            return _WITHIN[place:]
    return _WITHIN[-1:]


async def _usual_failure(store: Store) -> str:
    """The most frequent error of the newest failures, in one line."""
    tasks = (await store.find(by(state=State.FAILED), limit=_FAILURES_READ)).tasks
    errors = [(one.handler, one.error.type or one.error.category, one.error.message) for one in tasks if one.error]
    if not errors:
        return ""
    (handler, kind), _ = Counter((handler, kind) for handler, kind, _ in errors).most_common(1)[0]
    message = next(text for of, name, text in errors if (of, name) == (handler, kind))
    return one_line(f"mostly {kind} in {handler}: {message}")


async def _ended(store: Store, state: State, within: Span) -> Count:
    return await store.count(parsed(f"state:{state} finished:<{spoken(within)}"), most=_COUNTED)
