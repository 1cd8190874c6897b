"""The `pitboss` command: the one door in and out of it."""

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pitboss.cli import failures
from pitboss.cli.exits import Exit
from pitboss.cli.screen import Screen
from pitboss.cli.tree import Tree

# A filter's "not" begins like an option: -tag:test. No option has a colon, so it can be told apart.
_NEGATED = re.compile(r"-[A-Za-z_]+(\.[^\s:]+)*:")


class Root(Tree):
    """Turns whatever happens inside into words on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        screen = Screen(color="--no-color" not in given, debug="--debug" in given)
        try:
            code = super().main([_guarded(word) for word in given], "pitboss", standalone_mode=False, obj=screen)
        except BaseException as error:
            if isinstance(error, SystemExit):
                raise
            code = failures.show(screen, error)
        sys.exit(code if isinstance(code, int) else Exit.OK)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Here and not in `main`: typer would take it for a failure.
            raise typer.Exit(failures.show(ctx.obj, error)) from error


app = typer.Typer(
    cls=Root,
    name="pitboss",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        print(f"pitboss {metadata.version('pitboss')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of unexpected errors.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours. [env: NO_COLOR]")] = False,
) -> None:
    """One worker manager for Python: tasks, workers, and what they share.

    \b
    Examples:
      pitboss init demo              a small project to start from
      pitboss up app.py              run an app's tasks until Ctrl-C
      pitboss status                 how it is going, and what to do next
      pitboss tasks list state:failed
      pitboss tasks enqueue greet '{"name": "you"}' --wait
    """
    if context.invoked_subcommand is None:
        from pitboss.cli import status

        status.overview(context.obj)


def main() -> None:
    """The `pitboss` command."""
    app()


def _guarded(word: str) -> str:
    return f" {word}" if _NEGATED.match(word) else word
