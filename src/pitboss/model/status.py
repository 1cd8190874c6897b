"""How a store is doing: one verdict in one sentence, and the findings behind it. Every face shows the same."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.filter import Count
from pitboss.model.finding import Finding, Grade, fine, problem, warning
from pitboss.model.fleet import ManagerView, WorkerPoolView, live_managers, locked_pools, manager_view, worker_pools
from pitboss.model.gates import how_paused
from pitboss.model.partition_findings import partition_findings
from pitboss.model.schedule_findings import are_overdue, schedule_findings
from pitboss.model.sealed import MissingKey, told
from pitboss.model.snapshot import WorkerState
from pitboss.model.source_findings import MALFORMED, SOURCES, source_findings, stuck_sources
from pitboss.model.states import State
from pitboss.model.store_reading import LATE, LATELY, StoreReading
from pitboss.model.text import counted, listed
from pitboss.model.waiting import Trouble

_MANY_FAILURES = 10
_NAMES_IN_VERDICT, _SHOWN = 3, 5
# Causes that operators made on purpose, and causes that have a finding of their own.
_BY_OPERATORS = ("queue-paused", "pool-paused", "draining", "disabled", "no-workers")
_FOUND_ELSEWHERE = ("no-manager", "queue-paused", "unserved")
# A session is renewed three times within its time to live; one with less than this share left has missed a renewal.
_MISSED_SHARE = 0.45


class Health(StrEnum):
    """`attention` is for a person to look at; `unhealthy` fails a health check."""

    HEALTHY = "healthy"
    ATTENTION = "attention"
    UNHEALTHY = "unhealthy"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`cause` is stable and may be matched by programs; `queue` is the one it is about, if it is about one. `next` is
    what to do, if the cause alone does not say it."""

    health: Health
    cause: str
    sentence: str
    queue: str | None = None
    next: str = ""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The worst cause as a verdict, and every finding about managers, workers, queues and handlers."""

    verdict: Verdict
    findings: tuple[Finding, ...]


def assess(reading: StoreReading, now: Moment) -> Assessment:
    managers, local = live_managers(reading.sessions, now), reading.local
    findings = (
        *_managers(reading, managers, now),
        *_releases(reading, managers),
        *_servers(managers),
        *_dead_pools(local, managers, now),
        *_workers(managers),
        *_queues(local, managers),
        *_handlers(local, managers),
        *_missing_keys(reading, managers),
        *_paused(reading, managers, now),
        *_capacities(reading),
        *schedule_findings(reading.schedules, managed=bool(managers)),
        *source_findings(reading.sessions, managers, now),
        *partition_findings(reading.queues, reading.waiting_keys, managers),
        *(*_waiting(reading), *reading.alerts),
    )
    said, fix = stuck_sources(reading.sessions, managers, now)
    stuck = Verdict(health=Health.UNHEALTHY, cause=SOURCES, sentence=said, next=fix) if said else None
    verdict = _no_worker(local, managers, now) or stuck or _verdict(reading, managers, findings)
    return Assessment(verdict=verdict, findings=findings)


def _verdict(reading: StoreReading, managers: Sequence[ManagerView], findings: Sequence[Finding]) -> Verdict:
    """The worst cause that applies."""
    if not managers:
        return _without_managers(reading)
    wrong = next((finding for finding in findings if finding.grade is Grade.PROBLEM), None)
    # Work that does not even arrive is worse than tasks that failed or wait for long.
    later = (_paused_queue, _late_tasks, _some_failures) if wrong is None or wrong.check != SOURCES else ()
    looks = (_held_tasks, _many_failures, _cannot_start, _overdue, *later)
    for look in looks:
        found = look(reading)
        if found is not None:
            return _with_others(found, reading)
    if shown := wrong or next((finding for finding in findings if finding.check == MALFORMED), None):
        said, cause = f"{shown.what[:1].upper()}{shown.what[1:]}.", "problem" if wrong else MALFORMED
        return Verdict(health=Health.ATTENTION, cause=cause, sentence=said, next=shown.fix)
    running, paused = reading.total(State.RUNNING), reading.paused_batches
    said = f"Healthy: {counted(len(managers), 'manager')}, {running:,} running, {reading.waiting:,} waiting"
    if paused:
        left = sum(one.left for one in paused)
        said += f", {left:,} of them in {counted(len(paused), 'paused batch', 'paused batches')}"
    return Verdict(health=Health.HEALTHY, cause="healthy", sentence=f"{said}.")


def _with_others(verdict: Verdict, reading: StoreReading) -> Verdict:
    """The sentence also says how many other causes keep tasks from starting."""
    others = sum(
        one.stuck and one.cause not in _BY_OPERATORS and (one.queue, one.cause) != (verdict.queue, verdict.cause)
        for one in reading.troubles
    ) + (bool(reading.held) and verdict.cause != "held")
    if not others:
        return verdict
    said = f"{verdict.sentence.removesuffix('.')}; and {others} more: pitboss doctor."
    return msgspec.structs.replace(verdict, sentence=said)


def _without_managers(reading: StoreReading) -> Verdict:
    rest = f"; {_tasks_wait(reading.waiting)}." if reading.waiting else ", and nothing waits."
    return Verdict(health=Health.UNHEALTHY, cause="no-manager", sentence=f"No manager is running{rest}")


def _no_worker(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Verdict | None:
    """A worker pool whose workers are dead on every host that has it, unless tasks tell the same of themselves."""
    if any(one.cause in ("given-up", "memory-limit") for one in reading.troubles):
        return None
    views = worker_pools(managers)
    alive = {view.pool.name for view in views if not view.dead}
    dead = [view for view in views if view.pool.name not in alive]
    if not dead:
        return None
    said = f'Worker pool "{dead[0].pool.name}" has no live worker; {_next_and_waiting(reading, dead[0], now)}.'
    return _with_others(Verdict(health=Health.UNHEALTHY, cause="no-worker", sentence=said), reading)


def _next_and_waiting(reading: StoreReading, view: WorkerPoolView, now: Moment) -> str:
    """When its next worker starts, and how many tasks wait in its queues."""
    waiting = sum(queue.waiting for queue in reading.queues if _serves(view, queue.name))
    return view.next_start(now) + (f", and {_tasks_wait(waiting)}" if waiting else "")


def _held_tasks(reading: StoreReading) -> Verdict | None:
    if not reading.held:
        return None
    names = listed(_most_first(reading.held), _NAMES_IN_VERDICT)
    said = f"{_held(reading)} held because no worker knows the handler: {names}."
    return Verdict(health=Health.UNHEALTHY, cause="held", sentence=said)


def _many_failures(reading: StoreReading) -> Verdict | None:
    within, number, failed = reading.ended
    if failed < _MANY_FAILURES or failed * 2 < number:
        return None
    said = f"{failed:,} of {number:,} tasks of the last {spoken(within)} failed."
    return Verdict(health=Health.UNHEALTHY, cause="failing", sentence=said)


def _cannot_start(reading: StoreReading) -> Verdict | None:
    """Unhealthy if a whole queue stands still, and no operator wanted that."""
    found = [(_health_of(one, reading), one) for one in reading.troubles if one.cause != "queue-paused"]
    if not found:
        return None
    health, worst = max(found, key=lambda one: (one[0] is Health.UNHEALTHY, one[1].stuck, one[1].tasks))
    said = f"{worst.said[:1].upper()}{worst.said[1:]}."
    step = worst.helps[0] if worst.helps else f"pitboss why {worst.example}"
    return Verdict(health=health, cause=worst.cause, sentence=said, queue=worst.queue, next=step)


def _health_of(trouble: Trouble, reading: StoreReading) -> Health:
    running = next((one.counts.get(State.RUNNING, 0) for one in reading.queues if one.name == trouble.queue), 0)
    still = trouble.stuck and trouble.all and not running and trouble.cause not in _BY_OPERATORS
    return Health.UNHEALTHY if still else Health.ATTENTION


def _overdue(reading: StoreReading) -> Verdict | None:
    found = reading.schedules
    if found is None or not found.overdue:
        return None
    said = f"{are_overdue(found)}, although a manager runs."
    return Verdict(health=Health.ATTENTION, cause="overdue", sentence=said, next="pitboss logs manager")


def _paused_queue(reading: StoreReading) -> Verdict | None:
    paused = [queue for queue in reading.queues if queue.paused and queue.waiting]
    if not paused:
        return None
    worst = max(paused, key=lambda queue: queue.waiting)
    said = f'Queue "{worst.name}" is paused, and {_tasks_wait(worst.waiting)} in it.'
    return Verdict(health=Health.ATTENTION, cause="paused", sentence=said, queue=worst.name)


def _late_tasks(reading: StoreReading) -> Verdict | None:
    if not reading.late.number:
        return None
    other = reading.oldest is not None and reading.oldest.shut is not None and reading.oldest.shut.name != "slots"
    why = reading.oldest.sentence if reading.oldest is not None and other else "there is more work than workers"
    said = f"{_counted(reading.late)} waited longer than {spoken(LATE)}: {why}."
    return Verdict(health=Health.ATTENTION, cause="late", sentence=said)


def _some_failures(reading: StoreReading) -> Verdict | None:
    if not reading.failed.number:
        return None
    said = f"{_counted(reading.failed)} of the last {spoken(LATELY)} failed; the rest goes on."
    return Verdict(health=Health.ATTENTION, cause="failed", sentence=said)


def _managers(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    if managers:
        hosts = Counter(one.host for one in managers)
        yield fine("managers", f"{counted(len(managers), 'manager')} on {listed(hosts, _SHOWN)}")
    elif reading.waiting:
        yield problem(
            "managers",
            f"no manager is running; {_tasks_wait(reading.waiting)}",
            why="only managers claim tasks",
            fix="pitboss up",
        )
    else:
        yield warning("managers", "no manager is running", why="new tasks will wait", fix="pitboss up")
    for session in reading.sessions:
        if session.info.kind == "manager" and not session.ended and session.expires_at <= now:
            yield _died(manager_view(session), now)
    for one in managers:
        left, ttl = one.session.expires_at - now, one.session.info.ttl
        if left < ttl * _MISSED_SHARE:
            yield warning(
                "managers",
                f"{one.name} did not renew its session for {spoken(ttl - left)} of {spoken(ttl)}",
                why="it is overloaded, frozen, or cannot reach the store; when the session ends, others take its tasks",
                fix="look at its host's load and at its log",
            )


def _died(manager: ManagerView, now: Moment) -> Finding:
    ago = spoken(max(now - manager.session.expires_at, SECOND))
    return warning(
        "managers",
        f"{manager.name} died {ago} ago: its session expired without being closed",
        why="it was killed, its host went down, or it was cut off from the store",
        fix=f"look at {manager.host} and start it there again; its tasks went to others",
    )


def _releases(reading: StoreReading, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    found = Counter(one.snapshot.version for one in managers if one.snapshot.version)
    if len(found) > 1:
        yield warning(
            "releases",
            "managers run different releases: " + ", ".join(f"{found[name]} × {name}" for name in sorted(found)),
            why="a deploy is under way, or was not finished",
            fix="bring all hosts to one release",
        )
    elif found and reading.release and reading.release not in found:
        yield warning(
            "releases",
            f"managers run release {next(iter(found))}; this command is of {reading.release}",
            why="this host was upgraded and the managers were not, or the other way round",
            fix="use one release everywhere",
        )
    elif found:
        yield fine("releases", f"all managers run {next(iter(found))}")


def _servers(managers: Sequence[ManagerView]) -> Iterator[Finding]:
    served = [(one, one.snapshot.http) for one in managers if one.snapshot.http is not None]
    for one, server in served:
        if server.state == "crashed":
            yield warning(
                "http",
                f"the HTTP server of {one.name} does not run",
                why=server.why,
                fix="remove the cause, or choose another port in [http]; then reload that manager (SIGHUP)",
            )
    if running := sorted({server.url for _, server in served if server.state == "running"}):
        yield fine("http", f"the HTTP API is at {listed(running, _SHOWN)}")


def _dead_pools(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    for view in (view for view in worker_pools(managers) if view.dead):
        why = next((worker.why for worker in view.workers if worker.why), "its workers crashed")
        yield problem(
            "workers",
            f"pool {view.pool.name} on {view.manager.host} has no live worker; {_next_and_waiting(reading, view, now)}",
            why=why,
            fix=f"pitboss logs manager shows their ends; then pitboss pools restart {view.pool.name}",
        )


def _workers(managers: Sequence[ManagerView]) -> Iterator[Finding]:
    given_up = [(view, worker) for view in worker_pools(managers) for worker in view.crashed]
    for view, worker in given_up[:_SHOWN]:
        crashes = counted(worker.crashes, "crash", "crashes")
        yield problem(
            "workers",
            f"worker {worker.name} on {view.manager.host} was given up after {crashes}",
            why=worker.why or "it crashed more often than its pool allows",
            fix=f"fix the cause, then pitboss pools restart {view.pool.name}",
        )
    again = [
        (one, worker) for one in managers for worker in one.snapshot.workers if worker.state is WorkerState.RESTARTING
    ]
    for one, worker in again[:_SHOWN]:
        yield warning(
            "workers",
            f"worker {worker.name} on {one.host} crashed and will be started again",
            why=worker.why or "it ended by itself",
            fix="pitboss logs shows its last lines",
        )
    dead = any(view.dead for view in worker_pools(managers))
    if any(one.snapshot.runs_tasks for one in managers) and not given_up and not again and not dead:
        yield fine("workers", f"{counted(sum(len(one.live) for one in managers), 'worker')} alive")


def _queues(reading: StoreReading, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    """Nothing without managers: that no manager runs is a finding of its own."""
    pools = worker_pools(managers)
    if not pools:
        return
    unserved = [queue for queue in reading.queues if not any(_serves(view, queue.name) for view in pools)]
    for queue in (queue for queue in unserved if queue.waiting):
        yield problem(
            "queues",
            f'no worker pool serves queue "{queue.name}"; {_tasks_wait(queue.waiting)} in it',
            why="every running worker pool names other queues",
            fix=f"add {queue.name} to the queues of a worker pool, or check the queue that the tasks name",
        )
    if not any(queue.waiting for queue in unserved):
        yield fine("queues", f"every queue with waiting tasks is served ({counted(len(reading.queues), 'queue')})")


def _handlers(reading: StoreReading, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    if reading.held:
        yield problem(
            "handlers",
            f"{_held(reading)} held: no live worker knows {listed(_most_first(reading.held), _SHOWN)}",
            why="their handlers were renamed or removed, or their app does not run here",
            fix="start the app that has them, or cancel the tasks: pitboss tasks list state:held",
        )
        return
    known = {name for one in managers for name in one.session.info.handlers}
    lost = sorted(handler.name for handler in reading.handlers if handler.name not in known)
    none_runs = not any(one.snapshot.runs_tasks for one in managers)
    if managers and lost and (known or none_runs):
        yield warning(
            "handlers",
            f"{counted(len(lost), 'handler')} without a live worker: {listed(lost, _SHOWN)}",
            why="they were registered once, and no running manager has them; their new tasks will be held",
            fix="start their app, unless they are no longer needed",
        )
    elif managers and (dead := _of_dead_pools(reading, managers)):
        yield problem(
            "handlers",
            f"{counted(len(dead), 'handler')} without a live worker: {listed(dead, _SHOWN)}",
            why="every worker of the pools that serve their queues is dead",
            fix="see the workers that crashed",
        )
    elif managers and not none_runs:
        yield fine("handlers", f"{counted(len(known), 'handler')}, each with a live worker")


def key_finding(lacking: Sequence[MissingKey], whose: str, *, waiting: bool) -> Finding:
    """Keys that a process lacks. `waiting`: no other process has them, so that tasks wait."""
    report = problem if waiting else warning
    return report(
        "keys",
        f"{whose} lacks {told(lacking)}",
        why="their secrets are sealed with it; tasks that need these pools wait there, at no attempt",
        fix="put the key back (the key file, or PITBOSS_SECRET_KEYS), and they go on by themselves; "
        "if it is lost, add the members again with their secrets, or disable them",
    )


def _missing_keys(reading: StoreReading, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    locked = locked_pools(managers, reading.handlers)
    for one in managers:
        if one.snapshot.missing_keys:
            waiting = any(key.pool in locked for key in one.snapshot.missing_keys)
            yield key_finding(one.snapshot.missing_keys, one.name, waiting=waiting)


def _of_dead_pools(reading: StoreReading, managers: Sequence[ManagerView]) -> list[str]:
    """The handlers whose queues only dead pools serve."""
    views = worker_pools(managers)
    return sorted(
        handler.name
        for handler in reading.handlers
        if (serving := [view for view in views if _serves(view, handler.queue)]) and all(view.dead for view in serving)
    )


def _paused(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    for queue in (queue for queue in reading.queues if queue.paused):
        yield warning(
            "paused",
            f'queue "{queue.name}" {how_paused(queue, now)}; {_tasks_wait(queue.waiting)} in it',
            why="its tasks do not start until it is resumed",
            fix=f"pitboss queues resume {queue.name}",
        )
    pools = {view.pool.name: view.pool for view in worker_pools(managers) if view.pool.paused}
    for name, pool in sorted(pools.items()):
        yield warning(
            "paused",
            f'worker pool "{name}" {how_paused(pool, now)}',
            why="its workers take no tasks until it is resumed",
            fix=f"pitboss pools resume {name}",
        )
    for batch in reading.paused_batches:
        yield warning(
            "paused",
            f"batch {batch.name or batch.id[-12:]} is paused with {counted(batch.left, 'item')} left",
            why=batch.reason or "its items do not start until it is resumed",
            fix=f"pitboss batches resume {batch.id[-12:]}",
        )
    for one in (one for one in managers if one.snapshot.draining):
        yield warning(
            "paused",
            f"{one.name} is draining: it takes no tasks",
            why="an operator asked for it",
            fix=f"pitboss drain --undo --manager {one.number}",
        )


def _capacities(reading: StoreReading) -> Iterator[Finding]:
    for queue in reading.queues:
        if queue.capacity is None or queue.waiting < queue.capacity:
            continue
        over = queue.waiting > queue.capacity
        figures = f"{queue.waiting:,} of {queue.capacity:,} tasks wait in it"
        what = f'queue "{queue.name}" holds more than its capacity' if over else f'queue "{queue.name}" is full'
        beyond = "; those of events, schedules, failures and follow-ups are put all the same" if over else ""
        yield warning(
            "capacity",
            f"{what}: {figures}",
            why=f"new tasks are refused until some have started{beyond}",
            fix=f"pitboss queues limit {queue.name} --capacity N, or add workers",
        )


def _waiting(reading: StoreReading) -> Iterator[Finding]:
    for one in reading.troubles:
        if one.cause not in _FOUND_ELSEWHERE:
            report = problem if one.stuck and one.cause not in _BY_OPERATORS else warning
            step = "; ".join(one.helps) or "wait"
            yield report("waiting", one.said, why=f"pitboss why {one.example} lists every gate", fix=step)


def _held(reading: StoreReading) -> str:
    return _counted(Count(sum(reading.held.values()), reading.more_held))


def _counted(count: Count) -> str:
    return counted(count.number, "task", more=count.more)


def _tasks_wait(number: int) -> str:
    return f"{counted(number, 'task')} {'waits' if number == 1 else 'wait'}"


def _most_first(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda name: -counts[name])


def _serves(view: WorkerPoolView, queue: str) -> bool:
    return view.pool.queues is None or queue in view.pool.queues
