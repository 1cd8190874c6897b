"""A broker's URL, amqp://user:password@host:port/vhost, as the driver's settings."""

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec
import pika

from pitboss.model.errors import InvalidInput

CONNECT_SECONDS = 5.0
# The driver looks for signs of life every 5 s more than this: a frozen broker is noticed within 20 s (10: within 30).
HEARTBEAT_SECONDS = 5
# A cut network gives no answer at all: this is how long a heartbeat may stay unacknowledged.
_TCP = {"TCP_USER_TIMEOUT": 15_000, "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}
_PORTS = {"amqp": 5672, "amqps": 5671}
_GUEST = "guest"
# The names that RabbitMQ's own URLs have for them.
_FILES = frozenset({"cacertfile", "certfile", "keyfile"})


class Address(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    vhost: str
    user: str
    password: str
    files: Mapping[str, str]
    tls: bool

    def __str__(self) -> str:
        return f'{self.host}:{self.port}, virtual host "{self.vhost}"'

    def settings(self, name: str) -> Any:
        """The driver's settings. `name` is how `rabbitmqctl list_connections` shows the connection."""
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.user, self.password),
            ssl_options=pika.SSLOptions(self._tls_context(), self.host) if self.tls else None,
            heartbeat=HEARTBEAT_SECONDS,
            socket_timeout=CONNECT_SECONDS,
            stack_timeout=CONNECT_SECONDS,
            tcp_options=_TCP,
            client_properties={"product": "Pitboss", "connection_name": name},
        )

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.files.get("cacertfile"))
            if "certfile" in self.files:
                context.load_cert_chain(self.files["certfile"], self.files.get("keyfile"))
        except OSError as error:
            raise InvalidInput(
                f"the certificates for {self.host}:{self.port} cannot be read",
                why=f"{error}",
                fix="check the files cacertfile, certfile and keyfile in the broker's URL",
            ) from error
        return context


def address(url: str) -> Address:
    """Nothing of a URL that cannot be read is shown: a part of the password may stand anywhere in it."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise _unreadable("it is not a URL with the scheme amqp or amqps, or its port is not a number") from None
    if not parts.hostname:
        raise _unreadable("it has no host")
    return Address(
        host=parts.hostname,
        port=port,
        vhost=unquote(parts.path[1:]) or "/",
        user=unquote(_GUEST if parts.username is None else parts.username),
        password=unquote(_GUEST if parts.password is None else parts.password),
        files=_files(parts),
        tls=parts.scheme == "amqps",
    )


def _files(parts: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - _FILES:
        raise _unreadable(f"it has unknown options: {', '.join(sorted(unknown))}")
    return options


def _unreadable(why: str) -> InvalidInput:
    return InvalidInput(
        "the broker's URL cannot be read",
        why=why,
        fix="write it like amqp://user:password@host:5672/vhost (amqps:// with TLS); "
        "special characters in a part are percent-encoded, such as %2F for / and %40 for @",
    )
