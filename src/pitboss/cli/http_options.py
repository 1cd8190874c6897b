"""What `pitboss up` and `pitboss serve` have in common: the options of the HTTP API, sources of messages, and
alerts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.model.errors import InvalidInput
from pitboss.model.text import masked

if TYPE_CHECKING:
    from pitboss.config import Loaded, ServerSpec
    from pitboss.model.alert_rules import AlertsSpec
    from pitboss.model.source import DeliverySpec

ListenOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Where the HTTP API listens; 127.0.0.1 is for this machine only. [env: PITBOSS_HTTP__HOST]",
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", help="The port of the HTTP API; 0: a free one. [env: PITBOSS_HTTP__PORT]")
]
NoHttpOption = Annotated[bool, typer.Option("--no-http", help="Do not serve the HTTP API.")]
NoSourcesOption = Annotated[bool, typer.Option("--no-sources", help="Take no messages from RabbitMQ.")]
CertOption = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate for HTTPS, with --tls-key.")
]
KeyOption = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")]


def http_settings(
    host: str | None, port: int | None, tls_cert: str | None, tls_key: str | None, *, enabled: bool | None = None
) -> dict[str, Any]:
    """The options as settings; None: not given."""
    return {
        "http.host": host,
        "http.port": port,
        "http.tls_cert": tls_cert,
        "http.tls_key": tls_key,
        "http.enabled": enabled,
    }


def server_of(found: "Loaded") -> "ServerSpec | None":
    """The server that the settings ask for; None if they ask for none, or the store exists in one process only."""
    from importlib import metadata

    from pitboss import config
    from pitboss.model.log_settings import log_settings

    chosen = found.settings
    if not chosen.http.enabled or _in_memory(found):
        return None
    logs = log_settings(chosen.logs, level=chosen.log_level, total_size=chosen.log_size, age=chosen.log_age)
    return config.server_spec(chosen.http, chosen.store, logs=logs, release=metadata.version("pitboss"))


def server_line(found: "Loaded") -> str | None:
    """Where it listens, for the banner. That there is none is worth a line if it was asked for."""
    spec = server_of(found)
    if spec is not None:
        base = spec.base_path
        return (
            f"{spec.url}{base}/ui (API at {base}/api, docs at {base}/docs)"
            if spec.port
            else f"a free port of {spec.host}, which is shown below"
        )
    asked = any(key.startswith("http.") and origin != "default" for key, origin in found.origins.items())
    if asked and found.settings.http.enabled:
        return "none: a store in memory cannot be served; name a SQLite file or a server with --store"
    return None


def alerts_of(found: "Loaded") -> "AlertsSpec | None":
    """Rules and channels of alerts, as the settings say."""
    from pitboss import config

    return config.alerts_spec(found.settings.alerts, found.settings.store)


def delivery_of(found: "Loaded", *, sources: bool = True) -> "DeliverySpec | None":
    """What the delivery process has to do by the settings: sources of messages, and channels of alerts."""
    from pitboss import config
    from pitboss.model.source import DeliverySpec
    from pitboss.wiring import make_broker

    taken = config.source_specs(found.settings.sources) if sources else ()
    alerts = alerts_of(found)
    channels = alerts.outside if alerts is not None else ()
    if not taken and not channels:
        return None
    if _in_memory(found):
        what = "take messages of RabbitMQ" if taken else f'send alerts through the channel "{channels[0].name}"'
        raise InvalidInput(
            f"a store in memory cannot {what}",
            why="the delivery process is a process of its own, and such a store exists within one process only",
            fix="name a SQLite file or a server with --store",
        )
    for one in taken:
        make_broker(one.url)
    return DeliverySpec(store=found.settings.store, sources=taken, channels=channels)


def source_lines(spec: "DeliverySpec | None") -> Iterator[str]:
    """A line for each source."""
    for one in spec.sources if spec is not None else ():
        yield f"{one.queue} of {masked(one.url)} → {one.handler}; what fails goes to {one.dead_letter_queue}"


async def check_listening(store: object, spec: "ServerSpec | None") -> None:
    """Refuse a server that other machines can reach, if the store has no key."""
    from pitboss.config import is_loopback
    from pitboss.operate.keys import refuse_open_door

    if spec is not None and not is_loopback(spec.host):
        await refuse_open_door(store, f"{spec.host}:{spec.port}")


def _in_memory(found: "Loaded") -> bool:
    return found.settings.store.startswith("memory:")
