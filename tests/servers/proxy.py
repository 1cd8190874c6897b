"""A stand-in for a proxy and for the site behind it: it logs each request and answers by itself, well or badly."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

TLS_HELLO = b"\x16"
HEADERS_END = b"\r\n\r\n"
MOST_BYTES = 65536


class Request(NamedTuple):
    """A request as it arrived. `connection` counts the accepted connections from 1; `at` is a monotonic time."""

    method: str
    target: str
    headers: Mapping[str, str]
    connection: int
    at: float


Answer = Callable[[Request], bytes | None]


def page(body: str = "hello", status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


def truncated() -> bytes:
    return page("hello").replace(b"Content-Length: 5", b"Content-Length: 500")


class StandIn:
    """A TCP server in threads. `answer` says what to send for a request; None closes the connection without a word.

    An answer that does not keep to its Content-Length ends its connection. CONNECT is answered like any request, unless
    `tunnels`: then the proxy opens a tunnel to itself, with TLS if it has a `certificate`.
    """

    def __init__(
        self, answer: Answer | None = None, *, tunnels: bool = False, certificate: ssl.SSLContext | None = None
    ) -> None:
        self.answer: Answer = answer or (lambda request: page())
        # How many seconds a request needs to arrive after it was received: a slow proxy, or a busy site.
        self.arrival: Callable[[], float] = lambda: 0.0
        self.requests: list[Request] = []
        self.connections = 0
        self._tunnels, self._tls = tunnels, certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        # Wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            threading.Thread(target=self._serve, args=(client, self.connections), daemon=True).start()

    def _serve(self, client: socket.socket, number: int) -> None:
        with self._lock:
            self._open.add(client)
        try:
            while (head := _head(client)) is not None:
                request = _request(head, number)
                if request.method == "CONNECT" and self._tunnels:
                    client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                    if self._tls is not None:
                        with self._lock:
                            self._open.discard(client)
                        client = self._tls.wrap_socket(client, server_side=True)
                    continue
                if delay := self.arrival():
                    time.sleep(delay)
                    request = request._replace(at=time.monotonic())
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    return
                client.sendall(answer)
                if not _is_whole(answer):
                    return
        except OSError:
            return
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()


def stall(stand_in: StandIn) -> Answer:
    """Answers nothing until the server ends."""

    def wait(request: Request) -> None:
        stand_in.stopped.wait(30)

    return wait


def refused_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _head(client: socket.socket) -> bytes | None:
    got = b""
    while HEADERS_END not in got:
        more = client.recv(MOST_BYTES)
        got += more
        if not more or got.startswith(TLS_HELLO):
            return None
    head, _, body = got.partition(HEADERS_END)
    missing = int(_fields(head).get("content-length", 0)) - len(body)
    while missing > 0 and (more := client.recv(MOST_BYTES)):
        missing -= len(more)
    return head


def _request(head: bytes, connection: int) -> Request:
    method, target, _ = head.decode("latin-1").split("\r\n", 1)[0].split(" ", 2)
    return Request(method, target, _fields(head), connection, time.monotonic())


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(HEADERS_END)
    return bool(end) and len(body) == int(_fields(head).get("content-length", -1))
