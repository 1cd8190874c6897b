"""What a check-up thinks of a store's managers, queues and hosts, from what it was told about them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.fleet import Managed, Place, managed, managers, places
from pitboss.model.pool import PoolSpec, spoken_size
from pitboss.model.queue import HandlerInfo, Queue
from pitboss.model.session import Session
from pitboss.model.snapshot import WorkerState

_MEGA = 1024**2
# Of a disk: little room is a warning, next to none a problem. A share, and at least so much.
_LITTLE, _LITTLE_SHARE = 1024 * _MEGA, 0.05
_NONE, _NONE_SHARE = 100 * _MEGA, 0.01
# A manager has a socket and a watch for each worker, and a log; some are in flight while workers are replaced.
_FILES_PER_WORKER, _FILES_BESIDES = 8, 128
_SKEW_WARNING: Span = SECOND
_SKEW_PROBLEM: Span = 5 * SECOND
_SHOWN = 5
# A session is renewed three times in its life; one that has this share of it left has missed a beat.
_MISSED_SHARE = 0.45


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a store tells. `held` counts held tasks by handler; `release` is that of whoever asks."""

    sessions: Sequence[Session] = ()
    queues: Sequence[Queue] = ()
    handlers: Sequence[HandlerInfo] = ()
    held: Mapping[str, int] = {}
    release: str = ""


def of_store(scene: Scene, now: Moment) -> list[Finding]:
    """Managers, releases, workers, queues, handlers and pauses."""
    fleet = managers(scene.sessions, now)
    return [
        *_managers(scene, fleet, now),
        *_releases(scene, fleet),
        *_workers(fleet),
        *_queues(scene, fleet),
        *_handlers(scene, fleet),
        *_paused(scene, fleet),
    ]


def room(check: str, place: str, free: int, total: int) -> Finding:
    """Whether there is room on the disk that a folder is on."""
    said = f"{spoken_size(free)} of {spoken_size(total)} free at {place}"
    if free < max(_NONE, min(_NONE_SHARE * total, _LITTLE)):
        return problem(check, said, why="what cannot be written is refused or lost", fix="free some space now")
    if free < max(_LITTLE, min(_LITTLE_SHARE * total, 10 * _LITTLE)):
        return warning(check, said, why="a backlog or a busy log may fill it", fix="free some space, or move it")
    return fine(check, said)


def files(limit: int, workers: int) -> Finding:
    """Whether a manager with so many workers may open enough files; `limit` is that of this shell."""
    needed = workers * _FILES_PER_WORKER + _FILES_BESIDES
    said = f"{limit:,} open files allowed; {workers:,} workers need about {needed:,}"
    if limit < needed:
        return problem(
            "files",
            said,
            why="a manager that may not open more files cannot start its workers",
            fix=f"ulimit -n {needed}, or LimitNOFILE={needed} in the unit of systemd",
        )
    return fine("files", said)


def memory(pools: Iterable[PoolSpec], total: int) -> list[Finding]:
    """Whether the limits of all workers together are within the machine's memory."""
    limited = [pool for pool in pools if pool.memory is not None]
    if not limited or not total:
        return [fine("memory", f"{spoken_size(total)} of memory; no pool has a limit")] if total else []
    most = sum(pool.max_workers * (pool.memory or 0) for pool in limited)
    least = sum(pool.min_workers * (pool.memory or 0) for pool in limited)
    said = f"the pools' limits come to {spoken_size(most)} of {spoken_size(total)}"
    if least > total:
        return [
            problem(
                "memory",
                said,
                why="even the fewest workers may together use more than there is; the system then kills any process",
                fix="lower memory or workers of " + ", ".join(pool.name for pool in limited),
            )
        ]
    if most > total:
        return [
            warning(
                "memory",
                said,
                why="scaled up, the workers may together use more than there is",
                fix="lower memory or the most workers of " + ", ".join(pool.name for pool in limited),
            )
        ]
    return [fine("memory", said)]


def skew(distance: Span, uncertain: Span) -> Finding:
    """How far this host's clock is from the store's; `uncertain` is how long the question travelled."""
    apart = max(abs(distance) - uncertain, 0)
    if apart <= _SKEW_WARNING:
        return fine("clock", f"this host's clock is within {spoken(max(_SKEW_WARNING, abs(distance)))} of the store's")
    said = f"this host's clock is {spoken(apart)} {'ahead of' if distance > 0 else 'behind'} the store's"
    why = "the store's clock decides what is due and who is alive; commands on this host judge by their own"
    fix = "set this host's and the server's clocks by NTP (chrony, systemd-timesyncd)"
    report = problem if apart > _SKEW_PROBLEM else warning
    return report("clock", said, why=why, fix=fix)


def _managers(scene: Scene, fleet: Sequence[Managed], now: Moment) -> Iterator[Finding]:
    waiting = sum(queue.waiting for queue in scene.queues)
    if fleet:
        hosts = Counter(one.host for one in fleet)
        yield fine("managers", f"{_count(len(fleet), 'manager')} on {_listed(hosts)}")
    elif waiting:
        yield problem(
            "managers",
            f"no manager is running; {_waiting(waiting)}",
            why="nobody claims them",
            fix="pitboss up",
        )
    else:
        yield warning("managers", "no manager is running", why="tasks that are put will wait", fix="pitboss up")
    for session in scene.sessions:
        if session.info.kind == "manager" and not session.ended and session.expires_at <= now:
            yield _died(managed(session), now)
    for one in fleet:
        left, ttl = one.session.expires_at - now, one.session.info.ttl
        if left < ttl * _MISSED_SHARE:
            yield warning(
                "managers",
                f"{one.name} did not renew its session for {spoken(ttl - left)} of {spoken(ttl)}",
                why="it is overloaded, frozen, or cannot reach the store; at the end its tasks go to others",
                fix="look at its host's load and at its log",
            )


