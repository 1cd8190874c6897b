"""`pitboss config`: the settings, and where each value comes from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pitboss.cli.command import JsonOption, StoreOption, screen_of, settings
from pitboss.cli.screen import Column
from pitboss.model.duration import SECOND, spoken
from pitboss.model.text import HIDDEN, masked

app = typer.Typer(help="Show the settings.", no_args_is_help=True, rich_markup_mode=None)
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
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting.

    \b
    Examples:
      pitboss config show --origin
      PITBOSS_WORKERS=4 pitboss config show --origin

    The command line overrides the environment (PITBOSS_...), which overrides the file (pitboss.toml, pitboss.yaml, or
    [tool.pitboss] in pyproject.toml), which overrides the code, which overrides the default.
    """
    from pitboss.config import flat

    screen = screen_of(context)
    found = settings(screen, store=store)
    values = flat(found.settings.model_dump())
    if as_json:
        rows = {key: {"value": _plain(key, value), "origin": found.origins[key]} for key, value in values.items()}
        screen.document({"folder": str(found.folder) if found.folder else None, "settings": rows})
        return
    columns = [Column("Setting"), Column("Value", fills=True), Column("Origin")][: 3 if origin else 2]
    screen.table(
        columns,
        [[key, _text(key, value), _near(found.origins[key])][: len(columns)] for key, value in values.items()],
    )


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
        case ["queues", *_, "retention", _] | ["retention", _]:
            return "age"
        case ["queues", *_, name]:
            return "limit" if name in ("capacity", "rate") else "queue"
    return "span" if key in _SPANS else "size" if key in _SIZES else key


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
        case "span", None if key.startswith("pools."):
            return "none"
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
