"""The smallest complete engine: the core protocols on a store of bytes. Copy it to start an engine of your own.

The store can get, set and compare-and-swap a value, as Redis and most databases can. All data is one document under one
key. Each verb is one transaction: read the document, change it, swap it in, and start again if another engine was
faster. A real engine splits the document up, so that a claim does not read finished tasks; the rules stay the same, and
they all come from `pitboss.model` and `pitboss.engines.scan`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from pitboss.engines import scan
from pitboss.engines.protocol import MOST_READ, Clock, Page
from pitboss.model.batching import HELD_FOR_HANDLER, HELD_IN_ORDER, waits
from pitboss.model.duration import Moment
from pitboss.model.errors import NotLeader, SessionLost
from pitboss.model.failure import FailureCount, failed_for_good, failure_tasks
from pitboss.model.filter import Count, Filter
from pitboss.model.ids import TaskId
from pitboss.model.lifecycle import (
    MAX_RECORDED_RUNS,
    KeyHold,
    cancelled,
    claim_on,
    claimed,
    created,
    is_expired,
    key_hold,
    moved,
    retried,
    still_claimed,
)
from pitboss.model.limits import allowed, opens_at, with_start
from pitboss.model.queue import (
    Changed,
    HandlerInfo,
    Queue,
    QueueChange,
    Wish,
    changed_queue,
    check_capacity,
    remote_queues,
)
from pitboss.model.session import (
    ORDERED,
    Claimed,
    ClaimRequest,
    Lead,
    Reclaimed,
    Renewal,
    Session,
    SessionInfo,
    Slot,
    known_handlers,
    lead_of,
)
from pitboss.model.settlement import ClaimEnd, Progress, SettleAnswer, Settlement, effect, lives, lost
from pitboss.model.states import FINISHED, WAITING, State
from pitboss.model.task import Attempt, Claim, NewTask, Placed, Task, TaskChange, Token, last_run

ROOT = b"pitboss"
POLL = 0.005
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class ByteStore:
    """A dictionary from bytes to bytes, shared by the engines of one test as processes share a server."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._lock = Lock()

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def set(self, key: bytes, value: bytes) -> None:
        self._values[key] = value

    def compare_and_swap(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Set the value if it still is the old one."""
        with self._lock:
            if self._values.get(key) != old:
                return False
            self._values[key] = new
            return True


class Document(msgspec.Struct):
    """All data of the store. A transaction changes its own copy, so an error leaves nothing behind."""

    tasks: dict[TaskId, Task] = {}
    history: dict[TaskId, list[Attempt]] = {}
    keys: dict[str, KeyHold] = {}
    queues: dict[str, Queue] = {}
    starts: dict[str, list[Moment]] = {}
    handlers: dict[str, HandlerInfo] = {}
    sessions: dict[int, Session] = {}
    newest_session: int = 0
    wishes: dict[str, Wish] = {}
    version: int = 0
    term: int = 0
    leader: int | None = None
    # Queue -> how often it was rung. An engine remembers what it has heard.
    rings: dict[str, int] = {}

    def ring(self, *queues: str) -> None:
        for queue in queues:
            self.rings[queue] = self.rings.get(queue, 0) + 1

    def write(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.state in FINISHED and task.unique_key in self.keys and self.keys[task.unique_key].ends_with(task):
            del self.keys[task.unique_key]
        line = self.line(task.order_key)
        if task.state in FINISHED and line and all(one.reason == "order" for one in line):
            known = line[0].handler in self.handlers
            self.write(moved(line[0], waits(None, known=known, run_at=line[0].run_at, now=task.finished_at or 0)))
            self.ring(line[0].queue)

    def line(self, order_key: str | None) -> list[Task]:
        """The unfinished tasks with an order key. All but the first one are held."""
        tasks = [task for task in self.tasks.values() if task.order_key == order_key and task.state not in FINISHED]
        return [] if order_key is None else sorted(tasks, key=lambda task: (task.created_at, task.id))

    def end(self, task: Task, now: Moment) -> None:
        """Write a task whose claim has ended, or that expired, and put what follows a failure."""
        self.write(task)
        for new in failure_tasks(task, self.handlers) if failed_for_good(task) else ():
            self.place(new, now)

    def oldest_first(self, *states: State) -> list[Task]:
        """The tasks in these states, or all."""
        return sorted(
            (task for task in self.tasks.values() if not states or task.state in states), key=lambda task: task.id
        )

    def place(self, new: NewTask, now: Moment) -> Placed:
        """Create the task, or meet the one that has its id or its unique key."""
        met = new.id if new.id in self.tasks else self.key_holder(new.unique.key if new.unique else None, now)
        if met is not None:
            task = self.tasks[met]
            return Placed(task.id, False, task.state, task.reason)
        self.queues.setdefault(new.queue, Queue(name=new.queue))
        if new.unique:
            self.keys[new.unique.key] = key_hold(new, now)
        task = created(new, now, known=new.handler in self.handlers, behind=bool(self.line(new.order_key)))
        self.write(task)
        if task.state is State.PENDING:
            self.ring(task.queue)
        return Placed(task.id, True, task.state, task.reason)

    def key_holder(self, key: str | None, now: Moment) -> TaskId | None:
        """The task that has the key now."""
        hold = None if key is None else self.keys.get(key)
        return hold.task if hold is not None and hold.lasts(now) else None

    def waiting(self, queue: str) -> int:
        return sum(task.queue == queue and task.state in WAITING for task in self.tasks.values())

    def record(self, task: TaskId, run: Attempt | None) -> None:
        if run is not None:
            self.history[task] = [*self.history.get(task, []), run][-MAX_RECORDED_RUNS:]

    def release_held(self, handlers: Iterable[str], now: Moment, limit: int | None = None) -> int:
        """Let the tasks wait again that are held for one of these handlers."""
        names = set(handlers)
        held = [task for task in self.oldest_first(State.HELD) if task.handler in names and task.reason == "handler"]
        held = held[:limit]
        for task in held:
            self.write(moved(task, waits(None, known=True, run_at=task.run_at, now=now)))
            self.ring(task.queue)
        return len(held)

    def alive(self, session: int, now: Moment) -> bool:
        return session in self.sessions and self.sessions[session].alive(now)

    def lead(self, now: Moment) -> Lead | None:
        return lead_of(None if self.leader is None else self.sessions.get(self.leader), self.term, now)

    def view(self, queue: str, now: Moment) -> Queue:
        counts = Counter(task.state for task in self.tasks.values() if task.queue == queue)
        opens = opens_at(self.queues[queue].rate, self.starts.get(queue, []))
        return msgspec.structs.replace(self.queues[queue], counts=dict(counts), opens_at=opens if opens > now else None)

    def open_queues(self, slot: Slot) -> list[str]:
        names = self.queues.keys() - remote_queues(self.handlers.values()) if slot.queues is None else slot.queues
        return [name for name in names if name in self.queues and not self.queues[name].paused]

    def next_due(self, queues: Iterable[str], now: Moment) -> Moment | None:
        """When one of these queues may give more without a ring."""
        moments: list[Moment] = []
        for name in queues:
            states = {task.state for task in self.tasks.values() if task.queue == name}
            moments += [task.run_at or 0 for task in self.oldest_first(State.SCHEDULED) if task.queue == name]
            if self.queues[name].rate and State.PENDING in states:
                moments.append(opens_at(self.queues[name].rate, self.starts.get(name, [])))
        return min((moment for moment in moments if moment > now), default=None)


def transaction(
    verb: Callable[Concatenate["SkeletonEngine", Document, Moment, Given], Answer],
) -> Callable[Concatenate["SkeletonEngine", Given], Coroutine[Any, Any, Answer]]:
    """Turn a function that reads and changes the document into a verb. It may run several times."""

    async def call(self: "SkeletonEngine", /, *args: Given.args, **options: Given.kwargs) -> Answer:
        while True:
            old = self.store.get(ROOT)
            document = self.decode(old)
            answer = verb(self, document, self.clock.now(), *args, **options)
            new = msgspec.msgpack.encode(document)
            if new == old or self.store.compare_and_swap(ROOT, old, new):
                return answer

    return call


class SkeletonEngine:
    """`Engine`, `Sessions`, `Leader`, `Ledger`, `Control`, `Queues`, `Handlers` and `Desired`."""

    name = "skeleton"

    def __init__(self, store: ByteStore, *, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self._decoder = msgspec.msgpack.Decoder(Document)
        self._heard: dict[str, int] = {}

    def decode(self, value: bytes | None) -> Document:
        return Document() if value is None else self._decoder.decode(value)

    # The six verbs

    async def open(self) -> None:
        self._heard = self.decode(self.store.get(ROOT)).rings

    async def close(self) -> None:
        return None

    @transaction
    def put(self, document: Document, now: Moment, tasks: Sequence[NewTask]) -> list[Placed]:
        before = {name: document.waiting(name) for name in {new.queue for new in tasks}}
        placed = [document.place(new, now) for new in tasks]
        added = Counter(document.tasks[one.id].queue for one in placed if one.created)
        for name in sorted(added):
            check_capacity(document.queues[name], before[name], added[name])
        return placed

    @transaction
    def claim(self, document: Document, now: Moment, request: ClaimRequest) -> Claimed:
        if not document.alive(request.session, now):
            raise SessionLost(request.session)
        queues = {name for slot in request.slots for name in document.open_queues(slot)}
        for task in document.oldest_first(State.SCHEDULED):
            if task.queue in queues and (task.run_at or 0) <= now:
                document.write(msgspec.structs.replace(task, state=State.PENDING))
        claims: list[Claim] = []
        for index, slot in enumerate(request.slots):
            claims += self._fill(document, now, request, index, slot)
        return Claimed(claims, document.next_due(queues, now))

    def _fill(self, document: Document, now: Moment, request: ClaimRequest, index: int, slot: Slot) -> list[Claim]:
        running = document.oldest_first(State.RUNNING)
        again = [task for task in running if slot.repeat is not None and still_claimed(task, slot.repeat, now)]
        if again:
            return [claim_on(task, task.session or 0, index) for task in again]
        known = known_handlers(document.sessions.values(), document.handlers.values(), now)
        claims: list[Claim] = []
        for task in self._pending(document, slot):
            if len(claims) >= slot.free + slot.ahead:
                break
            if is_expired(task, now):
                document.end(cancelled(task, "expired", now), now)
            elif request.handlers is not None and task.handler not in request.handlers:
                if task.handler not in known:
                    document.write(moved(task, HELD_FOR_HANDLER))
            elif self._may_start(document, now, task, ahead=len(claims) >= slot.free):
                claims.append(self._start(document, now, task, request, index))
        return claims

    def _pending(self, document: Document, slot: Slot) -> list[Task]:
        queues = document.open_queues(slot)
        pending = [task for task in document.oldest_first(State.PENDING) if task.queue in queues]
        if slot.handlers is not None:
            pending = [task for task in pending if task.handler in slot.handlers]
        native = sorted(pending, key=lambda task: task.priority)
        return native if slot.order is None else slot.order.apply(native[:ORDERED])

    def _may_start(self, document: Document, now: Moment, task: Task, *, ahead: bool) -> bool:
        rate = document.queues[task.queue].rate
        if ahead and (rate or task.losses):
            return False
        return allowed(rate, document.starts.get(task.queue, []), now) != 0

    def _start(self, document: Document, now: Moment, task: Task, request: ClaimRequest, index: int) -> Claim:
        rate = document.queues[task.queue].rate
        if rate:
            document.starts[task.queue] = with_start(rate, document.starts.get(task.queue, []), now)
        running = claimed(task, request.session, now, request.slots[index])
        document.write(running)
        return claim_on(running, request.session, index)

    @transaction
    def renew(self, document: Document, now: Moment, session: int, snapshot: str | None = None) -> Renewal:
        if not document.alive(session, now):
            return Renewal(alive=False)
        renewed = document.sessions[session] = document.sessions[session].renewed(now, snapshot)
        cancels = tuple(
            (task.id, Token(session, task.claim))
            for task in document.oldest_first(State.RUNNING)
            if task.session == session and task.cancel_asked
        )
        return Renewal(alive=True, expires_at=renewed.expires_at, cancels=cancels, desired=document.version)

    @transaction
    def settle(self, document: Document, now: Moment, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return [self._settle(document, now, settlement) for settlement in settlements]

    def _settle(self, document: Document, now: Moment, settlement: Settlement) -> SettleAnswer:
        task = document.tasks.get(settlement.id)
        alive = document.alive(settlement.token.session, now)
        answer, change = effect(task, settlement, alive=alive, batch=None, now=now)
        if task is not None and isinstance(change, Progress):
            document.write(change.applied_to(task))
        elif task is not None and isinstance(change, ClaimEnd):
            self._end_claim(document, now, task, change)
            for new in settlement.transition.follow_ups:
                document.place(new, now)
        return answer

    def _end_claim(self, document: Document, now: Moment, task: Task, end: ClaimEnd) -> None:
        document.record(task.id, end.run)
        document.end(end.applied_to(task), now)
        if end.state is State.PENDING:
            document.ring(task.queue)

    @transaction
    def reclaim(self, document: Document, now: Moment, limit: int = 1000) -> Reclaimed:
        running = document.oldest_first(State.RUNNING)
        orphans = [task for task in running if not lives(task, document.alive(task.session or 0, now), now)]
        ends = [lost(task, batch=None, now=now) for task in orphans[:limit]]
        for task, end in zip(orphans, ends, strict=False):
            self._end_claim(document, now, task, end)
        known = known_handlers(document.sessions.values(), document.handlers.values(), now)
        served = known & document.handlers.keys()
        released = document.release_held(served, now, limit)
        used = {task.session for task in document.oldest_first(State.RUNNING)}
        document.sessions = {
            number: session for number, session in document.sessions.items() if session.shown(now) or number in used
        }
        over = Counter(end.state for end in ends)
        cancels, failed = over[State.CANCELLED], over[State.FAILED]
        more = len(orphans) > limit or released == limit
        left = len(ends) - cancels - failed
        return Reclaimed(lost=left, cancelled=cancels, failed=failed, released=released, more=more)

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            rings = self.decode(self.store.get(ROOT)).rings
            heard = {name: count for name, count in rings.items() if queues is None or name in queues}
            if any(count > self._heard.get(name, 0) for name, count in heard.items()):
                self._heard |= heard
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await asyncio.sleep(min(POLL, left))

    # Sessions, Leader

    @transaction
    def open_session(self, document: Document, now: Moment, info: SessionInfo) -> Session:
        document.newest_session += 1
        session = Session(number=document.newest_session, info=info, opened_at=now, expires_at=now + info.ttl)
        document.sessions[session.number] = session
        document.release_held(set(info.handlers) & document.handlers.keys(), now)
        return session

    @transaction
    def end_session(self, document: Document, now: Moment, session: int) -> None:
        known = document.sessions.get(session)
        if known and not known.ended:
            document.sessions[session] = known.closed(now)

    @transaction
    def sessions(self, document: Document, now: Moment) -> list[Session]:
        return [session for _, session in sorted(document.sessions.items()) if session.shown(now)]

    @transaction
    def campaign(self, document: Document, now: Moment, session: int) -> Lead:
        if not document.alive(session, now):
            raise SessionLost(session)
        if document.lead(now) is None:
            document.term, document.leader = document.term + 1, session
        lead = document.lead(now)
        assert lead is not None
        return msgspec.structs.replace(lead, mine=lead.session == session)

    @transaction
    def leader(self, document: Document, now: Moment) -> Lead | None:
        return document.lead(now)

    @transaction
    def resign(self, document: Document, now: Moment, session: int) -> None:
        if document.leader == session:
            document.leader = None

    # Ledger, Control

    @transaction
    def get(self, document: Document, now: Moment, ids: Sequence[TaskId]) -> list[Task | None]:
        return [document.tasks.get(task) for task in ids]

    @transaction
    def find(
        self,
        document: Document,
        now: Moment,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        oldest_first: bool = False,
        most: int = MOST_READ,
    ) -> Page:
        tasks = document.oldest_first()
        ordered = tasks if oldest_first else reversed(tasks)
        return scan.find(ordered, wanted, now, limit=limit, after=after, oldest_first=oldest_first, most=most)

    @transaction
    def count(self, document: Document, now: Moment, wanted: Filter, *, most: int = MOST_READ) -> Count:
        return scan.count(document.tasks.values(), wanted, now, most=most)

    @transaction
    def failures(self, document: Document, now: Moment, *, most: int = MOST_READ) -> list[FailureCount]:
        return scan.failures(reversed(document.oldest_first()), most=most)

    @transaction
    def attempts(self, document: Document, now: Moment, task: TaskId) -> list[Attempt]:
        known = document.tasks.get(task)
        last = last_run(known) if known else None
        return [*document.history.get(task, []), *([last] if last else [])][-MAX_RECORDED_RUNS:]

    @transaction
    def tasks_before(self, document: Document, now: Moment, task: TaskId, *, limit: int = 20_000) -> int | None:
        one = document.tasks.get(task)
        if one is None or one.state is not State.PENDING:
            return None
        line = [other for other in document.tasks.values() if (other.queue, other.state) == (one.queue, one.state)]
        return min(limit, sum((other.priority, other.id) < (one.priority, one.id) for other in line))

    @transaction
    def cancel(
        self, document: Document, now: Moment, wanted: Filter, *, reason: str = "", limit: int = 1000
    ) -> Changed:
        chosen = scan.to_cancel(document.oldest_first(), wanted, now, limit)
        for task in chosen.tasks:
            document.write(cancelled(task, reason or "cancelled", now))
        return chosen.answer()

    @transaction
    def retry(
        self, document: Document, now: Moment, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000
    ) -> Changed:
        chosen = scan.to_retry(document.oldest_first(), wanted, now, limit)
        refused = [task.id for task in chosen.tasks if not self._retry(document, now, task, keep_attempts)]
        return chosen.answer(refused)

    def _retry(self, document: Document, now: Moment, task: Task, keep_attempts: bool) -> bool:
        """Let a finished task wait again; False if another task has its key."""
        holder = document.key_holder(task.unique_key, now)
        if holder not in (None, task.id):
            return False
        if task.unique_key is not None and holder is None:
            document.keys[task.unique_key] = KeyHold(task.id)
        document.record(task.id, last_run(task))
        place = waits(None, known=task.handler in document.handlers, run_at=None, now=now)
        place = HELD_IN_ORDER if document.line(task.order_key) else place
        document.write(retried(task, place, now, keep_attempts=keep_attempts))
        document.ring(task.queue)
        return True

    @transaction
    def change_tasks(
        self, document: Document, now: Moment, wanted: Filter, change: TaskChange, *, limit: int = 1000
    ) -> Changed:
        chosen = scan.to_change(document.oldest_first(), wanted, change, now, limit)
        for task in chosen.tasks:
            document.write(change.applied_to(task))
        return chosen.answer()

    @transaction
    def prune(
        self,
        document: Document,
        now: Moment,
        wanted: Filter,
        *,
        before: Moment | None = None,
        limit: int = 1000,
        term: int | None = None,
    ) -> Changed:
        lead = document.lead(now)
        if term is not None and (lead is None or lead.term != term):
            raise NotLeader(term)
        chosen = scan.to_prune(
            document.oldest_first(),
            wanted,
            now,
            limit,
            before=before,
            has_key=lambda task: document.key_holder(task.unique_key, now) == task.id,
        )
        for task in chosen.tasks:
            del document.tasks[task.id]
            document.history.pop(task.id, None)
            if task.unique_key in document.keys and document.keys[task.unique_key].task == task.id:
                del document.keys[task.unique_key]
        return chosen.answer()

    # Queues, Handlers, Desired

    @transaction
    def queues(self, document: Document, now: Moment) -> list[Queue]:
        return [document.view(name, now) for name in sorted(document.queues)]

    @transaction
    def change_queue(self, document: Document, now: Moment, name: str, change: QueueChange) -> Queue:
        document.queues[name] = changed_queue(document.queues.get(name, Queue(name=name)), change, now)
        document.ring(name)
        return document.view(name, now)

    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        # A transaction may run twice, an iterator only once.
        await self._register(list(handlers))

    @transaction
    def _register(self, document: Document, now: Moment, handlers: Sequence[HandlerInfo]) -> None:
        known = document.handlers
        for handler in handlers:
            number = max((one.number for one in known.values()), default=0) + 1
            known[handler.name] = handler.registered(known.get(handler.name), number, now)
        document.release_held([handler.name for handler in handlers], now)

    @transaction
    def handlers(self, document: Document, now: Moment) -> list[HandlerInfo]:
        return [document.handlers[name] for name in sorted(document.handlers)]

    async def forget(self, names: Iterable[str]) -> None:
        await self._forget(list(names))

    @transaction
    def _forget(self, document: Document, now: Moment, names: Sequence[str]) -> None:
        for name in names:
            document.handlers.pop(name, None)

    @transaction
    def wish(self, document: Document, now: Moment, key: str, value: str | None, *, by: str | None = None) -> int:
        document.version += 1
        document.wishes[key] = Wish(key=key, value=value, version=document.version, by=by)
        document.ring("*")
        return document.version

    @transaction
    def wishes(self, document: Document, now: Moment, since: int = 0) -> list[Wish]:
        newer = (wish for wish in document.wishes.values() if wish.version > since)
        return sorted(newer, key=lambda wish: wish.version)
