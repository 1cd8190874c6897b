"""A disk that can lose power: it knows what was synced, and what was only written and may survive in part.

What survives is decided per sector, because that is what a disk writes as a whole. The rules are those that a file may
rely on and no kinder: unsynced sectors reach the disk in any order or not at all, the length of a file is kept apart
from its content, and a name is safe only after its folder was synced.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

SECTORS = (512, 4096)


class Write(NamedTuple):
    file: str
    offset: int
    data: bytes


class Resize(NamedTuple):
    file: str
    size: int


class Create(NamedTuple):
    file: str


class Remove(NamedTuple):
    file: str


class SyncBegun(NamedTuple):
    file: str
    thread: int


class SyncDone(NamedTuple):
    file: str
    thread: int


class FolderSynced(NamedTuple):
    pass


class Note(NamedTuple):
    """Not on this disk: a line that the traced process wrote to its history."""

    data: bytes


Op = Write | Resize | Create | Remove | SyncBegun | SyncDone | FolderSynced | Note
Image = dict[str, bytes]


@dataclass
class _Inode:
    """One file's content: what is safe, and the changes behind it."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[Write | Resize] = field(default_factory=list)
    flushed: int = 0

    @property
    def position(self) -> int:
        return self.flushed + len(self.pending)

    def flush(self, position: int) -> None:
        count = max(0, position - self.flushed)
        for op in self.pending[:count]:
            _apply(self.safe, op)
        del self.pending[:count]
        self.flushed += count


class Disk:
    """Apply what a process did; ask at any moment what would be left without power."""

    def __init__(self, image: Image | None = None) -> None:
        safe = {name: _Inode(bytearray(data)) for name, data in (image or {}).items()}
        self._safe_names: dict[str, _Inode] = safe
        self._names: dict[str, _Inode] = dict(safe)
        self._renamed: list[tuple[str, _Inode | None]] = []
        self._syncs: dict[int, tuple[_Inode, int]] = {}

    def apply(self, op: Op) -> None:
        match op:
            case Write(file) | Resize(file):
                self._names[file].pending.append(op)
            case Create(file) if file not in self._names:
                self._name(file, _Inode())
            case Remove(file):
                self._name(file, None)
            case SyncBegun(file, thread):
                inode = self._names[file]
                self._syncs[thread] = (inode, inode.position)
            case SyncDone(_, thread):
                inode, position = self._syncs.pop(thread)
                inode.flush(position)
            case FolderSynced():
                self._safe_names = dict(self._names)
                self._renamed.clear()
            case _:
                pass

    def unsynced(self) -> int:
        """How many changes are not safe."""
        return len(self._renamed) + sum(len(inode.pending) for inode in self._names.values())

    def without_power(self, rng: Random) -> Image:
        """What is left. Names are lost from the newest on; content in one of several ways."""
        names = dict(self._safe_names)
        for name, inode in self._renamed[: rng.randint(0, len(self._renamed))]:
            _set(names, name, inode)
        way = rng.choice((_nothing, _everything, _until, _scattered, _scattered, _scattered))
        return {name: way(inode, rng) for name, inode in names.items()}

    def _name(self, file: str, inode: _Inode | None) -> None:
        _set(self._names, file, inode)
        self._renamed.append((file, inode))


def _set(names: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _nothing(inode: _Inode, _: Random) -> bytes:
    return bytes(inode.safe)


def _everything(inode: _Inode, _: Random) -> bytes:
    return _until_op(inode, len(inode.pending))


def _until(inode: _Inode, rng: Random) -> bytes:
    """In the order of writing, the last one torn."""
    count = rng.randint(0, len(inode.pending))
    content = bytearray(_until_op(inode, count))
    if count < len(inode.pending):
        op = inode.pending[count]
        if isinstance(op, Write):
            sectors = list(_sectors(op, rng.choice(SECTORS)))
            for sector in sectors[: rng.randint(0, len(sectors))]:
                _apply(content, sector)
    return bytes(content)


def _scattered(inode: _Inode, rng: Random) -> bytes:
    """Each sector as it was at a moment of its own, and the length as it was at another."""
    ops, size = inode.pending, rng.choice(SECTORS)
    kept = rng.random()
    moments: dict[int, int] = {}
    lengths = _lengths(inode)
    content = bytearray(inode.safe)
    longest = max(lengths)
    content += bytes(longest - len(content)) if rng.random() < 0.5 else rng.randbytes(longest - len(content))
    for number, op in enumerate(ops):
        if isinstance(op, Resize):
            continue
        for sector in _sectors(op, size):
            place = sector.offset // size
            if place not in moments:
                moments[place] = len(ops) if rng.random() < kept else rng.randint(0, len(ops))
            if number < moments[place]:
                _apply(content, sector)
    return bytes(content[: rng.choice((lengths[-1], lengths[0], rng.choice(lengths)))])


def _until_op(inode: _Inode, count: int) -> bytes:
    content = bytearray(inode.safe)
    for op in inode.pending[:count]:
        _apply(content, op)
    return bytes(content)


def _lengths(inode: _Inode) -> list[int]:
    lengths = [len(inode.safe)]
    for op in inode.pending:
        lengths.append(op.size if isinstance(op, Resize) else max(lengths[-1], op.offset + len(op.data)))
    return lengths


def _sectors(op: Write, size: int) -> Iterator[Write]:
    start, end = op.offset, op.offset + len(op.data)
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield Write(op.file, start, op.data[start - op.offset : stop - op.offset])
        start = stop


def _apply(content: bytearray, op: Write | Resize) -> None:
    if isinstance(op, Resize):
        content[op.size :] = bytes(max(0, op.size - len(content)))
        return
    if op.offset > len(content):
        content += bytes(op.offset - len(content))
    content[op.offset : op.offset + len(op.data)] = op.data
