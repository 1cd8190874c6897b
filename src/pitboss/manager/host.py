"""This host and the managers on it."""

import os
import socket
from pathlib import Path

from pitboss.engines.host_clock import boot_id, uptime
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.session import Session, SessionInfo


def identity(handlers: tuple[str, ...], ttl: int) -> SessionInfo:
    """How this manager introduces itself to the store."""
    return SessionInfo(host=socket.gethostname(), boot_id=boot_id(), pid=os.getpid(), handlers=handlers, ttl=ttl)


def name() -> str:
    return socket.gethostname()


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_dead(session: Session, now: Moment) -> bool:
    """Whether the session's process is certainly dead; only its own host can know. `now` is the store's."""
    info = session.info
    if info.host != socket.gethostname() or info.kind != "manager" or not info.boot_id:
        return False
    if info.boot_id != boot_id():
        return True
    started = _started_at(info.pid)
    # A process that is younger than the session only has the same pid. Ages do not change when a clock is set.
    return started is None or uptime() - started < now - session.opened_at - SECOND


def _started_at(pid: int) -> Span | None:
    """The uptime at which a process started; None if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19]) * SECOND // os.sysconf("SC_CLK_TCK")
