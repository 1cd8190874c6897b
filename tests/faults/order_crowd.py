"""Several processes around a few order keys: at most one task of a key is at work, and no line stands still."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from pitboss import wiring
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING, by
from pitboss.model.outcome import Completed, decide
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Task
from tests.faults import order_load
from tests.faults.children import together
from tests.faults.crowd_load import Deeds

PROCESSES = 4
_ALL = 100_000
_ROUNDS = 10_000


class Crowd(NamedTuple):
    """What was done, how often the ledger was looked at meanwhile, and what was wrong."""

    done: Counter[str]
    looks: int
    faults: list[str]


async def crowded_in_order(url: str, folder: Path, seconds: float, seed: int) -> Crowd:
    store = cast("FullStore", wiring.make_engine(url))
    await store.open()
    log = folder / "work"
    log.touch()
    try:
        await order_load.prepare(store)
        many = [[url, str(seed + number), str(seconds), str(log)] for number in range(PROCESSES)]
        with together("tests.faults.order_load", many) as children:
            faults, looks = list[str](), 0
            while any(child.process.poll() is None for child in children):
                faults += broken_lines(await unfinished(store))
                looks += 1
                await store.wait(None, 0.02)
            deeds = [msgspec.json.decode(child.result(seconds + 60), type=Deeds) for child in children]
        faults += [error for one in deeds for error in one.errors]
        faults += overlapping(log.read_text().splitlines())
        faults += await drained(store)
        return Crowd(sum((Counter(one.done) for one in deeds), Counter()), looks, faults)
    finally:
        await store.close()


async def unfinished(store: FullStore) -> list[Task]:
    """In one read, so that nothing changes meanwhile."""
    return [task for task in (await store.find(EVERYTHING, limit=_ALL)).tasks if task.state not in FINISHED]


def broken_lines(tasks: Iterable[Task]) -> list[str]:
    """Of the unfinished tasks with one key, exactly one is not held in order; so no two of them run either."""
    lines: dict[str, list[Task]] = {}
    for task in tasks:
        if task.order_key is not None:
            lines.setdefault(task.order_key, []).append(task)
    faults = []
    for key, line in lines.items():
        first = [task for task in line if not (task.state is State.HELD and task.reason == "order")]
        if len(first) != 1:
            told = [(task.id, task.state.value, task.reason) for task in first]
            faults.append(f"order key {key}: {len(line)} tasks, of which these are not held in order: {told}")
    return faults


def overlapping(lines: Sequence[str]) -> list[str]:
    """Claims of one key that were at work at the same time."""
    begun: dict[tuple[str, str, str], int] = {}
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for line in lines:
        word, key, task, token, moment = line.split()
        if word == "begin":
            begun[key, task, token] = int(moment)
        else:
            spans.setdefault(key, []).append((begun.pop((key, task, token)), int(moment), task))
    faults = [f"{one} never ended" for one in begun]
    for key, worked in spans.items():
        for before, after in pairwise(sorted(worked)):
            if before[1] > after[0]:
                faults.append(f"order key {key}: {before} and {after} were at work at once")
    return faults


async def drained(store: FullStore) -> list[str]:
    """Complete everything; what is left then is stuck."""
    for one in await store.sessions():
        await store.end_session(one.number)
    await store.reclaim()
    info = SessionInfo(host="last", handlers=order_load.HANDLERS, ttl=600 * SECOND)
    session = (await store.open_session(info)).number
    faults = broken_lines(await unfinished(store))
    for _ in range(_ROUNDS):
        claimed = await store.claim(ClaimRequest(session=session, slots=(Slot(free=50),)))
        ends = [
            Settlement(id=claim.id, token=claim.token, transition=decide(claim, Completed(), order_load.POLICY, 0, 0.5))
            for claim in claimed.claims
        ]
        await store.settle(ends)
        if not ends and not (await store.count(by(state=[State.SCHEDULED, State.PENDING]))).number:
            break
        if not ends:
            await store.wait(None, 0.005)
    left = await unfinished(store)
    return faults + [f"{task.id} is left {task.state}, {task.reason}" for task in left]
