"""How a store is doing: one verdict in one sentence, and the findings behind it. Every face shows the same."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.fleet import ManagerView, live_managers, locked_pools, manager_view, worker_pools
from pitboss.model.gates import how_paused
from pitboss.model.judgement import held_tasks, judge, most_first
from pitboss.model.partition_findings import partition_findings
from pitboss.model.queue_verdicts import BY_OPERATORS
from pitboss.model.schedule_findings import schedule_findings
from pitboss.model.sealed import MissingKey, told
from pitboss.model.snapshot import WorkerState
from pitboss.model.source_findings import source_findings
from pitboss.model.store_reading import StoreReading
from pitboss.model.text import counted, listed
from pitboss.model.verdict import Verdict
from pitboss.model.verdict_case import serves, tasks_wait
from pitboss.model.worker_verdicts import next_and_waiting

_SHOWN = 5
# Causes that have a finding of their own.
_FOUND_ELSEWHERE = ("no-manager", "queue-paused", "unserved")
# A session is renewed three times within its time to live; one with less than this share left has missed a renewal.
_MISSED_SHARE = 0.45


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
    return Assessment(verdict=judge(reading, findings, now), findings=findings)


def _managers(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    if managers:
        hosts = Counter(one.host for one in managers)
        yield fine("managers", f"{counted(len(managers), 'manager')} on {listed(hosts, _SHOWN)}")
    elif reading.waiting:
        yield problem(
            "managers",
            f"no manager is running; {tasks_wait(reading.waiting)}",
            why="only managers claim tasks",
            fix="pitboss up",
        )
    else:
        yield warning("managers", "no manager is running", why="new tasks will wait", fix="pitboss up")
    known = [manager_view(one) for one in reading.sessions if one.info.kind == "manager"]
    # A process whose session ran out goes on with a new one: it has not died.
    newest = {one.process: one for one in sorted(known, key=lambda one: one.number)}
    for one in newest.values():
        if not one.session.ended and one.session.expires_at <= now:
            yield _silent(one, now)
    for one in managers:
        left, ttl = one.session.expires_at - now, one.session.info.ttl
        if left < ttl * _MISSED_SHARE:
            missed = f"did not renew its session for {spoken(ttl - left)} of {spoken(ttl)}"
            yield warning(
                "managers",
                f"manager {one.number} on {one.host} {missed}",
                why="it is overloaded, frozen, or cannot reach the store; when the session ends, others take its tasks",
                fix="look at its host's load and at its log",
            )


def _silent(manager: ManagerView, now: Moment) -> Finding:
    ago = spoken(max(now - manager.session.expires_at, SECOND))
    return warning(
        "managers",
        f"manager {manager.number} on {manager.host} is silent: its session expired {ago} ago without being closed",
        why="it was killed or frozen, its host went down, or it was cut off from the store",
        fix=f"look at {manager.host} and start it there again if it is gone; its tasks went to others",
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
            f"pool {view.pool.name} on {view.manager.host} has no live worker; {next_and_waiting(reading, view, now)}",
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
    unserved = [queue for queue in reading.queues if not any(serves(view, queue.name) for view in pools)]
    for queue in (queue for queue in unserved if queue.waiting):
        yield problem(
            "queues",
            f'no worker pool serves queue "{queue.name}"; {tasks_wait(queue.waiting)} in it',
            why="every running worker pool names other queues",
            fix=f"add {queue.name} to the queues of a worker pool, or check the queue that the tasks name",
        )
    if not any(queue.waiting for queue in unserved):
        yield fine("queues", f"every queue with waiting tasks is served ({counted(len(reading.queues), 'queue')})")


def _handlers(reading: StoreReading, managers: Sequence[ManagerView]) -> Iterator[Finding]:
    if reading.held:
        yield problem(
            "handlers",
            f"{held_tasks(reading)} held: no live worker knows {listed(most_first(reading.held), _SHOWN)}",
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
        if (serving := [view for view in views if serves(view, handler.queue)]) and all(view.dead for view in serving)
    )


def _paused(reading: StoreReading, managers: Sequence[ManagerView], now: Moment) -> Iterator[Finding]:
    for queue in (queue for queue in reading.queues if queue.paused):
        yield warning(
            "paused",
            f'queue "{queue.name}" {how_paused(queue, now)}; {tasks_wait(queue.waiting)} in it',
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
            report = problem if one.stuck and one.cause not in BY_OPERATORS else warning
            step = "; ".join(one.helps) or "wait"
            yield report("waiting", one.said, why=f"pitboss why {one.example} lists every gate", fix=step)
