"""Tells systemd how the service is doing: ready, reloading, stopping, alive. One datagram each, without a library.

The format is that of sd_notify(3). Without systemd nothing is sent. A message that cannot be sent is dropped: it must
not stop the manager.
"""

import asyncio
import contextlib
import socket
import time

from pitboss.config import ServiceManager
from pitboss.model.duration import SECOND

_BEATS_PER_LIMIT = 2


class Notifier:
    """Sends messages to the service manager, if there is one."""

    def __init__(self, manager: ServiceManager) -> None:
        self._watchdog = manager.watchdog
        self._address = _address(manager.address)
        self._socket: socket.socket | None = None
        self._status = ""
        if self._address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def listening(self) -> bool:
        return self._socket is not None

    def ready(self, status: str = "") -> None:
        """Started or reloaded."""
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent only if it has changed."""
        if text != self._status:
            self._status = text
            self._send(_status(text))

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it."""
        # systemd needs the time on the kernel's monotonic clock, to recognize old messages.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", _status(status))

    async def beat(self) -> None:
        """Send a sign of life twice within systemd's limit, as long as the event loop runs."""
        if self._watchdog is None or self._socket is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / SECOND / _BEATS_PER_LIMIT)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is None or self._address is None:
            return
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(line for line in lines if line).encode(), self._address)


def _address(text: str | None) -> str | None:
    """A path, or a name in the abstract namespace (@); other kinds of address are not for services."""
    if text is None or not text.startswith(("/", "@")):
        return None
    return f"\0{text[1:]}" if text.startswith("@") else text


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}" if text else ""
