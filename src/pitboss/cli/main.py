"""The `pitboss` command: its list of commands, and the one place where errors become messages and exit codes."""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from pitboss.cli import errors
from pitboss.cli.screen import Screen

# A filter's "not" begins like an option: -tag:test. No option has a colon, so the two can be distinguished.
_NEGATED = re.compile(r"-[A-Za-z_]+(\.[^\s:]+)*:")


class Command(NamedTuple):
    """A command, or a noun with its verbs."""

    target: str  # "module:attribute" under pitboss.cli
    line: str  # in the list of commands
    alias: str = ""  # another name, not listed


COMMANDS = {
    "up": Command("up:up", "Run an app's tasks until Ctrl-C."),
    "plan": Command("plan:plan", "Show what a launch would do and how long it takes."),
    "serve": Command("serve:serve", "Serve the HTTP API without workers, until Ctrl-C."),
    "init": Command("init:init", "Write a small project to start from."),
    "status": Command("status:status", "Show how the store is doing, why, and what to do next."),
    "health": Command("health:health", "Show how workers and tasks did: success, times, memory and restarts."),
    "why": Command("why:why", "Say why a task or batch does not run, and what helps."),
    "logs": Command("logs:logs", "Show what the workers and the manager of this host have logged."),
    "ps": Command("ps:ps", "List managers and workers on all hosts."),
    "top": Command("top:top", "Watch worker pools, queues and workers live; q quits."),
    "figures": Command(
        "figures:figures",
        "Show how many tasks came and went over time, how long they waited and ran, and how many failed.",
    ),
    "report": Command("report:report", "Write a page with charts of what happened, to mail or to keep."),
    "stop": Command("managers:stop", "Stop managers; running tasks finish first."),
    "drain": Command("managers:drain", "Let managers take no more tasks."),
    "doctor": Command("doctor:doctor", "Check for problems."),
    "help": Command("help:help_command", "Explain a topic or a command."),
    "tasks": Command("tasks:app", "List, show, enqueue, change, retry and cancel tasks.", "task"),
    "batches": Command("batches:app", "List, create, order, pause, cancel and requeue batches of tasks.", "batch"),
    "queues": Command("queues:app", "List, show, pause, resume and limit queues.", "queue"),
    "partitions": Command(
        "partitions:app", "Show, validate and change which worker owns which keys of a queue.", "partition"
    ),
    "schedules": Command("schedules:app", "List, add, change, run, pause and remove schedules.", "schedule"),
    "events": Command("events:app", "List, show, publish and replay events, and see who wants which.", "event"),
    "sources": Command("sources:sources", "Show queues of RabbitMQ whose messages become tasks.", "source"),
    "resources": Command(
        "resources:app",
        "List and limit resource pools; add, import, enable, disable and test their members.",
        "resource",
    ),
    "pools": Command("worker_pools:app", "List, scale, set, restart, pause and resume worker pools.", "pool"),
    "dead": Command("dead:app", "List, retry and delete tasks that failed for good."),
    "alerts": Command("alerts:app", "List alerts and their rules, test channels, silence rules.", "alert"),
    "operations": Command("operations:app", "List, show, wait for and cancel bulk acts on tasks.", "operation"),
    "keys": Command("keys:app", "Create, list and revoke keys of the HTTP API.", "key"),
    "views": Command("views:app", "List, save and remove saved views of tasks.", "view"),
    "audit": Command("audit:audit", "Show what operators did."),
    "activity": Command("activity:activity", "Show what happened and what operators did."),
    "db": Command("db:app", "Upgrade, check and copy the store."),
    "config": Command("configuring:app", "Show the settings."),
}
_ALIASES = {command.alias: name for name, command in COMMANDS.items() if command.alias}


class Root(TyperGroup):
    """Lists all commands without importing them, loads the one that is called, and shows its errors."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, command in COMMANDS.items():
            self.add_command(TyperCommand(name, help=command.line))
        for alias, name in _ALIASES.items():
            self.add_command(TyperCommand(alias, help=COMMANDS[name].line, hidden=True))

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        screen = Screen(color="--no-color" not in given, debug="--debug" in given)
        try:
            code = super().main([_guarded(word) for word in given], "pitboss", standalone_mode=False, obj=screen)
        except BaseException as error:
            if isinstance(error, SystemExit):
                raise
            code = errors.show(screen, error, given)
        sys.exit(code if isinstance(code, int) else errors.Exit.OK)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Caught here and not in `main`, because typer would report it as a failure.
            raise typer.Exit(errors.show(ctx.obj, error)) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words name, loaded, and the words that are left for it."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if found is None else loaded(name or ""), rest


def loaded(name: str) -> Any:
    """The command of this name, with everything that it imports."""
    name = _ALIASES.get(name, name)
    module, _, attribute = COMMANDS[name].target.partition(":")
    found = getattr(import_module(f"pitboss.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return get_command(alone)


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
    """One worker manager for Python: tasks, workers, and the resources they share.

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
