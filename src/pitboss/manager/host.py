"""This host and the managers on it."""

import os
import socket
from pathlib import Path

from pitboss.engines.host_clock import boot_id
from pitboss.model.session import Session, SessionInfo


def identity(handlers: tuple[str, ...], ttl: int) -> SessionInfo:
    """How this manager introduces itself to the store."""
    pid = os.getpid()
    return SessionInfo(host=socket.gethostname(), boot_id=_origin(pid), pid=pid, handlers=handlers, ttl=ttl)


def name() -> str:
    return socket.gethostname()


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_dead(session: Session) -> bool:
    """Whether the session's process is certainly dead; only its own host can know."""
    info = session.info
    if info.host != socket.gethostname() or info.kind != "manager" or not info.boot_id:
        return False
    boot, found = boot_id(), _origin(info.pid)
    # Versions before this one stored the boot alone: then any process with that pid may be it.
    return found == boot or info.boot_id not in (boot, found)


def _origin(pid: int) -> str:
    """The boot of this host and the start of the process in it, in ticks, so that no other process with the same pid
    is taken for it. Ages would need two clocks that agree. Empty if the system does not name its boots."""
    boot = boot_id()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return boot
    return boot if fields[0] == "Z" or not boot else f"{boot}/{fields[19]}"
