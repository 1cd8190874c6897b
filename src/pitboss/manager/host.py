"""This host and its processes, as far as sessions need to know them."""

import os
import socket
from pathlib import Path

from pitboss.model.duration import SECOND
from pitboss.model.session import Session, SessionInfo


def identity(handlers: tuple[str, ...], ttl: int) -> SessionInfo:
    """Who this manager is."""
    return SessionInfo(host=socket.gethostname(), boot_id=boot_id(), pid=os.getpid(), handlers=handlers, ttl=ttl)


def name() -> str:
    return socket.gethostname()


def boot_id() -> str:
    """Changes with every start of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def is_dead(session: Session) -> bool:
    """True if the session's process surely does not live any more, as only its own host can tell."""
    info = session.info
    if info.host != socket.gethostname() or info.kind != "manager" or not info.boot_id:
        return False
    if info.boot_id != boot_id():
        return True
    started = _started_at(info.pid)
    # A process that began after the session was opened only has the same number.
    return started is None or started > session.opened_at / SECOND + 1


def _started_at(pid: int) -> float | None:
    """When a process began, in seconds since the epoch; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        system = Path("/proc/stat").read_text(encoding="ascii")
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    booted = next(float(line.split()[1]) for line in system.splitlines() if line.startswith("btime"))
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
