"""`pitboss why`: every gate that a task has to pass, when it starts, and what helps."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import JsonOption, Shown, StoreOption, WatchOption, now, screen_of, show
from pitboss.cli.screen import Column, Screen
from pitboss.model.task import Task
from pitboss.model.waiting import spoken_place, spoken_start
from pitboss.operate.documents import why_document
from pitboss.operate.origin import origin_document, origin_lines
from pitboss.operate.why import Explained, explain

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_GATES = (Column(""), Column("Gate"), Column("Answer", fills=True), Column("Figure", right=True))
_MARKS = {True: "ok", False: "shut", None: "-"}


def why(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="ID", help="Of a task or batch: six or more of its last characters.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Say why a task or batch does not run, and what helps.

    \b
    Examples:
      pitboss why 019a3c5e-7d21-7000-8b1f-2c9e64a0d3f7
      pitboss why a0d3f7 --watch 1s

    Lists every gate that the task has to pass, in order: ok if it is open, shut if not.
    """

    async def read(opened: "Store") -> Shown:
        found = await explain(opened, task, now(opened))
        document = {"id": found.thing.id, "kind": _kind(found), **why_document(found.why)}
        if isinstance(found.thing, Task):
            document["origin"] = origin_document(found.thing)
        return Shown(document, lambda screen: _draw(screen, found))

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


def _draw(screen: Screen, found: Explained) -> None:
    thing, why = found.thing, found.why
    state = thing.state if isinstance(thing, Task) else thing.status
    name = thing.handler if isinstance(thing, Task) else thing.name
    screen.fields([(_kind(found), name or "(no name)"), ("id", thing.id), ("state", state)])
    if isinstance(thing, Task):
        screen.fields([("from", "\n".join(origin_lines(thing)))])
    screen.line()
    style = "bold red" if why.stuck else "bold yellow" if why.shut is not None else "bold"
    screen.line(f"{why.sentence[:1].upper()}{why.sentence[1:]}.", style)
    if not why.gates and not why.helps:
        return
    screen.line()
    if why.gates:
        screen.table(_GATES, [[_MARKS[gate.passed], gate.what, gate.says, gate.figure] for gate in why.gates])
        screen.line()
    screen.fields([("place", spoken_place(why)), ("starts", spoken_start(why)), ("helps", "\n".join(why.helps))])


def _kind(found: Explained) -> str:
    return "task" if isinstance(found.thing, Task) else "batch"
