"""A TCP relay in front of a server of the tests, which can cut its connections or fall silent."""

import socket
import threading
from contextlib import suppress
from typing import Self

MOST_BYTES = 65536


class Relay:
    """Forwards to `port` on this host. It keeps nothing in order by itself: one thread for each direction."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        # Clear: bytes are read from both sides and thrown away.
        self._forwards = threading.Event()
        self._forwards.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections, on both sides."""
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """Connections stay open, and nothing gets through any more."""
        self._forwards.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                # The server is down, and may come back.
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            self._open.add(source)
        try:
            while got := source.recv(MOST_BYTES):
                if self._forwards.is_set():
                    target.sendall(got)
        except OSError:
            return
        finally:
            with self._lock:
                self._open.discard(source)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            source.close()
