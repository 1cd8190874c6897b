"""`pitboss up`: run an app's tasks until told to stop."""

import json
import os
import shlex
from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.options import StoreOption, screen_of
from pitboss.cli.screen import Screen
from pitboss.cli.store import settings
from pitboss.cli.words import masked
from pitboss.model.duration import SECOND, spoken
from pitboss.model.errors import InvalidInput

if TYPE_CHECKING:
    from pitboss.cli.running import Order
    from pitboss.config import Loaded
    from pitboss.manager.manager import Plan
    from pitboss.worker.describe import Description

_RELOAD_DRAIN = 3 * SECOND
_SHOWN = 8


TargetArgument = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="module:app, or a Python file. [file: app]")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", "-w", help="Processes; one per core if left out. [env: PITBOSS_WORKERS]")
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", "-c", help="Tasks at once in each. [env: PITBOSS_CONCURRENCY]")
]
QueuesOption = Annotated[
    str | None, typer.Option("--queues", "-q", metavar="A,B", help="Only these. [env: PITBOSS_QUEUES]")
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="NAME=N", help="Workers of one pool, such as download=3 or download=1-8."),
]
OnlyPoolsOption = Annotated[
    str | None, typer.Option("--only-pools", metavar="A,B", help="Only these pools. [env: PITBOSS_ONLY_POOLS]")
]
DrainOption = Annotated[
    str | None, typer.Option("--drain", metavar="TIME", help="How long running tasks may take to end at a stop.")
]
OnStartOption = Annotated[
    str | None, typer.Option("--on-start", metavar="A,B", help="Tasks to enqueue first, unless one is unfinished.")
]
ReloadOption = Annotated[bool, typer.Option("--reload", help="Restart the workers when files change.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No line per task, no live figures.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="A line per task also where there is no terminal.")]


def up(
    context: typer.Context,
    target: TargetArgument = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    pool: PoolOption = None,
    only_pools: OnlyPoolsOption = None,
    drain: DrainOption = None,
    on_start: OnStartOption = None,
    reload: ReloadOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run an app's tasks until Ctrl-C.

    \b
    Examples:
      pitboss up app.py
      pitboss up shop.tasks:app --store postgresql://user@host/jobs --workers 8
      pitboss up app.py --pool download=3 --only-pools download,cutter
      pitboss up app.py --reload

    The first Ctrl-C (or SIGTERM) lets running tasks end, the second stops at once; no task is lost by either.
    """
    from pitboss.cli.describing import described
    from pitboss.cli.running import run_forever

    screen = screen_of(context)
    asked = {"app": target, "store": store, "workers": workers, "concurrency": concurrency}
    asked |= {"queues": queues, "only_pools": only_pools, "drain": drain, "on_start": on_start}
    found = settings(screen, **asked)
    place = _target(found)
    description = described(place)
    found = _with_code_store(found, asked, description)
    ordered = partial(_order, place=place, sizes=pool or (), reload=reload, quiet=quiet, verbose=verbose)
    order = ordered(found, description)

    def again() -> "tuple[Plan, Description]":
        fresh = described(place)
        return ordered(settings(screen, **asked), fresh).plan, fresh

    banner = partial(_banner, screen, found, order, description)
    summary = run_forever(screen, order._replace(again=again), description, banner)
    screen.note(summary)


def _target(found: "Loaded") -> str:
    place = found.settings.app
    if place is None:
        raise InvalidInput(
            "it is not said which app to run",
            why="no target was given, and no pitboss.toml says app = …",
            fix="pitboss up app.py, or pitboss init demo for a project to start from",
        )
    if found.folder is not None and found.origins["app"].startswith("file"):
        # A module that the file names is found from the file's folder, wherever one stands.
        os.chdir(found.folder)
    return place


def _with_code_store(found: "Loaded", given: dict[str, Any], description: "Description") -> "Loaded":
    """The same settings, now that it is known which store the code names."""
    from pitboss import config

    if description.store is None or found.origins["store"] != "default":
        return found
    again = config.loaded(given, code_store=description.store)
    return again._replace(settings=found.settings.model_copy(update={"store": again.settings.store}))


def _order(
    found: "Loaded",
    description: "Description",
    *,
    place: str,
    sizes: Sequence[str],
    reload: bool,
    quiet: bool,
    verbose: bool,
) -> "Order":
    from pitboss import config
    from pitboss.cli.running import Order
    from pitboss.cli.staffing import staffed
    from pitboss.manager.manager import Plan
    from pitboss.telemetry.logs.settings import log_settings

    chosen = found.settings
    known = {handler.name for handler in description.handlers}
    unknown = [name for name in chosen.on_start if name not in known]
    if unknown:
        raise InvalidInput(
            f"on_start names {', '.join(unknown)}, which {place} does not have",
            why=f"its tasks are {', '.join(sorted(known))}",
            fix=f"correct it in the {found.origins['on_start']}",
        )
    drain = min(chosen.drain, _RELOAD_DRAIN) if reload else chosen.drain
    pools = staffed(found, description, sizes)
    plan = Plan(
        target=place,
        pools=pools,
        drain_seconds=drain / SECOND,
        retention=chosen.kept(),
        host_memory=chosen.host_memory,
        logs=log_settings(chosen.logs, level=chosen.log_level, total_size=chosen.log_size, age=chosen.log_age),
        resources=config.all_resource_rules(chosen, description.resources),
        secrets_file=str(config.key_file(found)),
    )
    return Order(chosen.store, plan, chosen.on_start, _watched(place) if reload else None, quiet, verbose)


def _watched(place: str) -> Path:
    path = Path(place.partition(":")[0])
    return path.resolve().parent if path.suffix == ".py" else Path.cwd()


def _banner(screen: Screen, found: "Loaded", order: "Order", description: "Description") -> None:
    from importlib import metadata

    from pitboss.cli.staffing import pool_lines

    names = sorted(handler.name for handler in description.handlers)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    plan = order.plan
    rows = [
        ("app", f"{_near(plan.target)}: {', '.join(names[:_SHOWN])}{more}"),
        ("store", f"{_near_store(order.store)}{_store_note(found)}"),
        *zip(chain(["pools"], repeat("")), pool_lines(plan.pools), strict=False),
        ("reload", f"when a Python file in {_near(str(order.watched))} changes" if order.watched else None),
        ("logs", _near(plan.logs.folder) if plan.logs else None),
        ("try", f"pitboss status{_flag(found)}"),
        ("", _example(description) + _flag(found)),
        ("stop", f"Ctrl-C: running tasks have {spoken(round(plan.drain_seconds * SECOND))} to end; twice stops now"),
    ]
    screen.note(f"pitboss {metadata.version('pitboss')}")
    for label, text in rows:
        if text:
            screen.note(f"  {label:<8} {text}")
    screen.note("")


def _near(path: str) -> str:
    return path.removeprefix(f"{Path.cwd()}/")


def _near_store(url: str) -> str:
    return masked(url).replace(f"sqlite:///{Path.cwd()}/", "sqlite:///")


def _store_note(found: "Loaded") -> str:
    if found.settings.store.startswith("memory:"):
        return " (in memory: everything is forgotten at the end)"
    return " (named in code; put it into pitboss.toml for the other commands)" if _in_code(found) else ""


def _in_code(found: "Loaded") -> bool:
    return found.origins["store"].startswith("code")


def _flag(found: "Loaded") -> str:
    """What other commands need to find the same store."""
    origin = found.origins["store"]
    return f" --store {shlex.quote(masked(found.settings.store))}" if origin.startswith(("code", "command")) else ""


def _example(description: "Description") -> str:
    """An enqueue that would work, for the task that is easiest to call."""
    schemas = {handler.name: json.loads(handler.schema) for handler in description.handlers}
    name = min(schemas, key=lambda one: (not schemas[one].get("required"), len(schemas[one].get("required", ())), one))
    params = {key: _sample(schemas[name]["properties"][key]) for key in schemas[name].get("required", ())}
    text = f" {shlex.quote(json.dumps(params))}" if params else ""
    return f"pitboss tasks enqueue {name}{text} --wait"


def _sample(schema: dict[str, Any]) -> Any:
    kinds = {"string": "you", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return kinds.get(schema.get("type", "string"), "you")
