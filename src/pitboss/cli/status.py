"""`pitboss status`: one sentence, its cause, what to do next; then queues and managers."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.documents import queue_document, session_document
from pitboss.cli.exits import Exit
from pitboss.cli.options import JsonOption, StoreOption, WatchOption, screen_of
from pitboss.cli.screen import Column, Screen
from pitboss.cli.store import Shown, settings, show
from pitboss.cli.words import age, masked
from pitboss.model.duration import Moment, spoken
from pitboss.model.filter import by, parsed
from pitboss.model.fleet import managed
from pitboss.model.queue import Queue
from pitboss.model.session import Session
from pitboss.model.states import State
from pitboss.model.verdict import LATE, LATELY, Facts, Health, Verdict, verdict
from pitboss.model.waiting import alive

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

QUEUE_COLUMNS = (
    Column("Queue", fills=True),
    Column("Pending", right=True),
    Column("Running", right=True),
    Column("Scheduled", right=True, drop=2),
    Column("Held", right=True, drop=1),
    Column("Completed", right=True, drop=3),
    Column("Failed", right=True),
    Column("Cancelled", right=True, drop=4),
    Column("Limits", drop=5),
)
_COUNTED = ("pending", "running", "scheduled", "held", "completed", "failed", "cancelled")
_MANAGERS = (
    Column("Manager", fills=True),
    Column("State"),
    Column("Pid", right=True, drop=2),
    Column("Workers", right=True),
    Column("Running", right=True),
    Column("Up", right=True),
    Column("App", drop=1),
)
_HELD_LOOKED_AT = 500
_GONE_SHOWN = 2
_NEXT = {
    "no-manager": "pitboss up",
    "held": "pitboss tasks list state:held",
    "failing": "pitboss dead list",
    "paused": "pitboss queues resume {queue}",
    "late": "pitboss tasks list state:pending",
    "failed": "pitboss dead list",
    "healthy": "pitboss tasks list",
}


def status(
    context: typer.Context,
    store: StoreOption = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 6 if the store is unhealthy.")] = False,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """Say how it is going, why, and what to do next.

    \b
    Examples:
      pitboss status
      pitboss status --watch 2s
      pitboss status --check && echo all is well
    """
    shown = show(screen_of(context), store, _read, as_json=as_json, watch=watch)
    if check and shown.document.get("health") == Health.UNHEALTHY:
        raise typer.Exit(Exit.UNHEALTHY)


def overview(screen: Screen) -> None:
    """`pitboss` alone: the status if there is a store, else how to begin."""
    from pitboss import wiring

    found = settings(screen)
    if wiring.absent_file(found.settings.store) is None and not found.settings.store.startswith("memory:"):
        show(screen, None, _read, as_json=False)
        return
    screen.line("Nothing runs here yet.")
    screen.facts([("store", f"{masked(found.settings.store)} (not created yet)")])
    screen.facts([("next", "pitboss up" if found.settings.app else "pitboss init demo")])
    screen.facts([("help", "pitboss --help")])


async def _read(store: "Store") -> Shown:
    from pitboss import wiring
    from pitboss.cli.gates import gates_of

    now = wiring.SystemClock().now()
    queues, sessions = await store.queues(), await store.sessions()
    living = [one for one in alive(sessions, now) if one.info.kind == "manager"]
    facts = Facts(
        queues=queues,
        managers=len(living),
        held=await held_by_handler(store, queues),
        # An item is as old as its batch, which may have stood in line for hours: that is no delay.
        late=await store.count(parsed(f"state:pending wait:>{spoken(LATE)} -batch:*")),
        completed=await store.count(parsed(f"state:completed age:<{spoken(LATELY)}")),
        failed=await store.count(parsed(f"state:failed age:<{spoken(LATELY)}")),
    )
    said = verdict(facts)
    gates = await gates_of(store)
    following = _NEXT[said.cause].format(queue=said.queue)
    document = {
        "health": said.health,
        "cause": said.cause,
        "sentence": said.sentence,
        "next": following,
        "queues": [queue_document(queue) for queue in queues],
        "managers": [session_document(one, alive=one in living) for one in sessions],
        **gates.document(),
    }

    def draw(screen: Screen) -> None:
        _draw(screen, said, following, queues, sessions, now)
        gates.draw(screen)

    return Shown(document, draw)


async def held_by_handler(store: "Store", queues: list[Queue]) -> dict[str, int]:
    """Tasks that are held for want of a worker, by handler, as far as a look at some of them tells."""
    unknown = by(state=State.HELD, reason="handler")
    total = await store.count(unknown) if any(queue.counts.get(State.HELD) for queue in queues) else 0
    if not total:
        return {}
    counts: dict[str, int] = {}
    for task in (await store.find(unknown, limit=_HELD_LOOKED_AT)).tasks:
        counts[task.handler] = counts.get(task.handler, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    if most:
        counts[most] += total - sum(counts.values())
    return counts


def _draw(
    screen: Screen, said: Verdict, following: str, queues: list[Queue], sessions: list[Session], now: Moment
) -> None:
    style = {"healthy": "bold green", "attention": "bold yellow", "unhealthy": "bold red"}[said.health]
    screen.line(said.sentence, style)
    screen.line(f"Next: {following}")
    if queues:
        screen.heading("Queues")
        screen.table(QUEUE_COLUMNS, [queue_row(queue) for queue in queues])
    living = alive(sessions, now)
    gone = [one for one in sessions if one not in living][-_GONE_SHOWN:]
    if sessions:
        screen.heading("Managers")
        screen.table(_MANAGERS, [_manager_row(one, now) for one in (*reversed(living), *reversed(gone))])


def queue_row(queue: Queue) -> list[str]:
    """A queue's cells under `QUEUE_COLUMNS`."""
    name = f"{queue.name} (paused)" if queue.paused else queue.name
    counts = [f"{queue.counts.get(State(state), 0):,}" for state in _COUNTED]
    limits = [f"{window.count}/{spoken(window.per)}" for window in queue.rate]
    if queue.capacity is not None:
        limits.append(f"at most {queue.capacity:,}")
    return [name, *counts, ", ".join(limits)]


def _manager_row(session: Session, now: Moment) -> list[str]:
    manager = managed(session)
    living = bool(alive([session], now))
    return [
        session.info.host,
        "alive" if living else "gone",
        str(session.info.pid),
        str(len(manager.live)) if living else "",
        str(manager.running) if living else "",
        age(session.opened_at, now) if living else "",
        manager.told.target.rsplit("/", 1)[-1],
    ]
