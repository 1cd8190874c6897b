"""Events are published and handled while publisher, workers and managers are killed (SIGKILL) at random moments.

In the middle there is a time without any worker. What happened is read from the ledger, from the publisher's journal,
and from a file in which the handlers write what they do.
"""

import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import psutil

from pitboss.engines.protocol import FullStore
from pitboss.model.event import EventId, event_task_id
from pitboss.model.states import State
from pitboss.model.task import Task
from tests.faults.event_publisher import has_ended, key_of, published
from tests.faults.event_shop import HANDLERS
from tests.faults.recording import ROOT
from tests.manager.cluster import Cluster, ManagerProcess

SHOP = str(Path(__file__).with_name("event_shop.py"))
ORDERED = "book"
KEYS = 6
# The part of the events that are published while no worker runs.
_DOWN, _UP = 0.4, 0.6
_PAGE = 500
# Within this time a publisher is killed that has come to its number.
_SOON = 0.02
LIMIT = 120.0


class Kills(NamedTuple):
    """How many of each."""

    publishers: int
    workers: int
    managers: int


class Outcome(NamedTuple):
    """The outcome. `runs` are all attempts, also those that raised, were killed, or were not accepted."""

    tasks: int
    runs: int
    killed: Counter[str]
    faults: list[str]

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {name}" for name, count in sorted(self.killed.items()))
        return f"{self.tasks} tasks completed in {self.runs} runs; killed: {killed}"


class Attempt(NamedTuple):
    """One run of the ordered handler, as the file has it; `end` is None if it was killed."""

    begin: int
    number: int
    end: int | None
    succeeded: bool


class Lines:
    """Counts the lines of a file that others append to."""

    def __init__(self, file: Path, word: str = "") -> None:
        self._file, self._word = file, word.encode()
        self._read = 0
        self._count = 0

    def count(self) -> int:
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._read)
                new = lines.read().rpartition(b"\n")
            self._read += len(new[0]) + len(new[1])
            self._count += sum(line.startswith(self._word) and b" " in line for line in new[0].splitlines())
        return self._count


class Trouble:
    """The processes, and when which of them is killed: at random shares of the work."""

    def __init__(self, house: Cluster, folder: Path, events: int, kills: Kills, random: Random) -> None:
        self._house, self._events, self._random = house, events, random
        self.journal = folder / "journal"
        self.killed = Counter[str]()
        self._told, self._ended = Lines(self.journal), Lines(house.traces, "ended")
        self._publisher: subprocess.Popen[bytes] | None = None
        self._managers: list[ManagerProcess] = []
        self._due = {
            "workers": self._moments(kills.workers, 0.9 * events * len(HANDLERS)),
            "managers": self._moments(kills.managers, 0.9 * events * len(HANDLERS)),
        }
        self._deaths = [int(moment) for moment in self._moments(kills.publishers, events)]
        self._is_down, self._was_down = False, False

    def _moments(self, count: int, most: float) -> list[float]:
        return sorted((self._random.uniform(0, most) for _ in range(count)), reverse=True)

    def begin(self) -> None:
        self._start_manager()
        self._house.until(self._is_declared, within=LIMIT, what="the app is declared")
        self._start_manager()

    def is_over(self) -> bool:
        """Look at what is to be done now; whether everything is published and every task has ended."""
        told, ended = self._told.count(), self._ended.count()
        if not has_ended(self.journal):
            self._publish()
        self._turn_off_and_on(told)
        if self._comes("workers", ended):
            self._kill_worker()
        if self._comes("managers", ended) and self._managers:
            self._kill_manager(self._random.choice(self._managers))
            self._start_manager()
        enough = self._events * len(HANDLERS)
        return has_ended(self.journal) and ended >= enough and self._house.finished() >= enough

    def end(self) -> list[str]:
        """Stop what still runs."""
        if self._publisher is not None:
            self._publisher.kill()
            self._publisher.wait()
        return [f"a manager ended with {code}" for code in [one.end() for one in self._managers] if code]

    def _comes(self, kind: str, done: int) -> bool:
        due = self._due[kind]
        if self._is_down or not due or done < due[-1]:
            return False
        due.pop()
        return True

    def _publish(self) -> None:
        """Start the publisher again if it is dead. At the next moment at which it is to be killed, it dies soon."""
        if self._publisher is not None:
            code = self._publisher.poll()
            if code is None:
                return
            self.killed["publishers"] += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                raise AssertionError(f"the publisher ended with {code}")
        module = "tests.faults.event_publisher"
        command = [sys.executable, "-m", module, self._house.url, str(self.journal), str(self._events), str(KEYS)]
        if self._deaths:
            command += [str(self._deaths.pop()), str(self._random.uniform(0, _SOON))]
        self._publisher = subprocess.Popen(command, cwd=ROOT)

    def _turn_off_and_on(self, told: int) -> None:
        if not self._was_down and told >= _DOWN * self._events:
            self._is_down = self._was_down = True
            workers = [worker for manager in self._managers for worker in manager.workers()]
            for manager in list(self._managers):
                self._kill_manager(manager)
            psutil.wait_procs(workers, timeout=LIMIT)
        if self._is_down and (told >= _UP * self._events or has_ended(self.journal)):
            self._is_down = False
            self._start_manager()
            self._start_manager()

    def _kill_worker(self) -> None:
        workers = [worker for manager in self._managers for worker in manager.workers()]
        if workers:
            self._random.choice(workers).send_signal(signal.SIGKILL)
            self.killed["workers"] += 1

    def _kill_manager(self, manager: ManagerProcess) -> None:
        manager.signal(signal.SIGKILL)
        manager.process.wait()
        self._managers.remove(manager)
        self.killed["managers"] += 1

    def _start_manager(self) -> None:
        """Half of them on a host of its own: then the session of a dead one must expire."""
        number = len(self._house.managers)
        host = f"host-{number}" if number % 2 else "host"
        self._managers.append(self._house.manager(workers=2, concurrency=4, ttl="2s", elsewhere=host))

    def _is_declared(self) -> bool:
        declared = self._house.do(store_of(self._house).declarations())
        return any(one.subscriptions for one in declared)


