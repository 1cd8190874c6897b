"""What remote workers say of their claims. Reports that come together are written together."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from pitboss.dispatch.remote_claims import GATHERING_TURNS
from pitboss.engines.protocol import Store
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.lifecycle import claim_on
from pitboss.model.outcome import Outcome, Transition, decide, progressed
from pitboss.model.policy import Policy
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import FINISHED, State
from pitboss.model.task import Claim, Task

_KEPT = 20_000
In = TypeVar("In")
Out = TypeVar("Out")


class Grouped(Generic[In, Out]):
    """Calls a verb that takes a list once for all that asked while the last call ran."""

    def __init__(self, call: Callable[[Sequence[In]], Awaitable[Sequence[Out]]], most: int = 1000) -> None:
        self._call, self._most = call, most
        self._waiting: list[tuple[In, asyncio.Future[Out]]] = []
        self._running: asyncio.Task[None] | None = None

    async def ask(self, one: In) -> Out:
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                for _ in range(GATHERING_TURNS):
                    await asyncio.sleep(0)
                group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._one(group)
        finally:
            self._running = None

    async def _one(self, group: "list[tuple[In, asyncio.Future[Out]]]") -> None:
        try:
            answers = await self._call([one for one, _ in group])
        except Exception as error:
            for _, waiting in group:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(group, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)


class Report(NamedTuple):
    """What a worker says of one of its claims: how it ended, or that it still works on it (no outcome).

    Without a token it means the claim that this worker has now.
    """

    task: TaskId
    worker: str
    token: str | None = None
    outcome: Outcome | None = None
    percent: int | None = None
    note: str | None = None


class Reported(NamedTuple):
    """The task's state after the report, or why it was refused: "missing" (no such task), "other" (another worker has
    it), "idle" (no worker has it), "over" (this claim has ended)."""

    state: State | None = None
    refused: str | None = None
    claim_expires_at: Moment | None = None
    cancel_asked: bool = False


class RemoteReports:
    """Decides outcomes by the policies of the registry, and settles them. It remembers claims that were given here, so
    that the usual report needs no read; any other server can take the report too."""

    def __init__(self, store: Store, policies: Callable[[str], Policy], luck: Callable[[], float]) -> None:
        self._store, self._policies, self._luck = store, policies, luck
        self._known: OrderedDict[TaskId, tuple[str, Claim]] = OrderedDict()
        self._settle: Grouped[Settlement, SettleAnswer] = Grouped(store.settle)
        self._get: Grouped[TaskId, Task | None] = Grouped(store.get)

    def note(self, worker: str, claims: Iterable[Claim]) -> None:
        """These claims were given to this worker."""
        for claim in claims:
            self._known[claim.id] = (worker, claim)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)

    async def report_many(self, reports: Sequence[Report]) -> list[Reported]:
        """As `report`, for many: the usual ones are settled by one call."""
        found: dict[int, Reported] = {}
        now, made = self._store.clock.now(), list[tuple[int, Settlement]]()
        for number, report in enumerate(reports):
            claim = self._given(report)
            if claim is not None and report.outcome is not None:
                transition = decide(claim, report.outcome, self._policies(claim.handler), now, self._luck())
                if transition.state in FINISHED:
                    made.append((number, _settlement(report, claim, transition)))
                else:
                    self.note(report.worker, [claim])
        answers = await self._store.settle([one for _, one in made]) if made else []
        for (number, one), answer in zip(made, answers, strict=True):
            if answer.applied:
                found[number] = Reported(one.transition.state)
        rest = [number for number in range(len(reports)) if number not in found]
        found |= zip(rest, await asyncio.gather(*(self.report(reports[number]) for number in rest)), strict=True)
        return [found[number] for number in range(len(reports))]

    async def report(self, report: Report) -> Reported:
        claim = self._given(report)
        if claim is not None and report.outcome is not None:
            done = await self._end(report, claim, report.outcome)
            if done is not None:
                return done
        return await self._by_reading(report)

    def _given(self, report: Report) -> Claim | None:
        """The claim that a last report is about, if it was given here."""
        if report.outcome is None:
            return None
        worker, claim = self._known.pop(report.task, ("", None))
        return claim if worker == report.worker and claim and report.token in (None, str(claim.token)) else None

    async def _by_reading(self, report: Report) -> Reported:
        task = await self._get.ask(report.task)
        refused = _refusal(task, report)
        if task is None or refused is not None:
            return Reported(refused=refused)
        claim = claim_on(task, task.session or 0, 0)
        if report.outcome is None:
            return await self._sign(report, claim, task)
        done = await self._end(report, claim, report.outcome)
        if done is not None:
            return done
        lost = task.state is State.RUNNING or task.outcome == "lost"
        return Reported(refused="over" if lost else "idle", state=task.state)

    async def _end(self, report: Report, claim: Claim, outcome: Outcome) -> Reported | None:
        """None if the store refused it."""
        transition = decide(claim, outcome, self._policies(claim.handler), self._store.clock.now(), self._luck())
        answer = await self._settled(report, claim, transition)
        if not answer.applied:
            return None
        if transition.state in FINISHED:
            return Reported(transition.state)
        # It may have become cancelled or held instead of waiting.
        task = await self._get.ask(claim.id)
        return Reported(transition.state if task is None else task.state)

    async def _sign(self, report: Report, claim: Claim, task: Task) -> Reported:
        if task.state is not State.RUNNING:
            return Reported(refused="over" if task.outcome == "lost" else "idle", state=task.state)
        answer = await self._settled(report, claim, progressed(report.percent, report.note))
        if not answer.applied:
            return Reported(refused="over")
        until: Moment | None = None
        if task.claim_lasts is not None:
            until = self._store.clock.now() + task.claim_lasts
        return Reported(State.RUNNING, claim_expires_at=until, cancel_asked=task.cancel_asked)

    async def _settled(self, report: Report, claim: Claim, transition: Transition) -> SettleAnswer:
        return await self._settle.ask(_settlement(report, claim, transition))


def _settlement(report: Report, claim: Claim, transition: Transition) -> Settlement:
    return Settlement(
        id=claim.id,
        token=claim.token,
        transition=transition,
        worker=report.worker,
        queue=claim.queue,
        batch=claim.batch,
    )


def _refusal(task: Task | None, report: Report) -> str | None:
    if task is None:
        return "missing"
    if task.worker != report.worker:
        return "other" if task.state is State.RUNNING else "idle"
    token = f"{task.session}.{task.claim}"
    return "over" if report.token not in (None, token) else None
