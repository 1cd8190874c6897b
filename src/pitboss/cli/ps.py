"""`pitboss ps`: managers and workers on every host, and what they are doing."""

from typing import TYPE_CHECKING, Annotated

import typer

from pitboss.cli.documents import session_document
from pitboss.cli.options import HostOption, JsonOption, StoreOption, WatchOption, screen_of
from pitboss.cli.screen import Column, Screen
from pitboss.cli.store import Shown, show
from pitboss.cli.words import age, close_to, took
from pitboss.model.duration import Moment
from pitboss.model.errors import NotFound
from pitboss.model.fleet import Managed, managed, managers
from pitboss.model.pool import spoken_size
from pitboss.model.session import Session
from pitboss.model.snapshot import WorkerFigures
from pitboss.model.waiting import alive

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

# So many of an id's last characters name a task: they are random.
_ENOUGH = 12
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
WORKER_COLUMNS = (
    Column("Host"),
    Column("Worker", fills=True),
    Column("Pool", drop=14),
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
PoolOption = Annotated[str | None, typer.Option("--pool", metavar="POOL", help="Only workers of this pool.")]
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
        return await _read(opened, pool, host, everything=everything)

    show(screen_of(context), store, read, as_json=as_json, watch=watch)


async def _read(store: "Store", pool: str | None, host: str | None, *, everything: bool) -> Shown:
    from pitboss import wiring

    now = wiring.SystemClock().now()
    sessions = [one for one in await store.sessions() if one.info.kind == "manager"]
    chosen = [one for one in sessions if host in (None, one.info.host)]
    living = managers(chosen, now)
    gone = [managed(one) for one in chosen if not alive([one], now)] if everything else []
    if host is not None and not living and not gone:
        raise unknown_host(host, managers(sessions, now))
    rows = [(one, worker) for one in living for worker in one.told.workers if pool in (None, worker.pool)]
    if pool is not None and not rows:
        raise unknown_pool(pool, living)
    document = {"managers": [_document(one.session, pool, alive=one in living) for one in (*living, *gone)]}
    return Shown(document, lambda screen: _draw(screen, living, gone, rows, now))


def unknown_host(host: str, fleet: list[Managed]) -> NotFound:
    hosts = sorted({one.host for one in fleet})
    return NotFound(
        f'no manager is running on "{host}"',
        why=f"managers are running on {', '.join(hosts)}" if hosts else "no manager is running on this store",
        fix=f"did you mean {close}?" if (close := close_to(host, hosts)) else "pitboss ps lists the hosts",
    )


def unknown_pool(pool: str, fleet: list[Managed]) -> NotFound:
    known = {worker.pool for one in fleet for worker in one.told.workers}
    names = sorted(known | {figures.name for one in fleet for figures in one.told.pools})
    return NotFound(
        f'no manager runs a pool "{pool}"',
        why=f"the pools are {', '.join(names)}" if names else "no manager is running",
        fix=f"did you mean {close}?" if (close := close_to(pool, names)) else "pitboss pools list shows the pools",
    )


def _document(session: Session, pool: str | None, *, alive: bool) -> dict[str, object]:
    found = session_document(session, alive=alive)
    if pool is not None:
        found["workers"] = [worker for worker in found["workers"] if worker["pool"] == pool]
        found["pools"] = [one for one in found["pools"] if one["name"] == pool]
    return found


def _draw(
    screen: Screen,
    living: list[Managed],
    gone: list[Managed],
    rows: list[tuple[Managed, WorkerFigures]],
    now: Moment,
) -> None:
    if not living and not gone:
        screen.note("no manager is running on this store; start one with pitboss up")
        return
    screen.table(
        _MANAGERS, [*(manager_row(one, now) for one in living), *(manager_row(one, now, gone=True) for one in gone)]
    )
    if rows:
        screen.heading("Workers")
        screen.table(WORKER_COLUMNS, [worker_row(manager, worker, now) for manager, worker in rows])


def manager_row(manager: Managed, now: Moment, *, gone: bool = False) -> list[str]:
    told = manager.told
    return [
        manager.host,
        str(manager.number),
        "gone" if gone else "draining" if told.draining else "alive",
        str(manager.session.info.pid),
        "" if gone else str(len(manager.live)),
        "" if gone else str(manager.running),
        "" if gone else age(manager.session.opened_at, now),
        "yes" if told.term and not gone else "",
        told.version,
        told.target.rsplit("/", 1)[-1],
    ]


def worker_row(manager: Managed, worker: WorkerFigures, now: Moment) -> list[str]:
    """A worker's cells under `WORKER_COLUMNS`. What has no process has no age, memory and so on."""
    lives = bool(worker.pid)
    return [
        manager.host,
        worker.name,
        worker.pool,
        worker.state,
        str(worker.pid) if lives else "",
        age(worker.started_at, now) if lives and worker.started_at else "",
        str(worker.running),
        current_task(worker, now),
        f"{worker.processed:,}",
        f"{worker.succeeded:,}",
        f"{worker.failed:,}",
        took(worker.mean) if worker.processed else "",
        spoken_size(worker.rss) if worker.rss else "",
        f"{worker.cpu:.2f}" if lives else "",
        str(worker.crashes),
        worker.why,
    ]


def current_task(worker: WorkerFigures, now: Moment) -> str:
    """The task that it is at for the longest time, and how many others."""
    if not worker.tasks:
        return ""
    first = min(worker.tasks, key=lambda task: task.since or now)
    since = f" {took(max(now - first.since, 0))}" if first.since else ""
    more = f" +{worker.running - 1}" if worker.running > 1 else ""
    return f"{first.handler} {first.id[-_ENOUGH:]}{since}{more}"
