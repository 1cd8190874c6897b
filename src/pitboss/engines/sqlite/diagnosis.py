"""Whether the store is durable: the modes of its file, its file system, its free space."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from pitboss.engines.sqlite.act import Act
from pitboss.model.finding import Finding, fine, problem, warning
from pitboss.model.host_findings import disk_space
from pitboss.model.pool import spoken_size

# File systems whose locks and shared memory do not work between hosts as SQLite's log needs them.
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "vboxsf", "fuse.")
_FORGETFUL = {"tmpfs": "memory", "ramfs": "memory", "overlay": "a container's own layer", "aufs": "a container's layer"}
_SYNCHRONOUS = ("off", "normal", "full", "extra")
_FULL = 2
_LONG_LOG = 1024**3


def modes(act: Act) -> tuple[str, int]:
    """The modes of the writer's connection: of the journal, and how a commit is forced to disk."""
    journal = act.query("PRAGMA journal_mode", ()).fetchone()[0]
    synchronous = act.query("PRAGMA synchronous", ()).fetchone()[0]
    return str(journal), int(synchronous)


def of_modes(journal: str, synchronous: int) -> Finding:
    said = f"SQLite with journal_mode={journal}, synchronous={_SYNCHRONOUS[synchronous]}"
    if journal == "wal" and synchronous >= _FULL:
        return fine("durability", said)
    return problem(
        "durability",
        said,
        why="what was acknowledged may be lost with the power, or readers and writers block each other",
        fix="let no other program change the file's modes: PRAGMA journal_mode=WAL",
    )


def of_file(path: Path) -> list[Finding]:
    """File system, free space and log. Leaves out what the system does not report."""
    found = [of_file_system(path, file_system(path))]
    with suppress(OSError):
        usage = shutil.disk_usage(path.parent)
        found.append(disk_space("disk", str(path.parent), usage.free, usage.total))
    with suppress(OSError):
        found.append(_of_log(path.with_name(path.name + "-wal").stat().st_size))
    return [finding for finding in found if finding is not None]


def of_file_system(path: Path, kind: str | None) -> Finding | None:
    if kind is None:
        return None
    if kind.startswith(_SHARED):
        return problem(
            "file-system",
            f"{path} is on a shared file system ({kind})",
            why="SQLite's locks do not hold there: the file may be damaged",
            fix="put it on a local disk; for several hosts use PostgreSQL",
        )
    if kind in _FORGETFUL:
        return warning(
            "file-system",
            f"{path} is in {_FORGETFUL[kind]} ({kind})",
            why="it is gone with the next restart of the machine or of the container",
            fix="put it on a disk, or on a volume",
        )
    return fine("file-system", f"{path} is on a local file system ({kind})")


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The kind of the file system that a path is on; None if the system does not report it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    place = os.path.realpath(path)
    best, kind = "", None
    for fields in (line.split() for line in lines):
        mount = fields[1].replace("\\040", " ")
        inside = mount in ("/", place) or place.startswith(f"{mount}/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind


def _of_log(size: int) -> Finding:
    said = f"the write-ahead log has {spoken_size(size)}"
    if size < _LONG_LOG:
        return fine("journal", said)
    return warning(
        "journal",
        said,
        why="it cannot be reused while a program keeps a read open from before",
        fix="end long reads on the file (shells, backups, viewers)",
    )
