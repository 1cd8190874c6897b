"""`pitboss up`: run an app's tasks until Ctrl-C."""

import json
import os
import shlex
from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.command import StoreOption, YesOption, screen_of, settings
from pitboss.cli.http_options import (
    CertOption,
    KeyOption,
    ListenOption,
    NoHttpOption,
    NoSourcesOption,
    PortOption,
    alerts_of,
    delivery_of,
    http_settings,
    server_line,
    server_of,
    source_lines,
)
from pitboss.cli.screen import Screen
from pitboss.model.duration import SECOND, spoken
from pitboss.model.errors import InvalidInput
from pitboss.model.text import masked

if TYPE_CHECKING:
    from pitboss.cli.up_run import RunOptions
    from pitboss.config import Loaded
    from pitboss.manager.manager import Plan
    from pitboss.model.alert_rules import AlertsSpec
    from pitboss.worker.describe import Description

_RELOAD_DRAIN = 3 * SECOND
_SHOWN = 8

TargetArgument = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="module:app, or a Python file. [file: app]")
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", "-w", help="Worker processes; by default one per core. [env: PITBOSS_WORKERS]"),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", "-c", help="Tasks at the same time in each. [env: PITBOSS_CONCURRENCY]")
]
QueuesOption = Annotated[
    str | None,
    typer.Option("--queues", "-q", metavar="A,B", help="Serve only these queues. [env: PITBOSS_ONLY_QUEUES]"),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="NAME=N", help="Workers of one worker pool, such as download=3 or download=1-8."),
]
OnlyPoolsOption = Annotated[
    str | None,
    typer.Option("--only-pools", metavar="A,B", help="Run only these worker pools. [env: PITBOSS_ONLY_POOLS]"),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="0,1",
        help="Run only the workers with these numbers, which count from 0 on in each pool: 0,1 or 0-4.",
    ),
]
DrainOption = Annotated[
    str | None, typer.Option("--drain", metavar="TIME", help="How long a stop waits for running tasks.")
]
OnStartOption = Annotated[
    str | None,
    typer.Option("--on-start", metavar="A,B", help="Tasks to enqueue at the start, unless one is unfinished."),
]
ReloadOption = Annotated[bool, typer.Option("--reload", help="Restart the workers when files change.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no line per task and no live figures.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show a line per task also without a terminal.")]
ConfirmOption = Annotated[bool, typer.Option("--confirm", help="Show the plan first, and ask; --yes shows it only.")]


def up(
    context: typer.Context,
    target: TargetArgument = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    pool: PoolOption = None,
    only_pools: OnlyPoolsOption = None,
    only: OnlyOption = None,
    drain: DrainOption = None,
    on_start: OnStartOption = None,
    host: ListenOption = None,
    port: PortOption = None,
    no_http: NoHttpOption = False,
    no_sources: NoSourcesOption = False,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    reload: ReloadOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    ask: ConfirmOption = False,
    sure: YesOption = False,
) -> None:
    """Run an app's tasks until Ctrl-C.

    \b
    Examples:
      pitboss up app.py
      pitboss up shop.tasks:app --store postgresql://user@host/jobs --workers 8
      pitboss up app.py --pool download=3 --only-pools download,cutter
      pitboss up app.py --only 0,1
      pitboss up app.py --confirm
      pitboss up app.py --reload
      pitboss up app.py --port 8080

    The first Ctrl-C (or SIGTERM) lets running tasks finish, the second stops at once. Neither loses a task.
    """
    from pitboss.cli.app_description import described
    from pitboss.cli.up_run import run_forever
    from pitboss.operate.alert_settings import undeclared_functions

    screen = screen_of(context)
    asked = {"app": target, "store": store, "workers": workers, "concurrency": concurrency}
    asked |= {"only_queues": queues, "only_pools": only_pools, "drain": drain, "on_start": on_start}
    asked |= http_settings(host, port, tls_cert, tls_key, enabled=False if no_http else None)
    found = settings(screen, **asked)
    app = _target(found)
    description = described(app)
    found = with_code_store(found, asked, description)
    options = partial(
        _options,
        app=app,
        sizes=pool or (),
        only=only,
        reload=reload,
        quiet=quiet,
        verbose=verbose,
        no_sources=no_sources,
    )
    chosen = options(found, description)
    for one in undeclared_functions(chosen.plan.alerts, description.handlers):
        screen.note(f"warning: {one.what}\n  why: {one.why}\n  fix: {one.fix}")

    def again() -> "tuple[Plan, Description]":
        fresh = described(app)
        return options(settings(screen, **asked), fresh).plan, fresh

    if ask:
        from pitboss.cli.plan import confirm_launch

        confirm_launch(screen, chosen.store, chosen.plan, description, sure=sure)
    banner = partial(_banner, screen, found, chosen, description)
    summary = run_forever(screen, chosen._replace(again=again), description, banner)
    screen.note(summary)


def _target(found: "Loaded") -> str:
    target = found.settings.app
    if target is None:
        raise InvalidInput(
            "no app to run",
            why="no target was given, and no pitboss.toml says app = …",
            fix="pitboss up app.py, or pitboss init demo for a project to start from",
        )
    if found.folder is not None and found.origins["app"].startswith("file"):
        # A module that the file names is relative to the file's folder, not to the current one.
        os.chdir(found.folder)
    return target


