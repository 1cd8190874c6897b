"""`pitboss tasks change`: another priority and other tags for tasks that wait."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli import bulk
from pitboss.cli.auditing import acting
from pitboss.cli.bulk import TasksArgument
from pitboss.cli.command import AllOption, DryRunOption, StoreOption, YesOption, ask, confirm, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.progress import counting
from pitboss.client.options import task_change
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.operate.tasks import change_tasks, refuse_unchangeable, select_tasks

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_WAITING = (State.HELD, State.SCHEDULED, State.PENDING)
# With a bar from this number on.
_MANY = 1000


def change(
    context: typer.Context,
    tasks: TasksArgument = None,
    everything: AllOption = False,
    priority: Annotated[int | None, typer.Option("--priority", help="Lower runs first; the default is 0.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag to add; may be repeated.")] = None,
    untag: Annotated[list[str] | None, typer.Option("--untag", help="A tag to remove; may be repeated.")] = None,
    store: StoreOption = None,
    sure: YesOption = False,
    dry: DryRunOption = False,
) -> None:
    """Change the priority and the tags of tasks that wait: held, scheduled and pending ones.

    \b
    Examples:
      pitboss tasks change 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7 --priority -5
      pitboss tasks change queue:mail tag:eu --priority 10 --tag late --untag eu --yes
    """
    screen, wanted = screen_of(context), bulk.selected(tasks, everything=everything)
    wish = task_change(priority, tag or (), untag or ())

    async def work(opened: "Store") -> str:
        selection = await select_tasks(opened, wanted, _WAITING)
        if not selection.matched:
            await refuse_unchangeable(opened, wanted)
            return ""
        if dry or not (sure or selection.named):
            await bulk.show_sample(screen, opened, "Change", selection)
        if dry:
            return f"would change {counted(selection.matched, 'task')}; nothing was changed"
        if not (sure or selection.named):
            confirm(screen, f"Change {counted(selection.matched, 'task')}?")
        with counting(screen, "Change", selection.matched, shown=selection.matched > _MANY) as done:
            changed = await change_tasks(opened, selection, wish, done)
            return f"{counted(changed.changed, 'task')} changed"

    said = ask(screen, store, work, audit=acting(context))
    screen.note(said or f"no {', '.join(_WAITING)} task matches; nothing was changed")
    if not said:
        raise typer.Exit(Exit.NOT_FOUND)
