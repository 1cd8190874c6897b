"""Forward proxies with passwords. The site sees a different address behind each of them."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import urlsplit

from scraper_demo.site import listening

_FIRST_ADDRESS = 31
_PATIENCE = 30.0
_NOT_FORWARDED = ("proxy-authorization", "proxy-connection", "connection", "host")


class ForwardProxy(NamedTuple):
    """A proxy: its place in the file, and the address that the site sees."""

    port: int
    password: str
    address: str

    @property
    def name(self) -> str:
        """As Pitboss names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def line(self) -> str:
        """A line of a proxy file: host:port:user:password."""
        return f"127.0.0.1:{self.port}:scraper:{self.password}"


@contextmanager
def forwarding(number: int) -> Iterator[list[ForwardProxy]]:
    """This number of proxies, until the end of the block."""
    with ExitStack() as stack:
        made = []
        for place in range(number):
            password, address = f"proxy-word-{place}", f"127.0.0.{_FIRST_ADDRESS + place}"
            port = stack.enter_context(listening(_handler(password, address)))
            made.append(ForwardProxy(port, password, address))
        yield made


def _handler(password: str, address: str) -> type[BaseHTTPRequestHandler]:
    wanted = f"Basic {b64encode(f'scraper:{password}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        """Forwards plain HTTP to loopback, and nothing else."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            target = urlsplit(self.path)
            if self.headers.get("Proxy-Authorization") != wanted:
                self._reply(407, b"", {"Proxy-Authenticate": 'Basic realm="proxy"'})
            elif target.scheme != "http" or target.hostname != "127.0.0.1" or target.port is None:
                self._reply(403, b"this proxy only leads to loopback", {})
            else:
                self._forward(target.port, self.path.partition(target.netloc)[2])

        def _forward(self, port: int, path: str) -> None:
            site = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE, source_address=(address, 0))
            sent = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_FORWARDED}
            try:
                site.request("GET", path, headers=sent)
                answer = site.getresponse()
                kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if answer.headers[name]}
                self._reply(answer.status, answer.read(), kept)
            except (OSError, HTTPException):
                self._reply(502, b"the site does not answer", {})
            finally:
                site.close()

        def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing: the site has the log."""

    return Handler
