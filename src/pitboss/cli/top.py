"""`pitboss top`: worker pools, queues and workers, live."""

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from pitboss.cli.command import StoreOption, ask, now, screen_of
from pitboss.cli.formatting import age, sparkline, time_of_day, took
from pitboss.cli.ps import current_task
from pitboss.cli.screen import Column, Screen
from pitboss.cli.status import forecast_text, until_text
from pitboss.engines.capabilities import capabilities
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.figures import RAW, bucket
from pitboss.model.fleet import ManagerView, WorkerPoolView, live_managers, worker_pools
from pitboss.model.pool import spoken_size
from pitboss.model.queue import Queue
from pitboss.model.queue_forecast import QueueForecast
from pitboss.model.snapshot import WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.model.text import counted
from pitboss.model.verdict import Verdict, store_away
from pitboss.operate.status import Status, read_status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pitboss.engines.protocol import Store

_REFRESH_SECONDS = 1.0
# The verdict and the forecasts change more slowly than the figures, and cost more.
_JUDGED: Span = 5 * SECOND
_SPARKS = 12
_FEW = 10
_RATE_SPAN: Span = 5 * SECOND
_SAMPLES = 2
_POOLS = (
    Column("Pool", fills=True),
    Column("Host"),
    Column("State"),
    Column("Workers", right=True),
    Column("Running", right=True),
    Column("Done/s", right=True),
    Column("Mean", right=True, drop=2),
    Column("Memory", right=True, drop=1),
    Column("Cpu", right=True, drop=3),
    Column("Crashes", right=True, drop=4),
    Column("Why", drop=5),
)
_QUEUES = (
    Column("Queue", fills=True),
    Column("Pending", right=True),
    Column("Running", right=True),
    Column("Scheduled", right=True, drop=2),
    Column("Failed", right=True),
    Column("In/s", right=True),
    Column("Done/s", right=True),
    Column("In, 1h", drop=4),
    Column("Out, 1h", drop=3),
    Column("Forecast", drop=1),
)
_WORKERS = (
    Column("Worker", fills=True),
    Column("Host"),
    Column("State"),
    Column("Running", right=True),
    Column("Done/s", right=True),
    Column("Task", drop=1),
    Column("Up", right=True, drop=4),
    Column("Memory", right=True, drop=2),
    Column("Cpu", right=True, drop=3),
    Column("Why", drop=5),
)


# By queue: tasks that came and that ended per second.
QueueRates = Mapping[str, tuple[float, float]]


class RateMeter:
    """Rates per second over the last few seconds. A count that falls starts over: the process was replaced."""

    def __init__(self, over: Span = _RATE_SPAN) -> None:
        self._over = over
        self._samples: dict[Hashable, deque[tuple[Moment, int]]] = {}

    def add(self, key: Hashable, at: Moment, count: int) -> None:
        """A count at a moment; one that is not newer than the last is ignored."""
        samples = self._samples.setdefault(key, deque())
        if samples and at <= samples[-1][0]:
            return
        if samples and count < samples[-1][1]:
            samples.clear()
        samples.append((at, count))
        # A rate needs two samples, so the last two always stay.
        while len(samples) > _SAMPLES and samples[1][0] <= at - self._over:
            samples.popleft()

    def rate(self, key: Hashable) -> float | None:
        """None until there are two samples."""
        samples = self._samples.get(key, deque())
        if len(samples) < _SAMPLES:
            return None
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) * SECOND / (ended - began)


class Panel(NamedTuple):
    """A table under a title."""

    title: str
    columns: Sequence[Column]
    rows: list[list[str]]


class Picture(NamedTuple):
    """What is shown at one moment. `said` is the verdict with its cause."""

    headline: str
    panels: list[Panel]
    said: Sequence[str] = ()


def top(context: typer.Context, store: StoreOption = None) -> None:
    """Watch worker pools, queues and workers live; q quits.

    \b
    Examples:
      pitboss top
      pitboss top > figures.txt

    Where stdout is not a terminal, it prints the figures once.
    """
    screen = screen_of(context)
    if not screen.out.is_terminal:
        _print(screen, ask(screen, store, lambda opened: Look(opened).picture()))
        return
    with contextlib.suppress(KeyboardInterrupt):
        ask(screen, store, lambda opened: _live(screen, opened))


