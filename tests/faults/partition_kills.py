"""Workers and managers join, leave, are killed, paused and restarted while they work on a queue with partitions.

What happened is read from the ledger: a task that ran has the session and the worker of each of its runs.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import psutil

from pitboss.engines.protocol import FullStore
from pitboss.model.canonical import from_json, to_json
from pitboss.model.partition import Partition
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.task import NewTask, Task, last_run
from pitboss.worker.describe import described
from tests.faults.partition_shop import SLOTS, STATES
from tests.manager.cluster import Cluster, ManagerProcess, pool

SHOP = str(Path(__file__).with_name("partition_shop.py"))
QUEUE, POOL = "targets", "scrapers"
HOSTS = ("north", "south")
# Once the dead owner's session has expired, its keys must run again within this time.
SOON = 2.0
LIMIT = 60.0
# So long a task takes that tasks are left for each trouble.
PACE = 0.05
_PAGE = 1000


MEASURED = ("joins", "restarts", "kills")


class Outcome(NamedTuple):
    tasks: int
    runs: int
    moves: int
    troubles: Counter[str]
    # How often what was promised of a join, a restart and a kill could be measured.
    measured: Counter[str]
    longest: float
    faults: list[str]

    def __str__(self) -> str:
        told, measured = (
            ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            for counts in (self.troubles, self.measured)
        )
        waits = f"; keys of dead managers ran again {self.longest:.1f} s after the expiry" if self.longest else ""
        runs = f"{self.tasks} tasks completed in {self.runs} runs, {self.moves} moves of keys"
        return f"{runs}; {told}; measured: {measured}{waits}"

    def unmeasured(self, least: int) -> list[str]:
        """What was not measured that often: a pass says nothing about it."""
        return [
            f"{what}: {self.measured[what]} measured, {least} wanted"
            for what in MEASURED
            if self.measured[what] < least
        ]


class Run(NamedTuple):
    """One run of a task, with the host and name of its worker, and its process if the handler began."""

    key: str
    began: int
    ended: int
    where: tuple[str, str]
    process: str = ""

    def apart(self, other: "Run") -> bool:
        """Whether another worker ran the other one; a successor has the name of its predecessor."""
        processes = {self.process, other.process}
        return self.where != other.where or (len(processes) == 2 and "" not in processes)


class Fleet:
    """Two managers with three workers each, and what happens to them."""

    def __init__(self, house: Cluster, mode: str, random: Random, tasks: int, ttl: float) -> None:
        self._house, self._mode, self._random = house, mode, random
        self._managers: dict[str, ManagerProcess] = {}
        self.troubles, self.measured, self.faults = Counter[str](), Counter[str](), list[str]()
        self.longest = 0.0
        self._size, self._generation = 3, 0
        self._ttl = ttl
        # The number of the next task beside those that were put first.
        self.extra = tasks

    def begin(self) -> None:
        for host in HOSTS:
            self._start(host)
        self._house.until(self._all_owned, within=LIMIT, what="every key has an owner")

    def acts(self) -> list[Callable[[], None]]:
        return [
            self.kill_worker,
            self.pause_worker,
            self.pause_manager,
            self.replace_workers,
            self.restart,
            self.kill_and_restart,
            self.kill_for_good,
            self.join,
            self.leave,
        ]

    def kill_worker(self) -> None:
        self._worker().send_signal(signal.SIGKILL)
        self.troubles["workers killed"] += 1

    def pause_worker(self) -> None:
        """For a moment, or for longer than a session lives."""
        worker, seconds = self._worker(), self._random.choice([1.0, self._ttl + 2])
        worker.send_signal(signal.SIGSTOP)
        self._house.do(asyncio.sleep(seconds))
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGCONT)
        self.troubles["workers paused"] += 1

    def pause_manager(self) -> None:
        """Its session expires meanwhile; its tasks, which are short, end long before."""
        manager = self._managers[self._host()]
        manager.signal(signal.SIGSTOP)
        self._house.do(asyncio.sleep(self._ttl + self._random.choice([-2.0, 2.0])))
        manager.signal(signal.SIGCONT)
        self.troubles["managers paused"] += 1

    def replace_workers(self) -> None:
        """A rolling restart: successors come while their predecessors finish."""
        self._generation += 1
        self._house.wish(POOL, size=self._size, generation=self._generation)
        self.troubles["rolling restarts"] += 1

    def restart(self) -> None:
        """An orderly stop and a start within the grace: no key moves."""
        self._settle_down()
        before, host = self._owners(), self._host()
        manager = self._managers.pop(host)
        manager.end()
        self._back_again("restarts", host, before)

    def kill_and_restart(self) -> None:
        """Killed and started again on the same host, which proves the old one dead: no key moves."""
        self._settle_down()
        before, host = self._owners(), self._host()
        self._kill(host)
        self._back_again("managers killed and restarted", host, before)

    def kill_for_good(self) -> None:
        """Its keys run again elsewhere once its session has expired; the table of a static division makes them wait."""
        host = self._host()
        mine = {one.name: one.session for one in self._slots() if one.node == host}
        lost = {one.key for one in self._keys() if one.owner in mine}
        self._kill(host)
        killed, sessions = time.monotonic(), self._sessions()
        if lost and self._mode != "static":
            # Ahead of all others, which wait for their turn.
            first, self.extra = self.extra, self.extra + len(lost)
            put(self._house, dict(enumerate(sorted(lost), first)), priority=-1)
            self._house.until(
                lambda: len(self._began(first)) == len(lost), within=LIMIT, what="the keys of a dead manager run again"
            )
            late = max(self._began(first).values()) - killed - self._ttl
            if self._sessions() != sessions:
                # On a busy machine the session of the other manager may expire too.
                self.troubles["sessions lost"] += 1
            else:
                self.measured["kills"] += 1
                self.longest = max(self.longest, late)
                if late > SOON:
                    self.faults.append(f"keys of a dead manager ran again {late:.1f} s after its session had expired")
        else:
            self._house.do(asyncio.sleep(self._ttl + 1))
        self._start(host)
        self.troubles["managers killed for good"] += 1

    def join(self) -> None:
        """One more worker on each host: a slot that joins gets at most its share."""
        self._settle_down()
        before, slots, sessions = self._keys(), len(self._slots()), self._sessions()
        self._resize(self._size + 1)
        self._house.until(lambda: len(self._slots()) == slots + 2, within=LIMIT, what="two slots more")
        self._house.do(asyncio.sleep(3.0))
        after = self._keys()
        moved = sum(now.owner != then.owner for now, then in zip(after, before, strict=True))
        # The two may join one after the other. A table does not change.
        most = 0 if self._mode == "static" else ceil(len(before) / (slots + 1)) + ceil(len(before) / (slots + 2))
        if self._sessions() != sessions:
            # On a busy machine a session may expire.
            self.troubles["sessions lost"] += 1
        else:
            self.measured["joins"] += 1
        if self._sessions() == sessions and moved > most:
            owners = [(one.key, then.owner, one.owner) for then, one in zip(before, after, strict=True)]
            self.faults.append(f"{moved} of {len(before)} keys moved when {slots} slots became {slots + 2}: {owners}")
        self.troubles["joins"] += 2

    def leave(self) -> None:
        """One worker less on each host. The last slots of a table come back at once: otherwise their keys wait."""
        if self._size <= 2:
            return
        self._resize(self._size - 1)
        self.troubles["leaves"] += 2
        if self._mode == "static" and 2 * self._size < SLOTS:
            self._house.until(lambda: len(self._slots()) == 2 * self._size, within=LIMIT, what="two slots less")
            self._resize(self._size + 1)

    def end(self) -> None:
        for manager in self._managers.values():
            manager.end()

    def _settle_down(self) -> None:
        """Until every slot is alive and has keys, and no key is on its way."""
        self._house.until(self._is_settled, within=LIMIT, what="the fleet has settled down")

    def _is_settled(self) -> bool:
        slots, keys = self._slots(), self._keys()
        alive = {one.name for one in slots if one.live}
        resting = all(one.moving_to is None for one in keys)
        owners = {one.owner for one in keys}
        divided = owners <= alive if self._mode == "static" else owners == alive
        return len(slots) == len(alive) == 2 * self._size and resting and divided

    def _back_again(self, what: str, host: str, before: dict[str, str | None]) -> None:
        """Start it, and compare who owns what, if it was back within the grace."""
        gone, sessions = time.monotonic(), self._sessions()
        self._start(host)
        took = time.monotonic() - gone
        self.troubles[what if took < self._ttl else f"{what} too late"] += 1
        self._house.until(lambda: all(one.live for one in self._slots()), within=LIMIT, what="all slots live")
        if self._sessions() != sessions | {self._newest()}:
            self.troubles["sessions lost"] += 1
        elif took < self._ttl:
            self.measured["restarts" if what == "restarts" else "kills"] += 1
        if self._sessions() == sessions | {self._newest()} and took < self._ttl and self._owners() != before:
            moved = {key: (before.get(key), owner) for key, owner in self._owners().items() if owner != before.get(key)}
            self.faults.append(f"{what}: back after {took:.1f} s, and keys had moved: {moved}")

    def _resize(self, size: int) -> None:
        self._size = size
        self._house.wish(POOL, size=size)

    def _start(self, host: str) -> None:
        workers = pool(POOL, workers=self._size, concurrency=1)
        self._managers[host] = self._house.manager(workers, ttl=f"{self._ttl}s", elsewhere=host)
        self._house.until(
            lambda: {one.node for one in self._slots() if one.live} >= self._managers.keys(),
            within=LIMIT,
            what=f"slots of {host}",
        )

    def _kill(self, host: str) -> None:
        manager = self._managers.pop(host)
        manager.signal(signal.SIGKILL)
        manager.process.wait()

    def _worker(self) -> psutil.Process:
        workers = [worker for manager in self._managers.values() for worker in manager.workers()]
        return self._random.choice(workers)

    def _host(self) -> str:
        return self._random.choice(HOSTS)

    def _slots(self) -> list[PoolSlot]:
        return list(self._house.do(store_of(self._house).slots()))

    def _sessions(self) -> set[int]:
        """All that were ever opened."""
        return {one.number for one in self._house.do(self._house.engine.sessions())}

    def _newest(self) -> int:
        return max(self._sessions())

    def _keys(self) -> list[Partition]:
        return list(self._house.do(store_of(self._house).partitions(QUEUE)))

    def _owners(self) -> dict[str, str | None]:
        return {one.key: one.owner for one in self._keys()}

    def _all_owned(self) -> bool:
        keys = self._keys()
        return len(keys) == len(STATES) and all(one.owner is not None for one in keys)

    def _began(self, first: int) -> dict[int, float]:
        """When the tasks from this number on began. By the handlers' own clock: looking takes long while the machine is
        busy."""
        began = [(int(number), int(at) / 1e9) for _, number, _, _, _, at in self._house.traced("began")]
        return dict(reversed([(number, at) for number, at in began if number >= first]))


def troubled(url: str, folder: Path, mode: str, tasks: int, rounds: int, seed: int, ttl: float = 4.0) -> Outcome:
    """Put tasks, let each trouble happen in random order, `rounds` times, and wait until every task has ended.

    `ttl`: how many seconds a session lives; a restart that takes longer, on a busy machine, is not measured."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(seed)
    os.environ |= {"PARTITION_MODE": mode, "PARTITION_PACE": str(PACE)}
    house = Cluster(url, folder, SHOP)
    fleet = Fleet(house, mode, random, tasks, ttl)
    try:
        assert house.do(store_of(house).declare(described(SHOP).declared))
        put(house, {number: random.choice(STATES) for number in range(tasks)})
        fleet.begin()
        for _ in range(rounds):
            acts = fleet.acts()
            random.shuffle(acts)
            for act in acts:
                act()
                house.do(asyncio.sleep(random.uniform(0.2, 1.0)))
        house.until(lambda: house.finished() >= fleet.extra, within=LIMIT + tasks / 20, what="every task has ended")
        fleet.end()
        found = house.tasks()
        runs = _runs(house, found)
        faults = [*fleet.faults, *_unsound(found, fleet.extra), *double_owners(runs)]
        moves = sum(one.epoch - 1 for one in house.do(store_of(house).partitions(QUEUE)))
        return Outcome(len(found), len(runs), moves, fleet.troubles, fleet.measured, fleet.longest, faults)
    finally:
        house.close()


