"""The verdict if workers die: a pool without a live one, and workers that crash again and again."""

import re
from collections.abc import Iterable, Sequence

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.fleet import WorkerPoolView, worker_pools
from pitboss.model.happening import Happening, pool_of
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.store_reading import StoreReading
from pitboss.model.text import counted
from pitboss.model.verdict import Health, Verdict
from pitboss.model.verdict_case import Case, Found, serves, tasks_wait

# Workers of a pool that crash this often within the time that is looked at, the last time lately.
_CRASHES, _LATELY_CRASHED = 3, 180 * SECOND
CRASHES_WITHIN: Span = 600 * SECOND
# What signals mean that end a process, where the name alone does not say it.
_SIGNALS = {
    "SIGSEGV": "a segmentation fault, mostly in native code",
    "SIGBUS": "a bus error, mostly in native code",
    "SIGILL": "an instruction that this processor lacks",
    "SIGFPE": "a faulty calculation in native code",
    "SIGABRT": "native code gave up",
    "SIGKILL": "often the kernel, when memory runs out",
    "SIGTERM": "it was told to stop from outside",
}
_SIGNAL = re.compile(rf"\b({'|'.join(_SIGNALS)})\b")


def no_worker(case: Case) -> Found | None:
    """A worker pool whose workers are dead on every host that has it, unless tasks tell the same of themselves."""
    reading = case.reading.local
    if any(one.cause in ("given-up", "memory-limit") for one in reading.troubles):
        return None
    views = worker_pools(case.managers)
    alive = {view.pool.name for view in views if not view.dead}
    dead = [view for view in views if view.pool.name not in alive]
    if not dead:
        return None
    pool = dead[0].pool.name
    said = f'Worker pool "{pool}" has no live worker; {next_and_waiting(reading, dead[0], case.now)}.'
    why = next((one.why for one in dead[0].workers if one.why), "its workers crashed")
    verdict = Verdict(
        health=Health.UNHEALTHY,
        cause="no-worker",
        sentence=said,
        why=_explained(why),
        next_try=_restart(dead[0].workers),
    )
    commands = ("pitboss doctor", f"pitboss logs {pool}", "pitboss logs manager", f"pitboss pools restart {pool}")
    return Found(verdict, case.serving(pool), commands)


def _explained(why: str) -> str:
    """With what the name of a signal means."""
    return _SIGNAL.sub(lambda found: f"{found[0]} ({_SIGNALS[found[0]]})", why, count=1)


def _restart(workers: Iterable[WorkerFigures]) -> Moment | None:
    """When the next of these workers is started again."""
    return min((one.next_at for one in workers if one.next_at), default=None)


def crash_loop(case: Case) -> Found | None:
    """Workers of a pool that crash again and again, although others are alive."""
    crashes: dict[str, list[Happening]] = {}
    for one in case.reading.crashes:
        crashes.setdefault(pool_of(one), []).append(one)
    fresh = {pool_of(one) for one in case.reading.crashes if one.at > case.now - _LATELY_CRASHED} - {""}
    number, pool = max(((sum(one.count for one in crashes[pool]), pool) for pool in fresh), default=(0, ""))
    if number < _CRASHES:
        return None
    told, times = crashes[pool], counted(number, "crash", "crashes")
    verdict = Verdict(
        health=Health.ATTENTION,
        cause="crash-loop",
        sentence=f"{_crashing(told, pool)} again and again: {times} in {spoken(CRASHES_WITHIN)}.",
        why=_explained(max(told, key=lambda one: one.at).text),
        since=min(one.at for one in told),
        next_try=_restart(one for view in worker_pools(case.managers, pool) for one in view.workers),
    )
    # Workers that end before they log have no log of their own.
    commands = ("pitboss logs manager", f"pitboss ps --pool {pool}", "pitboss activity --kind worker_crashed")
    return Found(verdict, case.serving(pool), commands)


def _crashing(told: Sequence[Happening], pool: str) -> str:
    """A single worker is named. The sum of a storm is about its pool."""
    places = {(one.subject, one.host) for one in told}
    subject, host = next(iter(places))
    if len(places) == 1 and subject.startswith("worker "):
        return f"Worker {subject.removeprefix('worker ')}{f' on {host}' if host else ''} crashes"
    return f'Workers of pool "{pool}" crash'


def next_and_waiting(reading: StoreReading, view: WorkerPoolView, now: Moment) -> str:
    """When its next worker starts, and how many tasks wait in its queues."""
    waiting = sum(queue.waiting for queue in reading.queues if serves(view, queue.name))
    return view.next_start(now) + (f", and {tasks_wait(waiting)}" if waiting else "")
