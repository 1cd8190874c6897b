"""`pitboss ps`: managers and workers on every host, and what they run."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.command import HostOption, JsonOption, Shown, StoreOption, WatchOption, now, screen_of, show
from pitboss.cli.formatting import age, short, took
from pitboss.cli.screen import Column, Screen
from pitboss.model.duration import Moment
from pitboss.model.fleet import ManagerView
from pitboss.model.pool import spoken_size
from pitboss.model.snapshot import DeliveryFigures, ServerFigures, WorkerFigures
from pitboss.model.text import listed
from pitboss.operate.documents import managers_document
from pitboss.operate.remote_documents import remote_worker_document
from pitboss.operate.remote_workers import RemoteWorker, RemoteWorkers
from pitboss.operate.workers import ManagersReading, read_managers

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_MANAGERS = (
    Column("Host", fills=True),
    Column("Manager", right=True),
    Column("State"),
    Column("Pid", right=True, drop=5),
    Column("Workers", right=True),
    Column("Running", right=True),
    Column("Up", right=True),
    Column("Leads", drop=4),
    Column("Release", drop=6),
    Column("App", drop=3),
)
_WORKERS = (
    Column("Host"),
    Column("Worker", fills=True),
    Column("Pool", drop=14),
    Column("Slot", right=True, drop=5),
    Column("State"),
    Column("Pid", right=True, drop=13),
    Column("Up", right=True, drop=10),
    Column("Running", right=True),
    Column("Task", drop=2),
    Column("Done", right=True, drop=8),
    Column("Ok", right=True, drop=15),
    Column("Failed", right=True, drop=6),
    Column("Mean", right=True, drop=12),
    Column("Memory", right=True, drop=7),
    Column("Cpu", right=True, drop=11),
    Column("Crashes", right=True, drop=9),
    Column("Why", drop=3),
)
_SLOT = [column.title for column in _WORKERS].index("Slot")
_SERVERS = (
    Column("Host"),
    Column("Address", fills=True),
    Column("State"),
    Column("Pid", right=True, drop=3),
    Column("Restarts", right=True, drop=2),
    Column("Why", drop=1),
)
_SOURCES = (
    Column("Host"),
    Column("Sources and channels", fills=True),
    Column("State"),
    Column("Pid", right=True, drop=3),
    Column("Restarts", right=True, drop=2),
    Column("Why", drop=1),
)
_REMOTE = (
    Column("Remote worker", fills=True),
    Column("State"),
    Column("Running", right=True),
    Column("Types", drop=1),
    Column("Heard", right=True, drop=2),
)
PoolOption = Annotated[str | None, typer.Option("--pool", metavar="POOL", help="Only workers of this worker pool.")]
GoneOption = Annotated[bool, typer.Option("--all", help="Also managers that ended within the last hour.")]


def ps(
    context: typer.Context,
    pool: PoolOption = None,
    host: HostOption = None,
    everything: GoneOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    watch: WatchOption = None,
) -> None:
    """List managers and workers on all hosts.

    \b
    Examples:
      pitboss ps
      pitboss ps --pool download --host box1
      pitboss ps --watch 2s
    """

    async def read(opened: "Store") -> Shown:
        moment = now(opened)
        found = await read_managers(opened, moment, host=host, pool=pool, with_gone=everything)
        remote = await RemoteWorkers(opened).all(moment) if host is None and pool is None else []
        shown = [one for one in remote if everything or one.status != "offline"]
        document = managers_document(found) | {"remote_workers": [remote_worker_document(one) for one in shown]}

        def draw(screen: Screen) -> None:
            _draw(screen, found, moment)
            _draw_remote(screen, shown, moment)

        return Shown(document, draw)

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


def _draw(screen: Screen, found: ManagersReading, moment: Moment) -> None:
    if not found.living and not found.gone:
        screen.note("no manager is running on this store; start one with pitboss up")
        return
    living = [_manager_row(one, moment) for one in found.living]
    screen.table(_MANAGERS, [*living, *(_manager_row(one, moment, gone=True) for one in found.gone)])
    workers = [
        (one, worker) for one in found.living for worker in one.snapshot.workers if found.pool in (None, worker.pool)
    ]
    if workers:
        screen.heading("Workers")
        # Only workers that serve a queue with partitions have numbers.
        hidden = {_SLOT} if all(worker.slot is None for _, worker in workers) else set()
        rows = (_worker_row(one, worker, moment) for one, worker in workers)
        shown = [[cell for index, cell in enumerate(row) if index not in hidden] for row in rows]
        screen.table([one for index, one in enumerate(_WORKERS) if index not in hidden], shown)
    servers = [(one, one.snapshot.http) for one in found.living if one.snapshot.http and found.pool is None]
    if servers:
        screen.heading("HTTP servers")
        screen.table(_SERVERS, [_server_row(one, server) for one, server in servers])
    sources = [(one, one.snapshot.delivery) for one in found.living if one.snapshot.delivery and found.pool is None]
    if sources:
        screen.heading("Delivery processes")
        screen.table(_SOURCES, [_source_row(one, process) for one, process in sources])


def _draw_remote(screen: Screen, workers: list[RemoteWorker], moment: Moment) -> None:
    if workers:
        screen.heading("Remote workers")
        rows = [
            [one.id, one.status, str(len(one.tasks)), ", ".join(one.card.types), age(one.seen_at, moment)]
            for one in workers
        ]
        screen.table(_REMOTE, rows)


def _manager_row(manager: ManagerView, moment: Moment, *, gone: bool = False) -> list[str]:
    snapshot = manager.snapshot
    return [
        manager.host,
        str(manager.number),
        "gone" if gone else "draining" if snapshot.draining else "alive",
        str(manager.session.info.pid),
        "" if gone else str(len(manager.live)),
        "" if gone else str(manager.running),
        "" if gone else age(manager.session.opened_at, moment),
        "yes" if snapshot.term and not gone else "",
        snapshot.version,
        snapshot.target.rsplit("/", 1)[-1],
    ]


def _worker_row(manager: ManagerView, worker: WorkerFigures, moment: Moment) -> list[str]:
    """A worker without a process has no age, memory and so on."""
    lives = bool(worker.pid)
    return [
        manager.host,
        worker.name,
        worker.pool,
        "" if worker.slot is None else str(worker.slot),
        worker.state,
        str(worker.pid) if lives else "",
        age(worker.started_at, moment) if lives and worker.started_at else "",
        str(worker.running),
        current_task(worker, moment),
        f"{worker.processed:,}",
        f"{worker.succeeded:,}",
        f"{worker.failed:,}",
        took(worker.mean) if worker.processed else "",
        spoken_size(worker.rss) if worker.rss else "",
        f"{worker.cpu:.2f}" if lives else "",
        str(worker.crashes),
        worker.why,
    ]


def _server_row(manager: ManagerView, server: ServerFigures) -> list[str]:
    pid = str(server.pid) if server.pid else ""
    return [manager.host, server.url, server.state, pid, str(server.restarts), server.why]


def _source_row(manager: ManagerView, process: DeliveryFigures) -> list[str]:
    pid = str(process.pid) if process.pid else ""
    serves = listed((*process.names, *process.channels))
    return [manager.host, serves, process.state, pid, str(process.restarts), process.why]


def current_task(worker: WorkerFigures, moment: Moment) -> str:
    """The task that has run longest, and how many others run."""
    if not worker.tasks:
        return ""
    first = min(worker.tasks, key=lambda task: task.since or moment)
    since = f" {took(max(moment - first.since, 0))}" if first.since else ""
    more = f" +{worker.running - 1}" if worker.running > 1 else ""
    return f"{first.handler} {short(first.id)}{since}{more}"
