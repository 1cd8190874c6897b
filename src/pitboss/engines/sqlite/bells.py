"""Doorbells: who put work in tells who waits for it, in this process and in others. A lost ring costs only time.

Every engine that claims or waits has a datagram socket in the store's side folder; a ring is one datagram of queue
names to each of them. Nobody reads the socket while nobody waits: a busy engine is not disturbed, and its full socket
makes further rings cost one refused system call.
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
# As many datagrams as Linux keeps by default: after so many, others may have been refused, whatever queue they named.
_PERHAPS_FULL = 10
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Bells:
    """The bells of one engine: rings of its own and of others arrive here. Any loop, any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mutex = threading.Lock()
        self._rung: set[str] = set()
        self._rung_all = False
        self._waiters: set[_Waiter] = set()
        self._readers: dict[asyncio.AbstractEventLoop, int] = {}
        self._place: int | None = None
        self._name = ""
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None

    def open(self) -> None:
        self._place = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._mouth = _datagrams()

    def close(self) -> None:
        self.ring_here((), everywhere=True)
        with self._mutex:
            mouth, self._mouth = self._mouth, None
            place, self._place = self._place, None
            if self._ear is not None:
                (self._folder / self._name).unlink(missing_ok=True)
            self._close_unused_ear()
        if mouth is not None:
            mouth.close()
        if place is not None:
            os.close(place)

    def listen(self) -> None:
        """From now on rings of other engines reach this one."""
        if self._ear is not None:
            return
        with self._mutex:
            if self._ear is None and self._place is not None:
                self._ear = self._bound(self._place)

    def ring(self, queues: Iterable[str]) -> None:
        """Wake who waits for these queues, here and elsewhere."""
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
        self._attend(loop)
        try:
            async with asyncio.timeout(timeout):
                self._drain()
                while not self._heard(queues):
                    event.clear()
                    await event.wait()
                return True
        except TimeoutError:
            return False
        finally:
            self._leave(loop)
            with self._mutex:
                self._waiters.discard((loop, event))

    def _heard(self, queues: Sequence[str] | None) -> bool:
        with self._mutex:
            heard = set(self._rung) if queues is None else self._rung.intersection(queues)
            self._rung -= heard
            everywhere, self._rung_all = self._rung_all, False
            return everywhere or bool(heard)

    def _attend(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            waiting = self._readers.get(loop, 0)
            self._readers[loop] = waiting + 1
            if waiting == 0 and self._ear is not None:
                loop.add_reader(self._ear.fileno(), self._drain)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            self._readers[loop] -= 1
            if self._readers[loop] == 0:
                del self._readers[loop]
                if self._ear is not None:
                    loop.remove_reader(self._ear.fileno())
            self._close_unused_ear()

    def _close_unused_ear(self) -> None:
        """After closing, by whoever leaves last: a loop must not watch a descriptor that may be another's by then."""
        if self._place is None and self._ear is not None and not self._readers:
            self._ear.close()
            self._ear = None

    def _drain(self) -> None:
        ear, names, seen = self._ear, set[str](), 0
        while ear is not None:
            try:
                data = ear.recv(_LONGEST_RING)
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
            place, mouth = self._place, self._mouth
            if place is None or mouth is None:
                return
            with contextlib.suppress(OSError):
                for entry in os.scandir(place):
                    if entry.name.endswith(_SUFFIX) and entry.name != self._name:
                        self._send(mouth, place, entry.name, data)

    def _send(self, mouth: socket.socket, place: int, entry: str, data: bytes) -> None:
        try:
            mouth.sendto(data, self._address(place, entry))
        except ConnectionRefusedError:
            (self._folder / entry).unlink(missing_ok=True)
        except OSError:
            return  # full, or gone in this moment

    def _bound(self, place: int) -> socket.socket | None:
        ear = _datagrams()
        for number in count():
            name = f"{os.getpid()}-{number}{_SUFFIX}"
            try:
                ear.bind(self._address(place, name))
            except FileExistsError:
                continue
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                ear.close()
                return None  # no bell on this file system: the poll behind it finds the work
            self._name = name
            return ear
        return None

    def _address(self, place: int, name: str) -> str:
        """Socket paths are short by law of the system; a long folder is reached through its descriptor."""
        path = str(self._folder / name)
        return path if len(os.fsencode(path)) <= _LONGEST_ADDRESS else f"/proc/self/fd/{place}/{name}"


def _datagrams() -> socket.socket:
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    ear.setblocking(False)
    return ear


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
        loop.call_soon_threadsafe(event.set)