def put(house: Cluster, states: Mapping[int, str], *, priority: int = 0) -> None:
    """Tasks with these numbers."""
    tasks = [
        NewTask(
            id=house.new_id(),
            handler="scrape",
            queue=QUEUE,
            params=to_json({"number": number, "state": state}),
            priority=priority,
        )
        for number, state in states.items()
    ]
    for start in range(0, len(tasks), _PAGE):
        house.do(house.engine.put(tasks[start : start + _PAGE]))


def store_of(house: Cluster) -> FullStore:
    return cast("FullStore", house.engine)


def _unsound(found: list[Task], tasks: int) -> list[str]:
    """What the ledger says: each task completed."""
    wrong = [f"task {one.id} is {one.state}: {one.reason}, {one.error}" for one in found if one.state != "completed"]
    return wrong + ([] if len(found) == tasks else [f"there are {len(found)} tasks, {tasks} were put"])


def _runs(house: Cluster, found: list[Task]) -> list[Run]:
    """All runs that started, by key and moment."""
    processes = {(int(number), token): pid for _, number, _, pid, token, _ in house.traced("began")}
    hosts = {session.number: session.info.host for session in house.do(house.engine.sessions())}
    runs = []
    for task in found:
        ended = last_run(task)
        every = [*(house.attempts(task.id) if task.claim > 1 else ()), *([ended] if ended else [])]
        # A claim that went back before it started has no worker.
        runs += [
            Run(
                task.partition or "",
                one.started_at,
                one.ended_at,
                (hosts[one.session or 0], one.worker),
                processes.get((from_json(task.params)["number"], f"{one.session}.{one.claim}"), ""),
            )
            for one in {one.claim: one for one in every}.values()
            if one.worker is not None
        ]
    return sorted(runs)


def double_owners(runs: list[Run]) -> list[str]:
    """Runs of one key in two workers at once."""
    lines, faults = defaultdict[str, list[Run]](list), list[str]()
    for run in runs:
        for earlier in lines[run.key]:
            if earlier.apart(run) and earlier.ended > run.began:
                faults.append(f"key {run.key} ran at {earlier.where} and {run.where} at once: {earlier}, {run}")
        lines[run.key] = [one for one in lines[run.key] if one.ended > run.began] + [run]
    return faults
