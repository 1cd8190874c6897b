"""Findings about a host: free disk space, open files, memory, and the distance of its clock from the store's."""

from collections.abc import Iterable

from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.pool import PoolSpec, spoken_size

_MEGA = 1024**2
# Free space below these is a warning, or a problem. On a large disk the share counts, on a small one the size.
_LITTLE, _LITTLE_SHARE = 1024 * _MEGA, 0.05
_NONE, _NONE_SHARE = 100 * _MEGA, 0.01
# A manager has a socket, a watch and a log for each worker, and twice of them while workers are replaced.
_FILES_PER_WORKER, _FILES_BESIDES = 8, 128
_SKEW_WARNING: Span = SECOND
_SKEW_PROBLEM: Span = 5 * SECOND


def disk_space(check: str, folder: str, free: int, total: int) -> Finding:
    """Whether the disk that a folder is on has space left."""
    said = f"{spoken_size(free)} of {spoken_size(total)} free at {folder}"
    if free < max(_NONE, min(_NONE_SHARE * total, _LITTLE)):
        return problem(check, said, why="writes will be refused or lost", fix="free some space now")
    if free < max(_LITTLE, min(_LITTLE_SHARE * total, 10 * _LITTLE)):
        return warning(check, said, why="a backlog or a busy log may fill it", fix="free some space, or move it")
    return fine(check, said)


def open_files(limit: int, workers: int) -> Finding:
    """Whether a manager with that many workers may open enough files; `limit` is this shell's."""
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


def memory_limits(pools: Iterable[PoolSpec], total: int) -> list[Finding]:
    """Whether the memory limits of all workers together fit into the machine's memory."""
    limited = [pool for pool in pools if pool.memory is not None]
    if not limited or not total:
        return [fine("memory", f"{spoken_size(total)} of memory; no worker pool has a limit")] if total else []
    most = sum(pool.max_workers * (pool.memory or 0) for pool in limited)
    least = sum(pool.min_workers * (pool.memory or 0) for pool in limited)
    said = f"the memory limits of the worker pools add up to {spoken_size(most)} of {spoken_size(total)}"
    names = ", ".join(pool.name for pool in limited)
    if least > total:
        why = "even the minimum of workers may use more than the host has; the system then kills any process"
        return [problem("memory", said, why=why, fix=f"lower memory or workers of {names}")]
    if most > total:
        why = "scaled up, the workers may use more than the host has"
        return [warning("memory", said, why=why, fix=f"lower memory or the maximum of workers of {names}")]
    return [fine("memory", said)]


def clock_step(ahead: Span) -> Finding:
    """Whether the store's clock shows the time of day; `ahead` is how far the wall clock is ahead of it."""
    if abs(ahead) <= _SKEW_WARNING:
        return fine("clock", "the store's clock shows the time of day")
    return warning(
        "clock",
        f"stored times are {spoken(abs(ahead))} {'behind' if ahead > 0 else 'ahead of'} the time of day",
        why="a clock was set; the store's clock went on as before, so that limits and delays hold",
        fix="nothing needs to be done; a SQLite store shows the time of day again after the next boot of the host",
    )


def clock_skew(distance: Span, uncertain: Span) -> Finding:
    """How far this host's clock is from the server's; `uncertain` is how long the question took to travel."""
    apart = max(abs(distance) - uncertain, 0)
    if apart <= _SKEW_WARNING:
        return fine("clock", f"this host's clock is within {spoken(max(_SKEW_WARNING, abs(distance)))} of the server's")
    said = f"this host's clock is {spoken(apart)} {'ahead of' if distance > 0 else 'behind'} the server's"
    why = "the server's clock decides when a task with a time of day is due; logs here are by this host's"
    fix = "set this host's and the server's clocks by NTP (chrony, systemd-timesyncd)"
    report = problem if apart > _SKEW_PROBLEM else warning
    return report("clock", said, why=why, fix=fix)
