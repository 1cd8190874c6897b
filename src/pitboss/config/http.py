"""The HTTP API: its settings, and what its server process is told at the start."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_settings import NoDecode

from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window, rate
from pitboss.model.log_settings import LogSettings
from pitboss.model.pool import size
from pitboss.model.pool_keys import NO_LIMIT

ANY_ORIGIN = "*"
TLS_PAIR = ("http.tls_cert", "http.tls_key")
_ORIGIN = re.compile(r"https?://[^\s/,*]+\Z")
_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+\Z")
_WITH_PORT = re.compile(r"[^:]+:\d*\Z")
_LOCAL = "localhost"
_MOST_PORT = 65_535


def _host(value: Any) -> Any:
    """A name or an address. Brackets around an IPv6 address belong to a URL."""
    if not isinstance(value, str):
        return value
    host = value.strip().removeprefix("[").removesuffix("]")
    if not host or "/" in host or " " in host or _WITH_PORT.match(host):
        raise InvalidInput(
            f"{value!r:.60} is not a host",
            why="it is a name or an address of this machine, without a port",
            fix='write "127.0.0.1" for this machine only, "0.0.0.0" for all of its addresses',
        )
    return host


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        raise InvalidInput(f"{value} is not a port", why="it is true or false", fix="write a whole number")
    return value


def _origins(value: Any) -> Any:
    """A list of origins, or text with commas."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return parts
    for one in parts:
        if isinstance(one, str) and one != ANY_ORIGIN and not _ORIGIN.match(one):
            raise InvalidInput(
                f"{one!r:.60} is not an origin",
                why="an origin is the scheme and host of a web page, with its port and without a path",
                fix='write it like "https://dash.example.org", or "*" for the pages of every site',
            )
    return tuple(parts)


def _names(value: Any) -> Any:
    """A list of host names, or text with commas."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(one if one == ANY_ORIGIN else _host(one).lower() if isinstance(one, str) else one for one in parts)


def _base_path(value: Any) -> Any:
    """Without the slash at its end; "/" alone is none."""
    if not isinstance(value, str):
        return value
    path = value.strip().rstrip("/")
    if path and not _BASE_PATH.match(path):
        raise InvalidInput(
            f"{value!r:.60} is not a base path",
            why="it is the beginning of a path, without a host and without a query",
            fix='write it like "/pitboss"',
        )
    return path


def _rate_limit(value: Any) -> str | None:
    if value is None or value == NO_LIMIT:
        return None
    if len(rate(str(value))) > 1:
        raise InvalidInput(
            f"{value!r:.60} has several windows",
            why="the headers of an answer describe one",
            fix='write one, such as "100/60s"',
        )
    return str(value)


class HttpSettings(BaseModel):
    """The table [http]. `port` 0 is a free one; `origins` are the web pages that a browser lets use the API.
    `hosts` are names under which a browser may ask for the dashboard; `base_path` is what a proxy puts before it.
    `environment` is shown beside its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    host: Annotated[str, BeforeValidator(_host)] = "127.0.0.1"
    port: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=_MOST_PORT)] = 8000
    tls_cert: str | None = Field(default=None, min_length=1)
    tls_key: str | None = Field(default=None, min_length=1)
    origins: Annotated[tuple[str, ...], BeforeValidator(_origins), NoDecode] = ()
    hosts: Annotated[tuple[str, ...], BeforeValidator(_names), NoDecode] = ()
    base_path: Annotated[str, BeforeValidator(_base_path)] = ""
    environment: Annotated[str, Field(max_length=20)] = ""
    rate_limit: Annotated[str | None, PlainValidator(_rate_limit)] = None
    max_body: Annotated[int, PlainValidator(size)] = size("1MB")


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager tells its server process. `manager` is the manager's pid, which the manager itself fills in.

    The URL of the store may have a password: do not show it, and do not pass it on a command line.
    """

    store: str
    manager: int = 0
    host: str = "127.0.0.1"
    port: int = 8000
    tls_cert: str | None = None
    tls_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    base_path: str = ""
    environment: str = ""
    rate: tuple[Window, ...] = ()
    max_body: int = 1024 * 1024
    logs: LogSettings | None = None
    release: str = ""

    @property
    def url(self) -> str:
        """Where it listens, if the port is not 0."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"


def server_spec(settings: HttpSettings, store: str, *, logs: LogSettings | None, release: str) -> ServerSpec:
    return ServerSpec(
        store=store,
        host=settings.host,
        port=settings.port,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        origins=settings.origins,
        hosts=settings.hosts,
        base_path=settings.base_path,
        environment=settings.environment,
        rate=() if settings.rate_limit is None else rate(settings.rate_limit),
        max_body=settings.max_body,
        logs=logs,
        release=release,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host.lower() == _LOCAL:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def without_partner(values: Mapping[str, Any]) -> str | None:
    """The one of the certificate and its key that is set without the other."""
    given = [key for key in TLS_PAIR if values.get(key) is not None]
    return given[0] if len(given) == 1 else None
