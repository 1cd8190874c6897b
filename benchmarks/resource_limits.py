"""How much of their limits is used, and is any limit exceeded? `python -m benchmarks.resource_limits [--quick]`

Two `pitboss up` managers work through a backlog. Each task sends one HTTP request for a member of a pool. The server
(`far_side.py`) logs the arrivals. That log alone determines the violations, and how much later the last arrival was
than the soonest time that the limits allow (`pitboss.simulate.bound`, without the guard).
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from benchmarks import resource_report
from benchmarks.far_side import FarSide, Visit
from pitboss import wiring
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND, span
from pitboss.model.ids import IdMaker
from pitboss.model.queue import QueueChange
from pitboss.model.resource import Limits, NewResource, PoolRules
from pitboss.model.resource_keys import checked_keys, rules_of
from pitboss.model.task import NewTask
from pitboss.simulate.bound import starts
from pitboss.worker.describe import described
from tests.servers.postgres import PostgresServer

T = TypeVar("T")
POOL = "members"
GUARD = "50ms"
# Tasks at a time in each of the two managers: worker processes × tasks at once in each.
SLOTS = {"2 × 1": (1, 1), "2 × 4": (2, 2), "2 × 20": (2, 10)}
PATIENCE = 3.0
APP = """
import asyncio
from pitboss import App, Lease

app = App()
members = app.resources("members", **{keys!r})

@app.task(max_attempts=1)
async def use(member: Lease = members.lease()) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    writer.write(f"GET /{{member.name}} HTTP/1.1\\r\\nHost: far\\r\\n\\r\\n".encode())
    assert b" 200 " in await reader.readline()
    writer.close()