def killed_while_publishing(url: str, folder: Path, events: int, kills: Kills, seed: int, limit: float) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    house = Cluster(url, folder, SHOP)
    trouble = Trouble(house, folder, events, kills, Random(seed))
    try:
        trouble.begin()
        house.until(trouble.is_over, within=limit, what="every event is handled")
        faults = trouble.end()
        attempts = seen(house.traces)
        faults += house.do(unsound(store_of(house), published(trouble.journal), events))
        faults += out_of_order(attempts[ORDERED])
        faults += unhandled(attempts, events)
        runs = sum(map(len, attempts.values()))
        return Outcome(house.finished(), runs, trouble.killed, faults)
    finally:
        trouble.end()
        house.close()


async def unsound(store: FullStore, returned: dict[int, EventId], events: int) -> list[str]:
    """What the ledger has: each event once, with one task for each subscriber, which completed once."""
    faults = [f"event {number} was not published" for number in range(events) if number not in returned]
    ids = list(returned.values())
    stored = 0
    for start in range(0, len(ids), _PAGE):
        some = ids[start : start + _PAGE]
        found = {event.id: event for event in await store.events(some)}
        stored += len(found)
        faults += [f"event {one} was published, and is not stored" for one in some if one not in found]
        faults += [f"event {one.id} went to {one.handlers}" for one in found.values() if one.handlers != HANDLERS]
        wanted = [event_task_id(one, handler) for one in some for handler in HANDLERS]
        for task_id, task in zip(wanted, await store.get(wanted), strict=True):
            faults += await _wrong(store, task_id, task)
    count = sum(sum(queue.counts.values()) for queue in await store.queues())
    if count != len(set(ids)) * len(HANDLERS):
        faults.append(f"there are {count} tasks for {len(set(ids))} events")
    if stored != events:
        faults.append(f"{stored} of {events} events are stored")
    return faults


async def _wrong(store: FullStore, task_id: str, task: Task | None) -> list[str]:
    if task is None:
        return [f"task {task_id} does not exist"]
    if task.state is not State.COMPLETED:
        return [f"task {task_id} is {task.state}: {task.reason}, {task.error}"]
    if task.claim == 1:
        return []
    outcomes = [one.outcome for one in await store.attempts(task_id)]
    return [] if outcomes.count("completed") == 1 else [f"task {task_id} ended with {outcomes}"]


def seen(traces: Path) -> dict[str, list[Attempt]]:
    """The attempts of each handler, by their beginning."""
    begun: dict[tuple[str, int, str], int] = {}
    ends: dict[tuple[str, int, str], tuple[int, bool]] = {}
    for line in traces.read_text().splitlines():
        word, handler, number, token, moment = line.split()
        run = handler, int(number), token
        if word == "began":
            begun[run] = int(moment)
        else:
            ends[run] = int(moment), word == "ended"
    found = defaultdict[str, list[Attempt]](list)
    for run, begin in begun.items():
        end, succeeded = ends.get(run, (None, False))
        found[run[0]].append(Attempt(begin, run[1], end, succeeded))
    return {handler: sorted(attempts) for handler, attempts in found.items()}


def out_of_order(attempts: Iterable[Attempt]) -> list[str]:
    """Attempts of one key that overlap, and those that go back behind a later event."""
    lines = defaultdict[str, list[Attempt]](list)
    for attempt in sorted(attempts):
        lines[key_of(attempt.number, KEYS)].append(attempt)
    faults = []
    for key, line in lines.items():
        for before, after in pairwise(line):
            if before.number > after.number:
                faults.append(f"key {key}: {after} began after {before}")
            if before.end is not None and before.end > after.begin:
                faults.append(f"key {key}: {before} and {after} overlap")
    return faults


def unhandled(attempts: dict[str, list[Attempt]], events: int) -> list[str]:
    faults = []
    for handler in HANDLERS:
        done = {one.number for one in attempts.get(handler, ()) if one.succeeded}
        faults += [f"{handler} never handled event {number}" for number in range(events) if number not in done]
    return faults


def store_of(house: Cluster) -> FullStore:
    return cast("FullStore", house.engine)
