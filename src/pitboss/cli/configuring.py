"""`pitboss config`: the settings, and where each value comes from."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pitboss.cli.command import JsonOption, StoreOption, now, opened, screen_of, settings
from pitboss.cli.http_options import alerts_of, delivery_of
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import SECOND, spoken
from pitboss.model.errors import PitbossError
from pitboss.model.queue import LIMITS
from pitboss.model.text import HIDDEN, masked

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.operate.run_time_changes import RunTimeChange

app = typer.Typer(help="Show the settings.", no_args_is_help=True, rich_markup_mode=None)
_CHANGED = "Changed at run time"
_CHANGES = (Column("Setting", fills=True), Column("Now"), Column("Declared"), Column("Withdraw with"))
_SPANS = ("drain", "log_age", "defaults.timeout", "defaults.backoff")
_SIZES = ("host_memory", "max_store_size", "min_free_disk", "log_size", "http.max_body")
_POOL_SPANS = ("restart_delay", "restart_window", "max_age", "unresponsive", "target_wait")
_POOL_SIZES = ("memory", "memory_soft")
_POOL_RANGES = ("stagger", "delay")
_RESOURCE_SPANS = (
    "min_delay",
    "jitter",
    "guard",
    "bound_for",
    "cooldown",
    "cooldown_cap",
    "blacklist",
    "blacklist_cap",
)


@app.callback()
def _group() -> None:
    """Show the settings."""


@app.command("show")
def show(
    context: typer.Context,
    store: StoreOption = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also the origin of each value, and what operators changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting.

    \b
    Examples:
      pitboss config show --origin
      PITBOSS_WORKERS=4 pitboss config show --origin

    The command line overrides the environment (PITBOSS_...), which overrides the file (pitboss.toml, pitboss.yaml, or
    [tool.pitboss] in pyproject.toml), which overrides the code, which overrides the default. With --origin, also what
    operators changed while managers run: limits of queues and resource pools, sizes and delays of worker pools,
    pauses. Exits with 2 if a manager would refuse the settings.
    """
    screen = screen_of(context)
    found = settings(screen, store=store)
    _show(screen, found, origin=origin, as_json=as_json)
    # Last, so that what is wrong is seen together with its origin.
    alerts_of(found)
    delivery_of(found)


def _show(screen: Screen, found: "Loaded", *, origin: bool, as_json: bool) -> None:
    from pitboss.config import flat

    values = flat(found.settings.model_dump(by_alias=True))
    changed = _changed(found) if origin else None
    if as_json:
        rows = {key: {"value": _plain(key, value), "origin": found.origins[key]} for key, value in values.items()}
        document = {"folder": str(found.folder) if found.folder else None, "settings": rows}
        screen.document(document | (_changed_document(changed) if changed is not None else {}))
        return
    columns = [Column("Setting"), Column("Value", fills=True), Column("Origin")][: 3 if origin else 2]
    screen.table(
        columns,
        [[key, _text(key, value), _near(found.origins[key])][: len(columns)] for key, value in values.items()],
    )
    if changed is not None:
        _draw_changed(screen, changed, _flag(found))


def _changed(found: "Loaded") -> "list[RunTimeChange] | PitbossError":
    """What operators changed at run time, or why it is not known."""
    import asyncio

    try:
        return asyncio.run(_read_changed(found))
    except PitbossError as error:
        return error


async def _read_changed(found: "Loaded") -> "list[RunTimeChange]":
    from pitboss import config
    from pitboss.operate.run_time_changes import read_run_time_changes

    store = await opened(found.settings.store, create=False)
    pools = config.pools(found.settings)
    sizes = {one.name: _plain_text("workers", (one.min_workers, one.max_workers)) for one in pools}
    try:
        return await read_run_time_changes(store, now(store), sizes)
    finally:
        await store.close()


def _changed_document(changed: "list[RunTimeChange] | PitbossError") -> dict[str, Any]:
    if isinstance(changed, PitbossError):
        return {"changed_at_run_time": None, "unknown_because": changed.what}
    return {"changed_at_run_time": changed}


def _draw_changed(screen: Screen, changed: "list[RunTimeChange] | PitbossError", flag: str) -> None:
    if isinstance(changed, PitbossError):
        screen.line()
        screen.line(f"{_CHANGED}: not known, because {changed.what}")
    elif not changed:
        screen.line()
        screen.line(f"{_CHANGED}: nothing")
    else:
        screen.heading(_CHANGED)
        screen.table(_CHANGES, [[one.key, one.value, one.declared, one.withdraw + flag] for one in changed])


def _flag(found: "Loaded") -> str:
    """The option with which a command uses this store."""
    given = found.origins["store"].startswith("command")
    return f" --store {shlex.quote(masked(found.settings.store))}" if given else ""


def _kind(key: str) -> str:
    """The kind of a setting's value."""
    match key.split("."):
        case ["pools", _, "env", *_]:
            return "secret"
        case ["pools", _, name]:
            kinds = {"span": _POOL_SPANS, "size": _POOL_SIZES, "range": _POOL_RANGES}
            return next((kind for kind, names in kinds.items() if name in names), name)
        case ["resources", _, name]:
            return "span" if name in _RESOURCE_SPANS else name
        case ["alerts", *rest]:
            return _kind_in_alerts(rest)
        case ["sources", _, name]:
            return {"url": "store", "dedupe": "span"}.get(name, name)
        case ["queues", *_, "retention", _] | ["retention", _]:
            return "age"
        case ["queues", *_, name]:
            return "limit" if name in LIMITS else "queue"
    return "span" if key in _SPANS else "size" if key in _SIZES else key


def _kind_in_alerts(path: list[str]) -> str:
    hidden = path[0] == "channels" and (path[-1] in ("url", "secret", "password") or "headers" in path)
    return "secret" if hidden else "span" if path[-1] in ("digest", "for", "window", "timeout") else path[-1]


def _plain(key: str, value: Any) -> Any:
    match _kind(key), value:
        case _, None:
            return None
        case "span" | "age", _:
            return value / SECOND
        case "range", [least, most]:
            return [least / SECOND, most / SECOND]
        case "workers", [least, most]:
            return {"min": least, "max": most}
        case "secret", str():
            return HIDDEN
        case "store", _:
            return masked(value)
    return value


def _text(key: str, value: Any) -> str:
    match _kind(key), value:
        case "age", None:
            return "forever"
        case "limit", None:
            return "none"
        case "span", None:
            return "none" if key.startswith("pools.") else "-"
        case "queues" | "only_queues" | "only_pools", None | ():
            return "all"
        case _, None | () | {}:
            return "-"
        case "span" | "age", _:
            return _time(value)
        case "range", [least, most]:
            return _time(least) if least == most else f"{_time(least)}-{_time(most)}"
    return _plain_text(_kind(key), value)


def _plain_text(kind: str, value: Any) -> str:
    from pitboss.model.pool import spoken_size

    match kind, value:
        case "size", _:
            return spoken_size(value)
        case "workers", [least, most]:
            return str(least) if least == most else f"{least}-{most}"
        case "secret", _:
            return HIDDEN
        case "store", _:
            return masked(value)
        case _, tuple():
            return ", ".join(value)
        case _, bool():
            return str(value).lower()
    return str(value)


def _time(value: int) -> str:
    return spoken(value) if value else "0s"


def _near(origin: str) -> str:
    """The origin with its path relative to the current folder."""
    return origin.replace(f"{Path.cwd()}/", "")