def _died(manager: Managed, now: Moment) -> Finding:
    ago = spoken(max(now - manager.session.expires_at, SECOND))
    return warning(
        "managers",
        f"{manager.name} died {ago} ago: its session ended without a goodbye",
        why="it was killed, its host went down, or it was cut off from the store",
        fix=f"look at {manager.host}, and start it there again; its tasks went to others",
    )


def _releases(scene: Scene, fleet: Sequence[Managed]) -> Iterator[Finding]:
    found = Counter(one.told.version for one in fleet if one.told.version)
    if len(found) > 1:
        yield warning(
            "releases",
            "managers run different releases: " + ", ".join(f"{found[name]} × {name}" for name in sorted(found)),
            why="a deploy is under way, or was not finished",
            fix="bring all hosts to one release",
        )
    elif found and scene.release and scene.release not in found:
        yield warning(
            "releases",
            f"managers run release {next(iter(found))}; this command is of {scene.release}",
            why="this host was upgraded, and the managers were not, or the other way round",
            fix="use one release everywhere",
        )
    elif found:
        yield fine("releases", f"all managers run {next(iter(found))}")


def _workers(fleet: Sequence[Managed]) -> Iterator[Finding]:
    given_up = [(place, worker) for place in places(fleet) for worker in place.crashed]
    for place, worker in given_up[:_SHOWN]:
        yield problem(
            "workers",
            f"worker {worker.name} on {place.manager.host} was given up after {_count(worker.crashes, 'crash', 'es')}",
            why=worker.why or "it crashed more often than its pool allows",
            fix=f"mend the cause, then pitboss pools restart {place.pool.name}",
        )
    again = [(one, worker) for one in fleet for worker in one.told.workers if worker.state is WorkerState.RESTARTING]
    for one, worker in again[:_SHOWN]:
        yield warning(
            "workers",
            f"worker {worker.name} on {one.host} crashed and is about to be started again",
            why=worker.why or "it ended by itself",
            fix="pitboss logs says what it said last",
        )
    lives = sum(len(one.live) for one in fleet)
    if fleet and not given_up and not again:
        yield fine("workers", f"{_count(lives, 'worker')} alive")


def _queues(scene: Scene, fleet: Sequence[Managed]) -> Iterator[Finding]:
    """Only where somebody runs: without managers nothing is served, and that is said already."""
    found = places(fleet)
    if not found:
        return
    unserved = [queue for queue in scene.queues if not any(_serves(place, queue.name) for place in found)]
    for queue in (queue for queue in unserved if queue.waiting):
        yield problem(
            "queues",
            f'no pool serves queue "{queue.name}"; {_waiting(queue.waiting)} in it',
            why="every running pool names other queues",
            fix=f"add {queue.name} to the queues of a pool, or check the queue that the tasks name",
        )
    if not any(queue.waiting for queue in unserved):
        yield fine("queues", f"every queue with waiting tasks is served ({_count(len(scene.queues), 'queue')})")


def _handlers(scene: Scene, fleet: Sequence[Managed]) -> Iterator[Finding]:
    if scene.held:
        most = sorted(scene.held, key=lambda name: -scene.held[name])
        yield problem(
            "handlers",
            f"{_count(sum(scene.held.values()), 'task')} held: no live worker knows {_listed(most)}",
            why="their handlers were renamed or removed, or their app does not run here",
            fix="start the app that has them, or cancel the tasks: pitboss tasks list state:held",
        )
        return
    known = {name for one in fleet for name in one.session.info.handlers}
    lost = sorted(handler.name for handler in scene.handlers if handler.name not in known)
    if fleet and lost and known:
        yield warning(
            "handlers",
            f"{_count(len(lost), 'handler')} without a live worker: {_listed(lost)}",
            why="they were registered once, and no running manager has them; tasks put for them will be held",
            fix="start their app, unless they are gone for good",
        )
    elif fleet:
        yield fine("handlers", f"{_count(len(known), 'handler')}, each with a live worker")


def _paused(scene: Scene, fleet: Sequence[Managed]) -> Iterator[Finding]:
    for queue in (queue for queue in scene.queues if queue.paused):
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        yield warning(
            "paused",
            f'queue "{queue.name}" is paused{by}; {_waiting(queue.waiting)} in it',
            why="its tasks do not start until it is resumed",
            fix=f"pitboss queues resume {queue.name}",
        )
    pools = Counter(place.pool.name for place in places(fleet) if place.pool.paused)
    for name, count in sorted(pools.items()):
        yield warning(
            "paused",
            f'pool "{name}" is paused in {_count(count, "manager")}',
            why="its workers take no tasks until it is resumed",
            fix=f"pitboss pools resume {name}",
        )
    for one in (one for one in fleet if one.told.draining):
        yield warning(
            "paused",
            f"{one.name} drains: it takes no tasks",
            why="somebody asked for it",
            fix=f"pitboss drain --undo --manager {one.number}",
        )


def _waiting(number: int) -> str:
    return f"{_count(number, 'task')} {'waits' if number == 1 else 'wait'}"


def _serves(place: Place, queue: str) -> bool:
    return place.pool.queues is None or queue in place.pool.queues


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{ending}"
