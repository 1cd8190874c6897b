"""The commands by name. What a command needs is imported when it is called, so that the others cost nothing."""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Branch(NamedTuple):
    """A command, or a noun with its verbs: where it is, and the line that the list of commands has for it."""

    place: str  # "module:attribute" under pitboss.cli
    line: str
    alias: str = ""  # another name, not listed


BRANCHES = {
    "up": Branch("up:up", "Run an app's tasks until Ctrl-C."),
    "init": Branch("init:init", "Write a small project to start from."),
    "status": Branch("status:status", "Say how it is going, why, and what to do next."),
    "logs": Branch("logs:logs", "Show what the workers of this host have logged."),
    "ps": Branch("ps:ps", "List managers and workers on all hosts."),
    "top": Branch("top:top", "Watch pools, queues and workers, live; q ends it."),
    "stop": Branch("managers:stop", "Stop managers; running tasks end first."),
    "drain": Branch("managers:drain", "Let managers take no more tasks."),
    "doctor": Branch("doctor:doctor", "Look for what is wrong, or about to be."),
    "help": Branch("topics:help_command", "Explain a topic or a command."),
    "tasks": Branch("tasks:app", "Find, look at, enqueue, retry and cancel tasks.", "task"),
    "batches": Branch("batches:app", "Look at batches of tasks; order, pause, cancel and repeat them.", "batch"),
    "queues": Branch("queues:app", "Look at queues; pause, resume and limit them.", "queue"),
    "resources": Branch(
        "resources:app", "Look at scarce resources; add, import, switch and test their members.", "resource"
    ),
    "pools": Branch("pools:app", "Look at worker pools; size, restart, pause and resume them.", "pool"),
    "dead": Branch("dead:app", "Look after tasks that failed for good."),
    "db": Branch("db:app", "Look after the store's tables."),
    "config": Branch("configuring:app", "Look at the settings."),
}
_ALIASES = {branch.alias: name for name, branch in BRANCHES.items() if branch.alias}


class Tree(TyperGroup):
    """Lists all commands without importing one, and resolves the one that is called."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, branch in BRANCHES.items():
            self.add_command(TyperCommand(name, help=branch.line))
        for alias, name in _ALIASES.items():
            self.add_command(TyperCommand(alias, help=BRANCHES[name].line, hidden=True))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words mean, loaded, and the words that are left for it."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if found is None else loaded(name or ""), rest


def loaded(name: str) -> Any:
    """The command of this name, with all that it needs."""
    name = _ALIASES.get(name, name)
    module, _, attribute = BRANCHES[name].place.partition(":")
    found = getattr(import_module(f"pitboss.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return get_command(alone)