"""


class Load(NamedTuple):
    """A limit and its load. `seconds` is the shortest duration; `service` is how long the server takes."""

    name: str
    bar: float
    members: int
    keys: dict[str, Any]
    service: float
    seconds: float

    @property
    def rules(self) -> PoolRules:
        return rules_of(checked_keys({**self.keys, "guard": GUARD}))

    def best(self, slots: int) -> list[float]:
        """The soonest times of its uses, up to `seconds`."""
        limits = [self.rules.limits] * self.members
        found: list[float] = []
        for at, _ in starts(limits, service=span(self.service), slots=slots):
            if at >= self.seconds * SECOND:
                return found
            found.append(at / SECOND)
        return found


LOADS = (
    Load("window", 0.98, 12, {"rate": "4/10s, 7/20s", "concurrency": None}, 0.01, 50.0),
    Load("gap", 0.97, 40, {"min_delay": "5s"}, 0.01, 45.0),
    Load("concurrency", 0.95, 5, {"concurrency": 2}, 0.4, 40.0),
)
QUICK = (
    Load("window", 0.5, 4, {"rate": "3/2s"}, 0.01, 4.5),
    Load("gap", 0.5, 6, {"min_delay": "1s"}, 0.01, 3.0),
    Load("concurrency", 0.5, 3, {"concurrency": 2}, 0.2, 3.0),
)


class Came(NamedTuple):
    """The result of one load on one store."""

    uses: int
    bound: float
    took: float
    late: list[float]
    violations: list[str]

    @property
    def efficiency(self) -> float:
        return self.bound / self.took


class Yard:
    """A store with a backlog and two managers, in its own folder."""

    def __init__(self, url: str, folder: Path, load: Load, port: int) -> None:
        self._url, self._folder = url, folder
        self._runner = asyncio.Runner()
        (folder / "app.py").write_text(APP.format(keys={**load.keys, "guard": GUARD}, port=port))
        self.engine = cast("FullStore", wiring.make_engine(url))
        self.do(self.engine.open())
        self.do(self.engine.declare_pool(POOL, load.rules))
        names = [NewResource(name=f"m{number}") for number in range(load.members)]
        self.do(self.engine.add_resources(POOL, names))
        self.do(self.engine.register(described(str(folder / "app.py")).handlers))
        self.do(self.engine.change_queue(POOL, QueueChange(paused=True)))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def put(self, count: int) -> None:
        new_id = IdMaker(wiring.SystemClock().now, wiring.randbits())
        self.do(self.engine.put([NewTask(id=new_id(), handler="use", queue=POOL) for _ in range(count)]))

    def open_the_queue(self) -> float:
        at = time.monotonic()
        self.do(self.engine.change_queue(POOL, QueueChange(paused=False)))
        return at

    @contextmanager
    def manager(self, number: int, workers: int, concurrency: int) -> Iterator[None]:
        command = [str(Path(sys.executable).with_name("pitboss")), "up", "app.py", "--quiet", "--store", self._url]
        command += ["--workers", str(workers), "--concurrency", str(concurrency)]
        log = self._folder / f"up-{number}.log"
        with log.open("w") as out:
            process = subprocess.Popen(command, cwd=self._folder, stdout=out, stderr=subprocess.STDOUT)
        try:
            until(lambda: log.read_text().count("is ready") >= workers, 60, log.read_text)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def said(self) -> str:
        return "\n".join(log.read_text()[-2000:] for log in sorted(self._folder.glob("up-*.log")))

    def close(self) -> None:
        self.do(self.engine.close())
        self._runner.close()


def until(condition: Callable[[], object], seconds: float, told: Callable[[], str]) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {seconds:g} s:\n{told()}")
        time.sleep(0.05)


def run(load: Load, url: str, slots: tuple[int, int], folder: Path) -> Came:
    workers, concurrency = slots
    best = load.best(2 * workers * concurrency)
    with FarSide(load.service) as far, ExitStack() as stack:
        yard = Yard(url, folder, load, far.port)
        stack.callback(yard.close)
        # More than can be used, so that the end of the backlog does not matter.
        yard.put(len(best) + 2 * workers * concurrency + load.members)
        for number in range(2):
            stack.enter_context(yard.manager(number, workers, concurrency))
        time.sleep(1)
        began = yard.open_the_queue()
        until(lambda: far.count >= len(best), load.seconds * PATIENCE + 10, yard.said)
        arrivals = sorted(visit.at for visits in far.visits.values() for visit in visits)
        visits = {name: list(seen) for name, seen in far.visits.items()}
    late = [one for seen in visits.values() for one in lateness(seen, load.rules.limits)]
    return Came(
        uses=len(best),
        bound=best[-1],
        took=arrivals[len(best) - 1] - began,
        late=late,
        violations=[f"{name}: {fault}" for name, seen in visits.items() for fault in broken(seen, load.rules.limits)],
    )


def broken(visits: list[Visit], limits: Limits) -> list[str]:
    """Every limit that the arrivals of one member break."""
    at = sorted(visit.at for visit in visits)
    found = []
    for window in limits.windows:
        spans = [last - first for first, last in zip(at, at[window.count :], strict=False)]
        found += [f"{window.count + 1} uses in {one:.3f} s" for one in spans if one < window.per / SECOND]
    gaps = [after - before for before, after in pairwise(at)]
    found += [f"two uses {gap:.3f} s apart" for gap in gaps if gap < limits.min_delay / SECOND]
    most = limits.concurrency
    return found + [f"{visit.beside} beside it" for visit in visits if most is not None and visit.beside >= most]


def lateness(visits: list[Visit], limits: Limits) -> list[float]:
    """How much later each use came than windows and gap allowed, given the uses before it."""
    at = sorted(visit.at for visit in visits)
    found = []
    for place in range(1, len(at)):
        opens = [at[place - 1] + limits.min_delay / SECOND]
        opens += [at[place - one.count] + one.per / SECOND for one in limits.windows if place >= one.count]
        found.append(at[place] - max(opens))
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def row(load: Load, kind: str, slots: str, came: Came) -> list[str]:
    passed = came.efficiency >= load.bar and not came.violations
    # If the server's own time dominates, lateness after the previous use says nothing.
    late = (
        "–"
        if load.name == "concurrency"
        else f"{quantile(came.late, 0.5) * 1000:.0f} / {quantile(came.late, 0.99) * 1000:.0f}"
    )
    figures = [f"{came.uses:,}", f"{came.bound:.2f}", f"{came.took:.2f}", f"{came.efficiency:.1%}", f"{load.bar:.0%}"]
    return [load.name, kind, slots, *figures, late, str(len(came.violations)), "yes" if passed else "NO"]


HEAD = [
    "load",
    "store",
    "slots",
    "uses",
    "bound s",
    "took s",
    "efficiency",
    "bar",
    "late ms p50 / p99",
    "violations",
    "met",
]


def measured(loads: tuple[Load, ...], kinds: list[str], slots: list[str]) -> list[list[str]]:
    rows = []
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer()) if "postgres" in kinds else None
        for load in loads:
            for kind in kinds:
                for name in slots:
                    with tempfile.TemporaryDirectory(prefix="pitboss-limits-") as place:
                        url = server.create_database() if server and kind == "postgres" else f"sqlite:///{place}/b.db"
                        came = run(load, url, SLOTS[name], Path(place))
                    rows.append(row(load, kind, name, came))
                    print("| " + " | ".join(rows[-1]) + " |", *came.violations[:5], sep="\n  ", flush=True)
    return rows


def told(loads: tuple[Load, ...], rows: list[list[str]]) -> str:
    limits = "\n".join(
        f"- *{load.name}*: {load.members} members, {load.keys}, the server takes {load.service * 1000:.0f} ms"
        for load in loads
    )
    return f"""\
Two `pitboss up` managers on one store work through a backlog of HTTP requests to a server on loopback, each for a
member of a pool. Server, managers, workers and store share the cores. The guard is {GUARD}. *Bound* is the time of the
last use in a schedule that uses every member as soon as its limits allow, without guard and without any cost; *took*
is when that use arrived. Both count from the moment when the queue was opened. Violations are counted in the server's
own log of arrivals. *Late* is how much later a use arrived than windows and gap allowed, guard included.

{limits}

{resource_report.table(HEAD, rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resource_limits")
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds; writes nothing")
    parser.add_argument("--only", help="window, gap or concurrency")
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--slots", choices=SLOTS, help="only these")
    given = parser.parse_args()
    loads = tuple(load for load in (QUICK if given.quick else LOADS) if given.only in (None, load.name))
    kinds = given.stores.split(",")
    slots = [given.slots] if given.slots else ["2 × 4"] if given.quick else list(SLOTS)
    print("| " + " | ".join(HEAD) + " |")
    rows = measured(loads, kinds, slots)
    if not given.quick and len(rows) == len(LOADS) * 2 * len(SLOTS):
        resource_report.write("limits", "Limits: how much of them is used", told(loads, rows))
    return 0 if all(one[-1] == "yes" for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
