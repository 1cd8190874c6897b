"""`pitboss serve`: the HTTP API and the upkeep of the store, without an app and without workers."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import StoreOption, screen_of, settings
from pitboss.cli.http_options import (
    CertOption,
    KeyOption,
    ListenOption,
    PortOption,
    alerts_of,
    delivery_of,
    http_settings,
    server_line,
    server_of,
)
from pitboss.cli.screen import Screen
from pitboss.model.errors import InvalidInput
from pitboss.model.text import masked

if TYPE_CHECKING:
    from pitboss.cli.up_run import RunOptions
    from pitboss.config import Loaded
    from pitboss.manager.manager import Plan
    from pitboss.worker.describe import Description


def serve(
    context: typer.Context,
    store: StoreOption = None,
    host: ListenOption = None,
    port: PortOption = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no live figures.")] = False,
) -> None:
    """Serve the HTTP API without workers, until Ctrl-C.

    \b
    Examples:
      pitboss serve
      pitboss serve --store postgresql://user@host/jobs --port 8080
      pitboss serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem

    Remote workers run the tasks. The store is looked after as by pitboss up: tasks of dead workers go back to their
    queue, and old tasks are deleted. To listen to other machines, create a key first: pitboss keys create.
    """
    from pitboss.cli.up_run import run_forever
    from pitboss.worker.describe import Description

    screen = screen_of(context)
    asked = {"store": store, **http_settings(host, port, tls_cert, tls_key, enabled=True)}
    found = settings(screen, **asked)

    def again() -> "tuple[Plan, Description]":
        return _options(settings(screen, **asked), quiet=quiet).plan, Description()

    options = _options(found, quiet=quiet)._replace(again=again)
    screen.note(run_forever(screen, options, Description(), partial(_banner, screen, found, options)))


def _options(found: "Loaded", *, quiet: bool) -> "RunOptions":
    from pitboss.cli.up_run import RunOptions
    from pitboss.manager.manager import Plan

    chosen, spec = found.settings, server_of(found)
    if spec is None:
        raise InvalidInput(
            f"{masked(chosen.store)} cannot be served",
            why="a store in memory exists within one process only",
            fix="name a SQLite file or a server with --store",
        )
    plan = Plan(
        pools=(),
        retention=chosen.kept(),
        max_store_size=chosen.max_store_size,
        min_free_disk=chosen.min_free_disk,
        logs=spec.logs,
        http=spec,
        delivery=delivery_of(found),
        alerts=alerts_of(found),
    )
    return RunOptions(chosen.store, plan, (), None, quiet, False)


def _banner(screen: Screen, found: "Loaded", options: "RunOptions") -> None:
    from pitboss.cli.up_output import banner, near, near_store

    logs = options.plan.logs
    rows = [
        ("http", server_line(found)),
        ("store", near_store(options.store)),
        ("logs", near(logs.folder) if logs else None),
        ("stop", "Ctrl-C: requests that came are answered; twice stops now"),
    ]
    banner(screen, rows)
