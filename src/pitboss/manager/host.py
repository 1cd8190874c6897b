"""This host and the managers on it."""

import os
import socket
from pathlib import Path

from pitboss.model.duration import SECOND
from pitboss.model.session import Session, SessionInfo


def identity(handlers: tuple[str, ...], ttl: int) -> SessionInfo:
    """How this manager introduces itself to the store."""
    return SessionInfo(host=socket.gethostname(), boot_id=boot_id(), pid=os.getpid(), handlers=handlers, ttl=ttl)


def name() -> str:
    return socket.gethostname()


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def boot_id() -> str:
    """Changes with every start of the machine; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def is_dead(session: Session) -> bool:
    """Whether the session's process is certainly dead; only its own host can know."""
    info = session.info
    if info.host != socket.gethostname() or info.kind != "manager" or not info.boot_id:
        return False
    if info.boot_id != boot_id():
        return True
    started = _started_at(info.pid)
    # A process that started after the session was opened only has the same pid.
    return started is None or started > session.opened_at / SECOND + 1


def _started_at(pid: int) -> float | None:
    """When a process started, in seconds since the epoch; None if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        system = Path("/proc/stat").read_text(encoding="ascii")
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    booted = next(float(line.split()[1]) for line in system.splitlines() if line.startswith("btime"))
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
