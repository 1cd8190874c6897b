"""Looks at every worker, several times a second, and does what `model/health.py` says about what it sees."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from pitboss.manager.crew import Crew
from pitboss.manager.place import Place
from pitboss.manager.process import WorkerProcess, overdue, surely_begun
from pitboss.manager.vitals import measure, proportional
from pitboss.model.duration import SECOND, Span
from pitboss.model.health import Finding, Remedy, Vital, judge
from pitboss.model.outcome import Crashed, Outcome, Released
from pitboss.model.task import Claim, TaskError

LOOK_SECONDS = 0.25
# Pools without a memory limit have no hurry.
_LOOK_EVERY = 4
_MEASURE_EVERY = 8
_GRACE = 2.0
_ASLEEP = 2.0
_FRAMES = 12


class Overseer(Protocol):
    """What the watch needs of the manager."""

    def say(self, text: str) -> None: ...

    def leaving(self, worker: WorkerProcess) -> None: ...

    def time_limit(self, claim: Claim) -> Span | None: ...

    def timed_out(self, worker: WorkerProcess, claim: Claim, error: TaskError) -> None: ...


class Watch:
    """One round after the other over the workers of all pools."""

    def __init__(self, overseer: Overseer, crews: Callable[[], Iterable[Crew]]) -> None:
        self._overseer, self._crews = overseer, crews
        self._time = asyncio.get_running_loop().time
        self._measured = self._time()
        self._said = ""

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._overseer.say(text)

    async def run(self) -> None:
        rounds, before = 0, self._time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            rounds, away = rounds + 1, self._time() - before
            before += away
            if away > _ASLEEP:
                # We were the ones who did not listen: the machine slept, or this process was stopped.
                for crew in self._crews():
                    for worker in crew.workers:
                        worker.heard_at += away
            try:
                self.look(every=rounds % _LOOK_EVERY == 0, thorough=rounds % _MEASURE_EVERY == 0)
            except Exception as error:
                # One look that breaks must not be the last one at everybody.
                self._say_once(f"a fault of Pitboss itself ({type(error).__name__}: {error}); the watch goes on")

    def look(self, *, every: bool, thorough: bool) -> None:
        """Every worker once, or those only whose pool has a memory limit; a thorough look measures all of them."""
        for crew in list(self._crews()):
            limited = crew.spec.soft is not None
            if not limited and not every:
                continue
            for place in crew.every_place():
                for worker in list(place.workers):
                    if worker.pid and (thorough or limited):
                        self._measure(worker, crew.spec.soft, thorough)
                    self._see(place, worker)
        if thorough:
            self._measured = self._time()

    def _measure(self, worker: WorkerProcess, soft: int | None, thorough: bool) -> None:
        vitals = measure(worker.pid)
        memory = vitals.memory
        if soft is not None and memory > soft:
            # What a parent and its children share was counted for each of them.
            memory = proportional(worker.pid) or memory
        worker.memory, worker.peak = memory, max(worker.peak, memory)
        if thorough:
            elapsed = max(0.1, self._time() - self._measured)
            worker.cpu = max(0.0, vitals.cpu_seconds - worker.cpu_seconds) / elapsed
            worker.cpu_seconds = vitals.cpu_seconds

    def _see(self, place: Place, worker: WorkerProcess) -> None:
        if worker.gone.is_set() or worker.sentence is not None or not worker.pid:
            return
        now = self._time()
        late = overdue(worker, now, self._overseer.time_limit, _GRACE)
        vital = Vital(
            age=round((now - worker.began) * SECOND),
            ready=worker.ready.is_set(),
            silent=round((now - worker.heard_at) * SECOND),
            deaf_beats=worker.deaf_beats,
            overdue=len(late),
            memory=worker.memory,
            fresh=worker.fresh,
            processed=worker.processed,
        )
        finding = judge(vital, place.spec)
        if finding is None:
            return
        match finding.remedy:
            case Remedy.TELL:
                self._name(worker, finding)
            case Remedy.REPLACE:
                self._replace(place, worker, finding)
            case Remedy.KILL:
                self._end(worker, finding, late)

    def _name(self, worker: WorkerProcess, finding: Finding) -> None:
        """Ask it where it is, and say so a moment later."""
        if not worker.asked_for_stack:
            worker.ask_for_stack()
        elif not worker.named_blocked and worker.read_stack():
            worker.named_blocked = True
            self._overseer.say(f"worker {worker.name} {finding.text}; it is at {where(worker.stack)}")

    def _replace(self, place: Place, worker: WorkerProcess, finding: Finding) -> None:
        if place.current is worker and not worker.draining and place.replaceable:
            self._overseer.say(f"worker {worker.name} {finding.text}; it is replaced after its tasks")
            place.replace()

    def _end(self, worker: WorkerProcess, finding: Finding, late: list[Claim]) -> None:
        if finding.kind in ("timeout", "blocked") and not worker.asked_for_stack:
            # It can wait for the next look; without a stack nobody learns which line it was.
            worker.ask_for_stack()
            return
        stack = worker.read_stack()
        place = f"; it was at {where(stack)}" if stack else ""
        self._overseer.say(f"worker {worker.name} {finding.text}; it is ended{place}")
        sentence = TaskError(
            category=finding.kind,
            type="WorkerEnded",
            message=f"worker {worker.name} (pid {worker.pid}) {finding.text}{place}",
            traceback=stack,
            fingerprint="",
        )
        self._overseer.leaving(worker)
        for claim in late if finding.kind == "timeout" else []:
            if surely_begun(worker, claim):
                self._overseer.timed_out(worker, claim, sentence)
        worker.kill(sentence, _fate(finding, sentence))


def _fate(finding: Finding, sentence: TaskError) -> Outcome | None:
    """What becomes of the other tasks of a worker that is ended; None if it is a crash like any other."""
    match finding.kind:
        case "deaf":
            return Released()
        case "timeout":
            # Whose fault it was is settled, or shows when each of them runs by itself.
            return Crashed(alone=False, error=sentence)
    return None


def where(stack: str) -> str:
    """The innermost place of the thread that was asked, out of a stack as `faulthandler` writes it."""
    frames = [line.strip() for line in stack.partition("Current thread")[2].splitlines()[1:_FRAMES] if "File" in line]
    own = [frame for frame in frames if "/asyncio/" not in frame and "uvloop" not in frame]
    return (own or frames or ["an unknown place"])[0]
