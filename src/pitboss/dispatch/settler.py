"""Writes settlements in groups: each group is what has gathered while the last one was written."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from pitboss.dispatch.worker_group import WorkerGroup
from pitboss.engines.protocol import Clock, Engine, Ledger
from pitboss.model.canonical import printable
from pitboss.model.duration import SECOND, Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.filter import by
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Outcome, Released, Transition, decide
from pitboss.model.outdone import SentAway
from pitboss.model.placement import NO_MEMORY
from pitboss.model.policy import Policy
from pitboss.model.resource import Report, UseEnd
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Claim, Task, TaskError, Token

GROUP = 4000
FULL = 12_000
_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_PAGE = 1000
# A claim that was cut off may still wait for a lock in the store and succeed later: look several times.
_LOOK_AFTER = (0.0, 2.0, 15.0, 60.0)
_LOOK_EVERY = 60.0
_UNSTORABLE = "its outcome could not be stored"
_UNHEARD = Transition(state=State.PENDING, outcome="released", recorded=False)

_NO_MEMORY = Transition(
    state=State.SCHEDULED,
    outcome="released",
    delay=2 * SECOND,
    reason=NO_MEMORY,
    recorded=False,
)

Told = Callable[[SettleAnswer], None]
Noted = Callable[[Claim, Settlement], None]


class _Entry(NamedTuple):
    settlement: Settlement
    told: Told | None


class Settler:
    """A queue in front of `engine.settle`. If the store is down it tries again: a repeated settlement is harmless.

    `returned` is called when members of resource pools may have been given back, `sent_away` (if set) for each that
    the store sent away because others outdid it.
    """

    def __init__(self, engine: Engine, returned: Callable[[], None]) -> None:
        self._engine, self._returned = engine, returned
        self.sent_away: Callable[[SentAway], None] | None = None
        self._waiting: dict[tuple[TaskId, int], _Entry] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight: frozenset[tuple[TaskId, int]] = frozenset()

    @property
    def backlog(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def full(self) -> bool:
        """Back-pressure: claim nothing while the store cannot keep up with settlements."""
        return self.backlog >= FULL

    def add(self, settlement: Settlement, told: Told | None = None) -> None:
        """Queue a settlement. It replaces an unsent one of the same claim, which can only be a progress report."""
        self._waiting[settlement.id, settlement.token.claim] = _Entry(settlement, told)
        self._idle.clear()
        self._work.set()

    def holds(self, task: TaskId, token: Token) -> bool:
        """Whether a settlement of that claim waits or is being written."""
        return (task, token.claim) in self._waiting or (task, token.claim) in self._in_flight

    async def run(self) -> None:
        """Write groups until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await self._write(self._next_group())
            if not self._waiting:
                self._idle.set()

    async def flushed(self) -> None:
        """Returns once everything added so far has been written."""
        await self._idle.wait()

    def _next_group(self) -> list[_Entry]:
        keys = list(self._waiting)[:GROUP]
        return [self._waiting.pop(key) for key in keys]

    async def _write(self, group: list[_Entry]) -> None:
        self._in_flight = frozenset((entry.settlement.id, entry.settlement.token.claim) for entry in group)
        try:
            answers = await self._settled([entry.settlement for entry in group])
        finally:
            self._in_flight = frozenset()
        if any(_gives_back(entry.settlement) for entry in group):
            self._returned()
        for entry, answer in zip(group, answers, strict=True):
            if entry.told:
                entry.told(answer)
            if answer.away and self.sent_away:
                for one in answer.away:
                    self.sent_away(one)

    async def _settled(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        pause = _PAUSE
        while True:
            try:
                return await self._engine.settle(settlements)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:
                return await self._split(settlements, error)

    async def _split(self, settlements: Sequence[Settlement], error: Exception) -> list[SettleAnswer]:
        """A settlement that cannot be stored must not block the others, nor leave its task running for ever: then the
        task fails with what happened, if need be without details. If even that is refused, `LostClaims` gives the task
        back within a minute."""
        if len(settlements) > 1:
            middle = len(settlements) // 2
            return [*await self._settled(settlements[:middle]), *await self._settled(settlements[middle:])]
        plainer = _plainer(settlements[0], error)
        if plainer is None:
            return [SettleAnswer(False, f"it could not be stored: {error}")]
        return await self._settled([plainer])


class Outcomes:
    """Decides what the outcome of a claim means, and has it written.

    `noted` gets each decision before the store has written it: for people to watch, not to rely on.
    """

    def __init__(
        self, settler: Settler, policies: Callable[[str], Policy], clock: Clock, luck: Callable[[], float]
    ) -> None:
        self.settler, self._policies, self.clock, self._luck = settler, policies, clock, luck
        self.noted: Noted | None = None

    def settle(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        worker: str | None = None,
        ran: Span | None = None,
        told: Told | None = None,
        report: Report | None = None,
        use_end: UseEnd | None = None,
    ) -> None:
        transition = decide(claim, outcome, self._policies(claim.handler), self.clock.now(), self._luck())
        settlement = settlement_of(claim, transition, worker=worker, ran=ran, report=report, use_end=use_end)
        self.settler.add(settlement, told)
        if self.noted is not None:
            self.noted(claim, settlement)

    def unstarted(self, claim: Claim, outcome: Outcome | None = None) -> None:
        """Settle a claim that no worker has started: it goes back, or has this outcome."""
        self.settle(claim, outcome or Released(), use_end=unmade(claim))

    def give_back(self, claim: Claim, group: WorkerGroup) -> None:
        """It may start elsewhere; but if this host lacks memory for it, it must not come back at once."""
        if group.admits is None or group.admits(claim):
            self.unstarted(claim)
        else:
            self.settler.add(settlement_of(claim, _NO_MEMORY, use_end=unmade(claim)))


class LostClaims:
    """Gives back tasks that the store says we have and that we do not have: the answer of their claim was lost, or
    their end could not be stored. It looks after a claim without an answer, and once a minute in any case.

    `knows` says whether a claim is known here.
    """

    def __init__(self, engine: Ledger, settler: Settler, knows: Callable[[TaskId, Token], bool], now: float) -> None:
        self._engine, self._settler, self._knows = engine, settler, knows
        self._looks: list[float] = []
        self._look_anyway = now + _LOOK_EVERY

    @property
    def expected(self) -> bool:
        return bool(self._looks)

    def expect(self, now: float) -> None:
        """A claim got no answer."""
        self._looks = [now + delay for delay in _LOOK_AFTER]

    def due(self, now: float) -> bool:
        """Whether it is time to look."""
        return now >= min([self._look_anyway, *self._looks[:1]])

    async def give_back(self, session: int, now: float) -> None:
        """Look now. Call it while no claim is under way: then every unknown running task is a lost one."""
        after = None
        while True:
            page = await self._engine.find(by(state="running", session=str(session)), limit=_PAGE, after=after)
            for task in page.tasks:
                token = Token(session, task.claim)
                if not self._knows(task.id, token) and not self._settler.holds(task.id, token):
                    self._settler.add(_unheard(task, token))
            after = page.next
            if after is None:
                break
        self._looks = self._looks[1:]
        self._look_anyway = now + _LOOK_EVERY


def settlement_of(
    claim: Claim,
    transition: Transition,
    *,
    worker: str | None = None,
    ran: Span | None = None,
    report: Report | None = None,
    use_end: UseEnd | None = None,
) -> Settlement:
    """The settlement of a claim, with what the store would otherwise have to look up."""
    leased = claim.leased
    return Settlement(
        id=claim.id,
        token=claim.token,
        transition=transition,
        worker=worker,
        ran=ran,
        queue=claim.queue,
        batch=claim.batch,
        resource=None if leased is None else leased.id,
        report=report,
        use_end=use_end,
        handler=claim.handler,
    )


def unmade(claim: Claim) -> UseEnd | None:
    """The end of the use that came with a claim: the claim surely does not make it any more."""
    leased = claim.leased
    return None if leased is None or not leased.open_for else UseEnd(leased.use_at)


def _unheard(task: Task, token: Token) -> Settlement:
    return Settlement(
        id=task.id,
        token=token,
        transition=_UNHEARD,
        queue=task.queue,
        batch=task.batch,
        resource=task.resource,
        handler=task.handler,
    )


def _gives_back(settlement: Settlement) -> bool:
    return settlement.resource is not None and settlement.transition.state is not State.RUNNING


def _plainer(one: Settlement, error: Exception) -> Settlement | None:
    """What to store instead of a settlement that was refused: a failure that says why, then one that has nothing but
    what the store needs."""
    if one.transition.reason != _UNSTORABLE:
        told = TaskError(
            category="store", type=type(error).__name__, message=printable(str(error), 2000), retryable=False
        )
        failed = Transition(state=State.FAILED, outcome="failed", reason=_UNSTORABLE, error=told)
        return msgspec.structs.replace(one, transition=failed)
    if one.transition.error is None:
        return None
    return msgspec.structs.replace(
        one, transition=msgspec.structs.replace(one.transition, error=None), worker=None, ran=None, report=None
    )
