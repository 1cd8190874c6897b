"""After a loss of power: does the store that is left keep what was acknowledged, and does it go on working?"""

import asyncio
import contextlib
import sqlite3
from itertools import count
from pathlib import Path
from random import Random

from pitboss.engines.sqlite import SqliteEngine
from pitboss.model.duration import SECOND, Moment
from pitboss.model.errors import PitbossError
from pitboss.model.filter import EVERYTHING
from pitboss.model.ids import IdMaker
from pitboss.model.outcome import Completed, decide
from pitboss.model.policy import Policy
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, Session, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, NewTask
from pitboss.testing import history as told
from pitboss.testing.checker import check
from pitboss.testing.checker.evidence import Final
from pitboss.testing.clock import FakeClock
from pitboss.testing.history import Call, Entry, History
from pitboss.testing.recorded import Recorded, recorded

HANDLER = "job"
_ALL = 100_000
_RESTART = 10 * SECOND
_JUDGED_TWICE = 0.2


def examine(path: Path, events: list[Entry], rng: Random) -> list[str]:
    """Everything that is wrong with the store at `path`, of which these events were seen before the power went.

    The file itself, sessions and claims are looked at here; puts, ends, keys and figures are the checker's.
    """
    return asyncio.run(_examined(path, events, rng))


async def _examined(path: Path, events: list[Entry], rng: Random) -> list[str]:
    # A machine starts again later than anything that it wrote, also what it did not live to tell: with its clock set
    # back, a task put again would seem to have been created before the one that had its key was finished.
    clock = FakeClock((max([event.at or 0 for event in events], default=0) or FakeClock().now()) + _RESTART)
    history = History(order=count(max([event.order for event in events], default=0) + 1).__next__)
    history.entries = sorted(events, key=lambda event: event.order)
    engine = SqliteEngine(path, clock=clock)
    try:
        await engine.open()
    except PitbossError as error:
        return [f"it does not open: {error}"]
    try:
        store = recorded(engine, history, "survivor", clock=clock)
        faults = [*_damage(path), *await _forgotten(store, history), *await _violated(engine, history)]
        faults = faults or await _goes_on(store, clock, rng)
        # The same verdict over a longer history: not each time, because it takes as long as all the rest.
        return faults or (await _violated(engine, history) if rng.random() < _JUDGED_TWICE else [])
    finally:
        await engine.close()


def _damage(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as raw:
        answer = raw.execute("PRAGMA integrity_check").fetchall()
    return [] if answer == [("ok",)] else [f"integrity_check: {answer[:3]}"]


async def _violated(engine: SqliteEngine, history: History) -> list[str]:
    return [str(violation) for violation in check(history, await _final(engine))]


async def _final(engine: SqliteEngine) -> Final:
    """As the checker's own, but asks only those tasks for their runs that can have any."""
    tasks = (await engine.find(EVERYTHING, limit=_ALL)).tasks
    ran = [task.id for task in tasks if task.claim]
    runs = await asyncio.gather(*(engine.attempts(task) for task in ran))
    attempts = {task.id: () for task in tasks} | {task: tuple(one) for task, one in zip(ran, runs, strict=True)}
    return Final(tasks=tuple(tasks), attempts=attempts, queues=tuple(await engine.queues()))


async def _forgotten(store: Recorded, history: History) -> list[str]:
    """Acknowledged sessions, renewals and claims that are not there; the checker judges tasks and how they ended."""
    sessions = {session.number: session for session in await store.sessions()}
    faults: list[str] = []
    calls = history.calls()
    for call in calls:
        match call.act:
            case told.OpenSession(session=session) if session is not None:
                faults += _missing(sessions.get(session.number), session.number, session.expires_at)
            case told.Renew(session=number, renewal=renewal) if renewal is not None and renewal.alive:
                faults += _missing(sessions.get(number), number, renewal.expires_at)
            case _:
                pass
    return faults + await _unclaimed(store, calls)


def _missing(session: Session | None, number: int, until: Moment) -> list[str]:
    if session is None:
        return [f"session {number} was opened and is gone"]
    if not session.ended and session.expires_at < until:
        return [f"session {number} was renewed until {until}, the store says {session.expires_at}"]
    return []


async def _unclaimed(store: Recorded, calls: list[Call]) -> list[str]:
    """A claim that was not settled, and that no sweep can have taken, is still running under its token."""
    swept = max([call.ended for call in calls if isinstance(call.act, told.Reclaim)], default=0)
    spoken = {
        (one.id, one.token) for call in calls if isinstance(call.act, told.Settle) for one in call.act.settlements
    }
    silent: list[Claim] = []
    for call in calls:
        if isinstance(call.act, told.Claim) and call.act.claimed is not None and call.ended > swept:
            silent += [claim for claim in call.act.claimed.claims if (claim.id, claim.token) not in spoken]
    found = await store.get([claim.id for claim in silent])
    return [
        f"claim {claim.token} of {claim.id} was given and is gone"
        for claim, task in zip(silent, found, strict=True)
        if task is None or task.state is not State.RUNNING or (task.session, task.claim) != _pair(claim)
    ]


def _pair(claim: Claim) -> tuple[int, int]:
    return claim.token.session, claim.token.claim


async def _goes_on(store: Recorded, clock: FakeClock, rng: Random) -> list[str]:
    """Clients repeat what they do not know, a new manager reclaims and runs everything to its end."""
    await store.register([HandlerInfo(name=HANDLER)])
    for call in store.history.calls():
        if isinstance(call.act, told.Put) and call.unknown:
            await store.put(call.act.tasks)
    clock.advance(60)
    while (await store.reclaim()).more:
        pass
    fresh = NewTask(id=IdMaker(clock.now, rng.getrandbits)(), handler=HANDLER, queue="after")
    await store.put([fresh])
    session = await store.open_session(SessionInfo(host="survivor", handlers=(HANDLER,)))
    request = ClaimRequest(session=session.number, slots=(Slot(free=_ALL),))
    while claims := (await store.claim(request)).claims:
        moves = [decide(claim, Completed("1"), Policy(), clock.now(), 0.5) for claim in claims]
        pairs = zip(claims, moves, strict=True)
        await store.settle([Settlement(id=one.id, token=one.token, transition=move) for one, move in pairs])
    left = [task.id for task in (await store.find(EVERYTHING, limit=_ALL)).tasks if not task.state.finished]
    (last,) = await store.get([fresh.id])
    faults = [f"tasks that did not come to an end: {left}"] if left else []
    return faults if last and last.state is State.COMPLETED else [*faults, "a task put after the crash did not run"]
