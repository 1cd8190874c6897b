"""Remote workers that registered themselves, each with a session of its own, and their figures."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import NotFound
from pitboss.model.filter import by
from pitboss.model.session import Session, SessionInfo
from pitboss.model.states import State
from pitboss.model.task import Task

KIND = "remote"
# A worker that is not heard of for this long is offline.
LIVES: Span = 120 * SECOND
_MOST_TASKS = 1000
_MOST_WORKERS = 10_000
Status = Literal["active", "idle", "offline"]


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself, and what the servers have counted; the snapshot of its session."""

    name: str = ""
    status: Status = "active"
    metadata: dict[str, Any] = {}
    types: tuple[str, ...] = ()
    claimed: int = 0
    completed: int = 0
    failed: int = 0


class RemoteWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it is now."""

    id: str
    card: WorkerCard
    status: Status
    registered_at: Moment
    seen_at: Moment
    tasks: tuple[Task, ...] = ()


class _Done(NamedTuple):
    """What a worker did, and when it was first and last heard of."""

    first: Moment = 0
    last: Moment = 0
    claimed: int = 0
    completed: int = 0
    failed: int = 0


class RemoteWorkers:
    """Registers workers, keeps their sessions, and counts what they do.

    What a worker says of itself and what was counted is the snapshot of its session. What this server counted since the
    last renewal is added to it. A worker that only claims is counted too, without a session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, int] = {}
        self._cards: dict[str, WorkerCard] = {}
        # Worker -> what it did since its card was written, and when it was first and last heard of.
        self._done: dict[str, _Done] = {}

    async def register(self, worker: str, card: WorkerCard) -> bool:
        """Whether it is new, or back after it was offline."""
        known = await self._find(worker)
        said = {name: getattr(card, name) for name in ("status", "name", "metadata", "types")}
        if known is not None:
            await self._renew(worker, known, **said)
            return False
        session = await self._store.open_session(SessionInfo(host=worker, kind=KIND, ttl=LIVES))
        self._sessions[worker] = session.number
        self._cards.setdefault(worker, card)
        while len(self._sessions) > _MOST_WORKERS:
            # If it lives, its next sign of life finds its session in the store.
            oldest = next(iter(self._sessions))
            del self._sessions[oldest]
            self._cards.pop(oldest, None)
        await self._renew(worker, session.number, **said)
        return True

    async def heartbeat(self, worker: str, status: Status | None = None) -> None:
        """`NotFound` if it is not registered, or was silent for too long: it must register again."""
        known = await self._find(worker)
        if known is None:
            raise _unknown(worker)
        await self._renew(worker, known, **({} if status is None else {"status": status}))

    def count(self, worker: str, now: Moment, *, claimed: int = 0, completed: int = 0, failed: int = 0) -> None:
        """What it did just now."""
        before = self._done.pop(worker, None) or _Done(first=now)
        self._done[worker] = _Done(
            before.first, now, before.claimed + claimed, before.completed + completed, before.failed + failed
        )
        while len(self._done) > _MOST_WORKERS:
            del self._done[next(iter(self._done))]

    async def all(self, now: Moment) -> list[RemoteWorker]:
        """Every worker that registered, newest session of each, and those that only claimed here."""
        sessions = {one.info.host: one for one in await self._store.sessions() if one.info.kind == KIND}
        running = await self._running(by(state=State.RUNNING))
        names = sorted({*sessions, *self._done, *running})
        return [self._view(name, sessions.get(name), running.get(name, []), now) for name in names]

    async def find(self, worker: str, now: Moment) -> RemoteWorker:
        sessions = [one for one in await self._store.sessions() if one.info.kind == KIND and one.info.host == worker]
        running = (await self._running(by(state=State.RUNNING, worker=worker))).get(worker, [])
        if not sessions and not running and worker not in self._done:
            raise _unknown(worker)
        return self._view(worker, sessions[-1] if sessions else None, running, now)

    async def _running(self, wanted: Any) -> dict[str, list[Task]]:
        """Running tasks of remote workers, by worker."""
        found: dict[str, list[Task]] = {}
        for task in (await self._store.find(wanted, limit=_MOST_TASKS)).tasks:
            if task.claim_expires_at is not None and task.worker is not None:
                found.setdefault(task.worker, []).append(task)
        return found

    async def _find(self, worker: str) -> int | None:
        """The number of its session, which may have been opened by another server."""
        known = self._sessions.get(worker)
        if known is not None:
            return known
        now = self._store.clock.now()
        for one in await self._store.sessions():
            if one.info.kind == KIND and one.info.host == worker and one.alive(now):
                self._sessions[worker] = one.number
                self._cards[worker] = _written(one)
                return one.number
        return None

    async def _renew(self, worker: str, session: int, **said: Any) -> None:
        card = self._card(worker, self._cards.get(worker, WorkerCard()))
        card = self._cards[worker] = msgspec.structs.replace(card, **said)
        if worker in self._done:
            self._done[worker] = _Done(self._done[worker].first, self._done[worker].last)
        if not (await self._store.renew(session, _text(card))).alive:
            self._sessions.pop(worker, None)
            if await self._find(worker) is None:
                raise _unknown(worker)

    def _card(self, worker: str, card: WorkerCard) -> WorkerCard:
        """The card with what was done since it was written."""
        done = self._done.get(worker, _Done())
        return msgspec.structs.replace(
            card,
            claimed=card.claimed + done.claimed,
            completed=card.completed + done.completed,
            failed=card.failed + done.failed,
        )

    def _view(self, name: str, session: Session | None, tasks: list[Task], now: Moment) -> RemoteWorker:
        card = self._card(name, WorkerCard() if session is None else _written(session))
        done = self._done.get(name, _Done(now, 0))
        alive = session is not None and session.alive(now)
        heard = max(done.last, 0 if session is None else session.expires_at - session.info.ttl)
        offline = card.status == "offline" or not (alive or now - heard < LIVES or tasks)
        return RemoteWorker(
            id=name,
            card=card,
            status="offline" if offline else "active" if tasks else card.status,
            registered_at=done.first if session is None else session.opened_at,
            seen_at=heard or now,
            tasks=tuple(tasks),
        )


def stats(worker: RemoteWorker) -> Mapping[str, Any]:
    card = worker.card
    ended = card.completed + card.failed
    return {
        "worker_id": worker.id,
        "total_claimed": card.claimed,
        "total_completed": card.completed,
        "total_failed": card.failed,
        "currently_claimed": len(worker.tasks),
        "success_rate": card.completed / ended if ended else 0.0,
    }


def _written(session: Session) -> WorkerCard:
    try:
        return msgspec.json.decode(session.snapshot or "{}", type=WorkerCard)
    except msgspec.MsgspecError:
        return WorkerCard()


def _text(card: WorkerCard) -> str:
    return msgspec.json.encode(card).decode()


def _unknown(worker: str) -> NotFound:
    return NotFound(
        "Worker not found",
        why=f'no worker "{worker[:80]}" is registered, or it was not heard of for {LIVES // SECOND} s',
        fix="register it: POST /api/workers/register",
    )