async def _live(screen: Screen, store: "Store") -> None:
    import asyncio

    from rich.live import Live

    ended = asyncio.Event()
    look = Look(store)
    with _keys(ended.set), Live(console=screen.out, screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            live.update(_drawn(screen, await look.picture()), refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await ended.wait()


@contextlib.contextmanager
def _keys(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` when q is pressed, if there is a keyboard."""
    if not sys.stdin.isatty():
        yield
        return
    import asyncio
    import termios
    import tty

    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            loop.remove_reader(keyboard)
            end()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


class Look:
    """Reads the store again and again."""

    def __init__(self, store: "Store") -> None:
        self._store, self._meter = store, RateMeter()
        self._status: Status | None = None
        self._last: Picture | None = None

    async def picture(self) -> Picture:
        """What is there now. While the store is away: what was there last, and that it is away."""
        try:
            self._last = await self._picture()
        except StoreUnavailable as error:
            if self._last is None:
                raise
            away = store_away(error.what, error.why, error.fix)
            return self._last._replace(said=_said(away, self._status.now if self._status is not None else 0))
        return self._last

    async def _picture(self) -> Picture:
        moment = now(self._store)
        if self._status is None or moment - self._status.now >= _JUDGED:
            self._status = await read_status(self._store, moment)
        queues, sessions = await self._store.queues(), await self._store.sessions()
        rates = await _queue_rates(self._store, moment)
        return picture(live_managers(sessions, moment), queues, self._meter, moment, self._status, rates)


async def _queue_rates(store: "Store", moment: Moment) -> QueueRates | None:
    """Tasks that came and that ended per second, by queue: of the last ten to twenty seconds, as the store counted
    them. Numbers of tasks by state would not do: pruning and bulk retries change them too."""
    figures = capabilities(store).figures
    if figures is None:
        return None
    since = bucket(moment, RAW) - RAW
    passed, found = (moment - since) / SECOND, dict[str, tuple[float, float]]()
    for one in await figures.flows(since, moment + 1, span=RAW):
        came, ended = found.get(one.queue, (0.0, 0.0))
        found[one.queue] = came + one.arrived / passed, ended + one.ended / passed
    return found


def picture(
    managers: Sequence[ManagerView],
    queues: Sequence[Queue],
    meter: RateMeter,
    moment: Moment,
    status: Status | None = None,
    queue_rates: QueueRates | None = None,
) -> Picture:
    """Everything at this moment; the rates of workers are since earlier calls with the same meter. `queue_rates` None:
    the store does not count what comes and ends."""
    forecasts = {} if status is None else status.forecasts
    workers = [(one, worker) for one in managers for worker in one.snapshot.workers]
    for one, worker in workers:
        # A worker's figures are as old as its manager's last renewal.
        meter.add(_worker_key(one, worker), one.renewed_at, worker.processed)
    rows = [_worker_row(one, worker, meter, moment) for one, worker in sorted(workers, key=_rank)]
    panels = [
        Panel("Pools", _POOLS, [_pool_row(view, meter) for view in worker_pools(managers)]),
        Panel("Queues", _QUEUES, [_queue_row(one, queue_rates, forecasts.get(one.name)) for one in queues]),
        Panel("Workers", _WORKERS, rows),
    ]
    verdict = () if status is None else _said(status.verdict, moment)
    return Picture(_headline(managers, queues, moment), [panel for panel in panels if panel.rows], verdict)


def _said(verdict: Verdict, moment: Moment) -> tuple[str, ...]:
    """The sentence, its cause, and until when."""
    until = until_text(verdict, moment)
    told = (verdict.sentence, verdict.why and f"Cause: {verdict.why}", until and f"Until: {until}")
    return tuple(line for line in told if line)


def _headline(managers: Sequence[ManagerView], queues: Sequence[Queue], moment: Moment) -> str:
    waiting = sum(queue.waiting for queue in queues)
    failed = sum(queue.counts.get(State.FAILED, 0) for queue in queues)
    workers = sum(len(one.live) for one in managers)
    parts = (
        time_of_day(moment),
        counted(len(managers), "manager"),
        counted(workers, "worker"),
        f"{sum(one.running for one in managers):,} running",
        f"{waiting:,} waiting",
        f"{failed:,} failed",
    )
    return " · ".join(parts)


def _pool_row(view: WorkerPoolView, meter: RateMeter) -> list[str]:
    workers = view.live
    rates = [meter.rate(_worker_key(view.manager, worker)) for worker in workers]
    done = sum(worker.processed for worker in workers)
    mean = sum(worker.mean * worker.processed for worker in workers) // done if done else None
    return [
        view.pool.name,
        view.manager.host,
        view.state,
        f"{len(view.ready)}/{view.pool.wanted}",
        f"{view.running:,}",
        _per_second(sum(rate for rate in rates if rate is not None) if any(r is not None for r in rates) else None),
        took(mean),
        spoken_size(memory) if (memory := sum(worker.rss for worker in workers)) else "",
        f"{sum(worker.cpu for worker in workers):.2f}",
        str(sum(worker.crashes for worker in view.workers)),
        view.pool.why,
    ]


def _queue_row(queue: Queue, counted: QueueRates | None, found: QueueForecast | None) -> list[str]:
    name = f"{queue.name} (paused)" if queue.paused else queue.name
    shown = (State.PENDING, State.RUNNING, State.SCHEDULED, State.FAILED)
    rates = ["", ""] if counted is None else [_per_second(rate) for rate in counted.get(queue.name, (0.0, 0.0))]
    most = 0 if found is None else max([*found.came, *found.went], default=0)
    told = ["", "", ""] if found is None else [*_sparks(found, most), forecast_text(found)]
    return [name, *(f"{queue.counts.get(state, 0):,}" for state in shown), *rates, *told]


def _sparks(found: QueueForecast, most: int) -> list[str]:
    """Its last hour at one height, so that in and out can be compared; nothing if nothing came or went."""
    return [sparkline(values, _SPARKS, most) if most else "" for values in (found.came, found.went)]


def _worker_row(manager: ManagerView, worker: WorkerFigures, meter: RateMeter, moment: Moment) -> list[str]:
    lives = bool(worker.pid)
    return [
        worker.name,
        manager.host,
        worker.state,
        str(worker.running),
        _per_second(meter.rate(_worker_key(manager, worker))) if lives else "",
        current_task(worker, moment),
        age(worker.started_at, moment) if lives and worker.started_at else "",
        spoken_size(worker.rss) if worker.rss else "",
        f"{worker.cpu:.2f}" if lives else "",
        worker.why,
    ]


def _rank(row: tuple[ManagerView, WorkerFigures]) -> tuple[bool, float]:
    """Workers in trouble first, then by CPU: the screen may not hold all of them."""
    _, worker = row
    trouble = worker.state in (WorkerState.CRASHED, WorkerState.RESTARTING) or bool(worker.why)
    return not trouble, -worker.cpu


def _worker_key(manager: ManagerView, worker: WorkerFigures) -> tuple[int, str, int]:
    return manager.number, worker.name, worker.pid


def _per_second(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:.1f}" if 0 < rate < _FEW else f"{rate:,.0f}"


def _drawn(screen: Screen, shown: Picture) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{shown.headline} · q quits", style="reverse", no_wrap=True)]
    parts += [Text(line) for line in shown.said]
    for panel in shown.panels:
        parts += [Text(), Text(panel.title, style="bold"), screen.rich_table(panel.columns, panel.rows)]
    return Group(*parts)


def _print(screen: Screen, shown: Picture) -> None:
    screen.line(shown.headline)
    for line in shown.said:
        screen.line(line)
    for panel in shown.panels:
        screen.heading(panel.title)
        screen.table(panel.columns, panel.rows)
