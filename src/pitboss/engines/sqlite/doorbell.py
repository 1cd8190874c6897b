"""Doorbells: a process that put work wakes those that wait for it, in every process. A lost ring costs only time.

Every engine that claims or waits has a datagram socket in the store's side folder; a ring is one datagram of queue
names to each of them. An engine reads its socket only while it waits: a busy engine is not disturbed, and once its
socket is full, further rings cost one refused system call.
"""

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

_SUFFIX = ".bell"
_LONGEST_ADDRESS = 100
_LONGEST_RING = 4096
# As many datagrams as Linux keeps by default: from then on others may have been refused, for any queue.
_PERHAPS_FULL = 10
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Doorbell:
    """The doorbell of one engine: its own rings and those of others arrive here. Any loop, any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mutex = threading.Lock()
        self._rung: set[str] = set()
        self._rung_all = False
        self._waiters: set[_Waiter] = set()
        self._readers: dict[asyncio.AbstractEventLoop, int] = {}
        self._folder_fd: int | None = None
        self._name = ""
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None

    def open(self) -> None:
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sender = _datagrams()

    def close(self) -> None:
        self.ring_here((), everywhere=True)
        with self._mutex:
            sender, self._sender = self._sender, None
            folder_fd, self._folder_fd = self._folder_fd, None
            if self._receiver is not None:
                (self._folder / self._name).unlink(missing_ok=True)
            self._close_unused_receiver()
        if sender is not None:
            sender.close()
        if folder_fd is not None:
            os.close(folder_fd)

    def listen(self) -> None:
        """From now on rings of other engines reach this one."""
        if self._receiver is not None:
            return
        with self._mutex:
            if self._receiver is None and self._folder_fd is not None:
                self._receiver = self._bound(self._folder_fd)

    def ring(self, queues: Iterable[str]) -> None:
        """Wake those that wait for these queues, in this process and in others."""
        names = set(queues)
        if names:
            self.ring_here(names)
            self._ring_others(names)

    def ring_here(self, queues: Iterable[str], *, everywhere: bool = False) -> None:
        with self._mutex:
            self._rung.update(queues)
            self._rung_all = self._rung_all or everywhere
            waiters = list(self._waiters)
        for loop, event in waiters:
            _wake(loop, event)

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        self.listen()
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._mutex:
            self._waiters.add((loop, event))
        self._add_reader(loop)
        try:
            async with asyncio.timeout(timeout):
                self._receive()
                while not self._heard(queues):
                    event.clear()
                    await event.wait()
                return True
        except TimeoutError:
            return False
        finally:
            self._remove_reader(loop)
            with self._mutex:
                self._waiters.discard((loop, event))

    def _heard(self, queues: Sequence[str] | None) -> bool:
        with self._mutex:
            heard = set(self._rung) if queues is None else self._rung.intersection(queues)
            self._rung -= heard
            everywhere, self._rung_all = self._rung_all, False
            return everywhere or bool(heard)

    def _add_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            waiting = self._readers.get(loop, 0)
            self._readers[loop] = waiting + 1
            if waiting == 0 and self._receiver is not None:
                loop.add_reader(self._receiver.fileno(), self._receive)

    def _remove_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            self._readers[loop] -= 1
            if self._readers[loop] == 0:
                del self._readers[loop]
                if self._receiver is not None:
                    loop.remove_reader(self._receiver.fileno())
            self._close_unused_receiver()

    def _close_unused_receiver(self) -> None:
        """After closing, when the last waiter leaves: a loop must not watch a descriptor that was closed and reused."""
        if self._folder_fd is None and self._receiver is not None and not self._readers:
            self._receiver.close()
            self._receiver = None

    def _receive(self) -> None:
        receiver, names, seen = self._receiver, set[str](), 0
        while receiver is not None:
            try:
                data = receiver.recv(_LONGEST_RING)
            except OSError:
                break
            seen += 1
            names.update(data.decode("utf-8", "replace").split("\n"))
        if seen:
            self.ring_here(names, everywhere=seen >= _PERHAPS_FULL or "" in names)

    def _ring_others(self, names: set[str]) -> None:
        text = "\n".join(sorted(names)).encode()
        data = text if len(text) <= _LONGEST_RING else b""
        with self._mutex:
            folder_fd, sender = self._folder_fd, self._sender
            if folder_fd is None or sender is None:
                return
            with contextlib.suppress(OSError):
                for entry in os.scandir(folder_fd):
                    if entry.name.endswith(_SUFFIX) and entry.name != self._name:
                        self._send(sender, folder_fd, entry.name, data)

    def _send(self, sender: socket.socket, folder_fd: int, entry: str, data: bytes) -> None:
        try:
            sender.sendto(data, self._address(folder_fd, entry))
        except ConnectionRefusedError:
            (self._folder / entry).unlink(missing_ok=True)
        except OSError:
            return  # full, or removed just now

    def _bound(self, folder_fd: int) -> socket.socket | None:
        receiver = _datagrams()
        for number in count():
            name = f"{os.getpid()}-{number}{_SUFFIX}"
            try:
                receiver.bind(self._address(folder_fd, name))
            except FileExistsError:
                continue
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                receiver.close()
                return None  # no sockets on this file system: the poll finds the work
            self._name = name
            return receiver
        return None

    def _address(self, folder_fd: int, name: str) -> str:
        """The system limits the length of socket paths; a long folder is reached through its descriptor."""
        path = str(self._folder / name)
        return path if len(os.fsencode(path)) <= _LONGEST_ADDRESS else f"/proc/self/fd/{folder_fd}/{name}"


def _datagrams() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    return made


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)
