"""`pitboss config`: what is set, and where each value comes from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pitboss.cli.options import JsonOption, StoreOption, screen_of
from pitboss.cli.screen import Column
from pitboss.cli.store import settings
from pitboss.cli.words import masked
from pitboss.model.duration import SECOND, spoken

app = typer.Typer(help="Look at the settings.", no_args_is_help=True, rich_markup_mode=None)
_SPANS = ("drain", "retention.completed", "retention.cancelled", "retention.failed")


@app.callback()
def _group() -> None:
    """Look at the settings."""


@app.command("show")
def show(
    context: typer.Context,
    store: StoreOption = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value comes from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting.

    \b
    Examples:
      pitboss config show --origin
      PITBOSS_WORKERS=4 pitboss config show --origin

    The command line beats the environment (PITBOSS_...), which beats the file (pitboss.toml, else [tool.pitboss] in
    pyproject.toml), which beats the store named in code, which beats the default.
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
        [[key, _said(key, value), _near(found.origins[key])][: len(columns)] for key, value in values.items()],
    )


def _plain(key: str, value: Any) -> Any:
    if key in _SPANS:
        return None if value is None else value / SECOND
    return masked(value) if key == "store" else value


def _said(key: str, value: Any) -> str:
    if key in _SPANS:
        return "forever" if value is None else spoken(value)
    match value:
        case None:
            return "-"
        case ():
            return "all" if key == "queues" else "-"
        case tuple():
            return ", ".join(value)
    return masked(str(value)) if key == "store" else str(value)


def _near(origin: str) -> str:
    """The origin with its path as seen from here."""
    return origin.replace(f"{Path.cwd()}/", "")