def with_code_store(found: "Loaded", given: dict[str, Any], description: "Description") -> "Loaded":
    """The same settings, with the store that the code names if nothing else names one."""
    from pitboss import config

    if description.store is None or found.origins["store"] != "default":
        return found
    again = config.loaded(given, code_store=description.store)
    return again._replace(settings=found.settings.model_copy(update={"store": again.settings.store}))


def _options(
    found: "Loaded",
    description: "Description",
    *,
    app: str,
    sizes: Sequence[str],
    only: str | None,
    reload: bool,
    quiet: bool,
    verbose: bool,
    no_sources: bool,
) -> "RunOptions":
    from pitboss import config
    from pitboss.cli.up_pools import chosen_pools
    from pitboss.cli.up_run import RunOptions, with_settings
    from pitboss.manager.manager import Plan
    from pitboss.model.log_settings import log_settings

    chosen = found.settings
    known = {handler.name for handler in description.handlers}
    unknown = [name for name in chosen.on_start if name not in known]
    if unknown:
        raise InvalidInput(
            f"on_start names {', '.join(unknown)}, which {app} does not have",
            why=f"its tasks are {', '.join(sorted(known))}",
            fix=f"correct it in the {found.origins['on_start']}",
        )
    drain = min(chosen.drain, _RELOAD_DRAIN) if reload else chosen.drain
    pools = chosen_pools(found, description, sizes, only)
    plan = Plan(
        target=app,
        node=chosen.node or "",
        pools=pools,
        drain_seconds=drain / SECOND,
        retention=chosen.kept(),
        max_store_size=chosen.max_store_size,
        min_free_disk=chosen.min_free_disk,
        host_memory=chosen.host_memory,
        logs=log_settings(chosen.logs, level=chosen.log_level, total_size=chosen.log_size, age=chosen.log_age),
        resources=config.all_resource_rules(chosen, description.resources),
        declared=with_settings(chosen, description),
        secrets_file=str(config.key_file(found)),
        http=server_of(found),
        delivery=delivery_of(found, sources=not no_sources),
        alerts=alerts_of(found),
    )
    return RunOptions(chosen.store, plan, chosen.on_start, _watched(app) if reload else None, quiet, verbose)


def _watched(app: str) -> Path:
    path = Path(app.partition(":")[0])
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()


def _banner(screen: Screen, found: "Loaded", options: "RunOptions", description: "Description") -> None:
    from pitboss.cli.up_output import banner, near, near_store
    from pitboss.cli.up_pools import pool_lines

    names = sorted(handler.name for handler in description.handlers)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    plan = options.plan
    rows = [
        ("app", f"{near(plan.target)}: {', '.join(names[:_SHOWN])}{more}"),
        ("store", f"{near_store(options.store)}{_store_note(found)}"),
        *zip(chain(["pools"], repeat("")), pool_lines(plan.pools), strict=False),
        ("http", server_line(found)),
        *zip(chain(["sources"], repeat("")), source_lines(plan.delivery), strict=False),
        ("alerts", _alert_line(plan.alerts)),
        ("reload", f"when a Python file in {near(str(options.watched))} changes" if options.watched else None),
        ("logs", near(plan.logs.folder) if plan.logs else None),
        ("try", f"pitboss status{_flag(found)}"),
        ("", _example(description) + _flag(found)),
        ("stop", f"Ctrl-C: running tasks have {spoken(round(plan.drain_seconds * SECOND))} to finish; twice stops now"),
    ]
    banner(screen, rows)


def _alert_line(spec: "AlertsSpec | None") -> str | None:
    """Where alerts go; nothing if it is only the log."""
    told = [f"{one.name} ({one.type})" for one in spec.channels if one.type != "log"] if spec is not None else []
    return f"to {', '.join(told)}" if told else None


def _store_note(found: "Loaded") -> str:
    if found.settings.store.startswith("memory:"):
        return " (in memory: everything is lost at the end)"
    return " (named in code; put it into pitboss.toml for the other commands)" if _in_code(found) else ""


def _in_code(found: "Loaded") -> bool:
    return found.origins["store"].startswith("code")


def _flag(found: "Loaded") -> str:
    """The option with which other commands use the same store."""
    origin = found.origins["store"]
    return f" --store {shlex.quote(masked(found.settings.store))}" if origin.startswith(("code", "command")) else ""


def _example(description: "Description") -> str:
    """An enqueue that works, of the task with the fewest required parameters."""
    schemas = {handler.name: json.loads(handler.schema) for handler in description.handlers}
    name = min(schemas, key=lambda one: (not schemas[one].get("required"), len(schemas[one].get("required", ())), one))
    params = {key: _sample(schemas[name]["properties"][key]) for key in schemas[name].get("required", ())}
    text = f" {shlex.quote(json.dumps(params))}" if params else ""
    return f"pitboss tasks enqueue {name}{text} --wait"


def _sample(schema: dict[str, Any]) -> Any:
    kinds = {"string": "you", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    # A model is a reference to its schema.
    return kinds.get(schema.get("type", "object" if "$ref" in schema else "string"), "you")
