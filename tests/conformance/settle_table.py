"""The truth table of settling: every distinguishable input of `model.settlement`, brought about in a real store."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.batch import Cancel, NewBatch, Pause
from pitboss.model.duration import SECOND
from pitboss.model.filter import by
from pitboss.model.ids import IdMaker, TaskId
from pitboss.model.outcome import Transition
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource import NewResource, PoolRules, Report, ResourceOutcome
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.settlement import Settlement
from pitboss.model.states import State
from pitboss.model.task import NewTask, TaskError, Token, Unique
from pitboss.testing.clock import FakeClock

POOL, RULES = "pool", PoolRules(max_failures=1, max_ejected=1.0)
UNKNOWN_SESSION = 987_654
_OLD = TaskError(category="old", message="an earlier failure", fingerprint="aaaaaaaaaaaa")
_NEW = TaskError(category="new", message="this failure", type="ValueError", fingerprint="bbbbbbbbbbbb")


def _ends(state: State, outcome: str, **more: Any) -> Transition:
    return Transition(state=state, outcome=outcome, **more)


TRANSITIONS: dict[str, Transition] = {
    "completed": _ends(State.COMPLETED, "completed", result='"r"', charged=True),
    "failed": _ends(State.FAILED, "failed", error=_NEW, reason="not retryable", charged=True),
    "poison": _ends(State.FAILED, "crashed", error=_NEW, reason="poison", lost=True, crashed=True),
    "cancelled": _ends(State.CANCELLED, "cancelled", reason="given up", charged=True),
    "retried later": _ends(State.SCHEDULED, "failed", delay=SECOND, error=_NEW, charged=True),
    "retried at once": _ends(State.PENDING, "retried", delay=0, error=_NEW, charged=True),
    "timed out": _ends(State.SCHEDULED, "timed_out", delay=SECOND, error=_NEW, charged=True),
    "snoozed": _ends(State.SCHEDULED, "snoozed", delay=SECOND, reason="not now"),
    "snoozed at once": _ends(State.PENDING, "snoozed", delay=0),
    "rotated": _ends(State.PENDING, "rotated", error=_NEW, rotated=True),
    "released before its start": _ends(State.PENDING, "released", recorded=False),
    "released": _ends(State.PENDING, "released"),
    "lost": _ends(State.PENDING, "lost", lost=True),
    "crashed": _ends(State.PENDING, "crashed", error=_NEW, lost=True, crashed=True),
    "progress": _ends(State.RUNNING, "progress", progress=50, note="half", recorded=False),
    "sign of life": _ends(State.RUNNING, "progress", recorded=False),
}
REPORTS: dict[str, Report] = {
    "completed": Report(outcome=ResourceOutcome.OK, destination="example.org"),
    "failed": Report(outcome=ResourceOutcome.TASK_ERROR),
    "poison": Report(outcome=ResourceOutcome.RESOURCE_ERROR, error="reset"),
    "cancelled": Report(outcome=ResourceOutcome.OK),
    "retried later": Report(outcome=ResourceOutcome.RATE_LIMITED, retry_after=5 * SECOND),
    "rotated": Report(outcome=ResourceOutcome.BLOCKED, error="403"),
}
RUNNING, OTHER_NUMBER, OTHER_SESSION = "running", "running under another number", "running under another session"
ALIKE, OTHERWISE, UNCLAIMED, MISSING = "settled alike", "settled otherwise", "never claimed", "missing"
FOUND = (RUNNING, OTHER_NUMBER, OTHER_SESSION, ALIKE, OTHERWISE, UNCLAIMED, MISSING)
LIVE, OTHER, EXPIRED, ENDED, UNKNOWN = "live", "other", "expired", "ended", "unknown"
HOLDERS = (LIVE, EXPIRED, ENDED)
BATCHES = ("running", "pausing", "cancelling")
# Claims with a time limit of their own, and how long they last.
LASTING, OVER = "lasting", "over"
LASTS = {None: None, LASTING: 3600 * SECOND, OVER: 10 * SECOND}
# A first run that leaves something in every field that a later one may keep or change.
_EARLIER = _ends(
    State.SCHEDULED, "failed", delay=SECOND, error=_OLD, charged=True, lost=True, crashed=True, result='"old"'
)


class Case(NamedTuple):
    """One line of the table: what is written, how the store has the task, and whose token it is."""

    transition: str
    found: str = RUNNING
    session: str = LIVE
    bound: bool = False
    cancel: bool = False
    batch: str | None = None
    history: bool = False
    # The settlement does not say what its claim has.
    silent: bool = False
    keyed: bool = False
    limit: str | None = None
    # With history, and it crashed once more: the next crash is one too many.
    worn: bool = False

    @property
    def holder(self) -> str:
        """The session that claims the task."""
        return LIVE if self.found == OTHER_SESSION or self.session == UNKNOWN else self.session

    @property
    def queue(self) -> str:
        return _queue(self.holder, self.limit, bound=self.bound)

    @property
    def handler(self) -> str:
        return _handler(self.queue) if self.bound else "job"


def _queue(holder: str, limit: str | None, *, bound: bool) -> str:
    return f"{'bound' if bound else 'plain'}-{holder}-{limit or 'unlimited'}"


def _handler(queue: str) -> str:
    return f"fetch-{queue}"


def settle_cases() -> Iterator[Case]:
    """Running under a live session in every way; and refused, or repeated, in every way."""
    for transition, bound in product(TRANSITIONS, (False, True)):
        for cancel, batch, history in product((False, True), (None, *BATCHES), (False, True)):
            yield Case(transition, bound=bound, cancel=cancel, batch=batch, history=history)
        for found, session in product(FOUND, (LIVE, EXPIRED, ENDED, UNKNOWN)):
            if (found, session) != (RUNNING, LIVE):
                yield Case(transition, found, session, bound)
    for transition, bound, batch in product(("completed", "failed", "released"), (False, True), (None, *BATCHES)):
        yield Case(transition, bound=bound, batch=batch, silent=True)
        yield Case(transition, bound=bound, batch=batch, keyed=True)
    yield from _limited_cases()


def _limited_cases() -> Iterator[Case]:
    """Running under a claim with a time limit of its own, whether its session lives or not."""
    for transition, bound, limit in product(TRANSITIONS, (False, True), (LASTING, OVER)):
        for cancel, batch in product((False, True), (None, *BATCHES)):
            yield Case(transition, bound=bound, cancel=cancel, batch=batch, limit=limit)
        for found, session in product((RUNNING, OTHER_NUMBER, ALIKE, OTHERWISE), (LIVE, EXPIRED, ENDED, UNKNOWN)):
            if (found, session) != (RUNNING, LIVE):
                yield Case(transition, found, session, bound, limit=limit)
    for transition, limit in product(("completed", "failed"), (LASTING, OVER)):
        yield Case(transition, limit=limit, keyed=True)


def lost_cases() -> Iterator[Case]:
    """Running under dead sessions, or under claims with a time limit of their own, also of live ones.

    A batch that is being cancelled is left out: the sweep cancels what it holds.
    """
    for bound, cancel, batch in product((False, True), (False, True), (None, "running", "pausing")):
        for session, history in product((EXPIRED, ENDED), (False, True)):
            yield Case("completed", RUNNING, session, bound, cancel, batch, history)
        for session, limit in product((LIVE, EXPIRED, ENDED), (LASTING, OVER)):
            for history, worn in ((False, False), (True, False), (True, True)):
                yield Case("completed", RUNNING, session, bound, cancel, batch, history, limit=limit, worn=worn)
    yield Case("completed", RUNNING, LIVE, history=True, keyed=True, limit=OVER, worn=True)


class Table:
    """A store in which every case has been brought about, and the settlement that each one asks for."""

    def __init__(self, store: FullStore, clock: FakeClock, cases: Iterable[Case]) -> None:
        self.store, self.clock = store, clock
        self.settlements: dict[Case, Settlement] = {}
        self._ids = IdMaker(clock.now, Random(5).getrandbits)
        self._cases = list(cases)
        self._sessions: dict[str, int] = {UNKNOWN: UNKNOWN_SESSION}
        self._tasks: dict[Case, TaskId] = {}
        self._claims: dict[TaskId, Any] = {}
        self._batches: dict[str, str] = {}

    def alive(self, session: int) -> bool:
        return session in (self._sessions[LIVE], self._sessions[OTHER])

    async def prepare(self) -> None:
        await self._declare()
        await self._put_batches()
        earlier = [case for case in self._cases if case.history]
        await self._put([case for case in earlier if case.batch is None])
        await self._run_once(earlier)
        await self._run_once([case for case in earlier if case.worn])
        await self._put([case for case in self._cases if case.batch is None and not case.history])
        await self._claim()
        self.settlements = {case: self._settlement(case) for case in self._cases}
        await self._settle_before()
        await self.store.cancel(by(id=tuple(self._tasks[case] for case in self._cases if case.cancel)), limit=10_000)
        await self._stop_batches()
        await self.store.end_session(self._sessions[ENDED])
        self.clock.advance(20)

    async def _declare(self) -> None:
        await self.store.declare_pool(POOL, RULES)
        await self.store.add_resources(POOL, [NewResource(name=f"m{n:04}") for n in range(len(self._cases))])
        bound = [_queue(holder, limit, bound=True) for holder, limit in product(HOLDERS, LASTS)]
        fetching = [HandlerInfo(name=_handler(queue), queue=queue, resources=POOL) for queue in bound]
        await self.store.register([HandlerInfo(name="job"), *fetching])
        names = ("job", *(handler.name for handler in fetching))
        for session in (LIVE, OTHER, EXPIRED, ENDED):
            ttl = 15 * SECOND if session == EXPIRED else 3600 * SECOND
            opened = await self.store.open_session(SessionInfo(host="here", handlers=names, ttl=ttl))
            self._sessions[session] = opened.number

    async def _put_batches(self) -> None:
        await self.store.change_lane("default", len(BATCHES))
        for name in BATCHES:
            # The first item runs on, so that the batch does not come to its end.
            items = [self._spare(), *(self._new(case) for case in self._cases if case.batch == name)]
            self._batches[name] = (await self.store.create_batch(NewBatch(id=self._ids()), items)).id

    async def _run_once(self, cases: Sequence[Case]) -> None:
        """Let these tasks have a past: a run that failed, with a member that was refused."""
        await self._claim()
        refused = Report(outcome=ResourceOutcome.BLOCKED)
        earlier = {bound: msgspec.structs.replace(_EARLIER, rotated=bound, delay=SECOND) for bound in (False, True)}
        for bound in (False, True):
            claims = [self._claims[self._tasks[case]] for case in cases if case.bound is bound]
            await self.store.settle(
                [
                    Settlement(id=one.id, token=one.token, transition=earlier[bound], report=refused if bound else None)
                    for one in claims
                ]
            )
        self.clock.advance(2)

    async def _put(self, cases: Sequence[Case]) -> None:
        await self.store.put([self._new(case) for case in cases if case.found not in (UNCLAIMED, MISSING)])

    async def _claim(self) -> None:
        for holder in HOLDERS:
            slots = [self._slot(holder, limit) for limit in LASTS]
            claimed = await self.store.claim(ClaimRequest(session=self._sessions[holder], slots=tuple(slots)))
            self._claims |= {claim.id: claim for claim in claimed.claims}

    def _slot(self, holder: str, limit: str | None) -> Slot:
        queues = tuple(_queue(holder, limit, bound=bound) for bound in (False, True))
        if (holder, limit) == (LIVE, None):
            queues += ("spare",)
        return Slot(free=10_000, queues=queues, lasts=LASTS[limit], worker="r1", repeat=None)

    async def _settle_before(self) -> None:
        """The same settlement already, or another one."""
        before: list[Settlement] = []
        for case, settlement in self.settlements.items():
            if case.found == ALIKE and TRANSITIONS[case.transition].state is not State.RUNNING:
                before.append(msgspec.structs.replace(settlement, token=self._claims[settlement.id].token))
            elif case.found in (ALIKE, OTHERWISE):
                other = "released" if TRANSITIONS[case.transition].outcome == "snoozed" else "snoozed"
                token = self._claims[settlement.id].token
                before.append(Settlement(id=settlement.id, token=token, transition=TRANSITIONS[other]))
        answers = await self.store.settle(before)
        assert all(answer.applied for answer in answers)
        unclaimed = [case for case in self._cases if case.found == UNCLAIMED]
        await self.store.put([self._new(case, self._tasks[case]) for case in unclaimed])

    async def _stop_batches(self) -> None:
        await self.store.act_on_batch(self._batches["pausing"], Pause())
        # Of its items only the first, which belongs to no case, is marked by this.
        await self.store.act_on_batch(self._batches["cancelling"], Cancel(), limit=1)

    def _new(self, case: Case, task: TaskId | None = None) -> NewTask:
        self._tasks[case] = task or self._ids()
        key = Unique(self._tasks[case]) if case.keyed else None
        return NewTask(id=self._tasks[case], handler=case.handler, queue=case.queue, unique=key)

    async def key_is_free(self, task: TaskId) -> bool:
        """Whether another task may have the key of this one; its key is its id."""
        (placed,) = await self.store.put([NewTask(id=self._ids(), handler="job", queue="spare", unique=Unique(task))])
        return placed.created

    def _spare(self) -> NewTask:
        return NewTask(id=self._ids(), handler="job", queue="spare")

    def _settlement(self, case: Case) -> Settlement:
        task = self._tasks.setdefault(case, self._ids())
        claim = self._claims.get(task)
        number = 0 if claim is None else claim.token.claim
        session = OTHER if (case.found, case.session) == (OTHER_SESSION, LIVE) else case.session
        # Some say how long the handler ran, and where; some do not.
        long = case.cancel is not case.history
        return Settlement(
            id=task,
            token=Token(self._sessions[session], number + (case.found == OTHER_NUMBER)),
            transition=TRANSITIONS[case.transition],
            worker="w1" if long else None,
            ran=7 if long else None,
            queue=case.queue,
            batch=None if case.batch is None or case.silent else self._batches[case.batch],
            resource=claim.leased.id if case.bound and claim is not None and not case.silent else None,
            report=REPORTS.get(case.transition) if case.bound and not case.silent else None,
        )
