"""Checks every worker several times a second, and does what `model/health.py` says."""

import asyncio
from collections.abc import Callable, Iterable

from pitboss.manager.announcer import Announcer
from pitboss.manager.process_usage import measure, proportional
from pitboss.manager.session_router import SessionRouter
from pitboss.manager.worker_pool import WorkerPool
from pitboss.manager.worker_process import STANDS_STILL, WorkerProcess, overdue, surely_started
from pitboss.manager.worker_slot import WorkerSlot
from pitboss.model.duration import SECOND, Span, spoken
from pitboss.model.health import Finding, Remedy, Vital, judge
from pitboss.model.outcome import Crashed, Outcome, Released
from pitboss.model.task import Claim, TaskError

CHECK_SECONDS = 0.25
# Pools without a memory limit are checked once a second.
_CHECK_EVERY = 4
_MEASURE_EVERY = 8
_GRACE = 2.0
_ASLEEP = 2.0
_FRAMES = 12
# A process that has not written its stack by then does not run at all.
_STACK_SECONDS = 2.0


class HealthChecks:
    """Checks the workers of all pools, round after round. `time_limit` is the time limit of a task."""

    def __init__(
        self,
        pools: Callable[[], Iterable[WorkerPool]],
        router: SessionRouter,
        announcer: Announcer,
        time_limit: Callable[[Claim], Span | None],
    ) -> None:
        self._pools, self._router, self._announcer, self._time_limit = pools, router, announcer, time_limit
        self._time = asyncio.get_running_loop().time
        self._measured = self._time()
        self._last_fault = ""

    async def run(self) -> None:
        rounds, before = 0, self._time()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            rounds, away = rounds + 1, self._time() - before
            before += away
            if away > _ASLEEP:
                # The silence was ours: the machine slept, or this process was stopped.
                for pool in self._pools():
                    for worker in pool.workers:
                        worker.heard_at += away
            try:
                self.check(every=rounds % _CHECK_EVERY == 0, thorough=rounds % _MEASURE_EVERY == 0)
            except Exception as error:
                # One broken check must not end all checks.
                self._report_fault(f"a fault of Pitboss itself ({type(error).__name__}: {error}); health checks go on")

    def check(self, *, every: bool, thorough: bool) -> None:
        """Check every worker, or only those with a memory limit; a thorough check measures all of them."""
        for pool in list(self._pools()):
            limited = pool.spec.soft is not None
            if not limited and not every:
                continue
            for slot in pool.every_slot():
                for worker in list(slot.workers):
                    if worker.pid and (thorough or limited):
                        self._measure(worker, pool.spec.soft, thorough)
                    self._check_worker(slot, worker)
        if thorough:
            self._measured = self._time()

    def _measure(self, worker: WorkerProcess, soft: int | None, thorough: bool) -> None:
        usage = measure(worker.pid)
        memory = usage.memory
        if soft is not None and memory > soft:
            # The quick measurement counts pages that a parent shares with its children several times.
            memory = proportional(worker.pid) or memory
        worker.memory, worker.peak = memory, max(worker.peak, memory)
        if thorough:
            elapsed = max(0.1, self._time() - self._measured)
            worker.cpu = max(0.0, usage.cpu_seconds - worker.cpu_seconds) / elapsed
            worker.cpu_seconds = usage.cpu_seconds

    def _check_worker(self, slot: WorkerSlot, worker: WorkerProcess) -> None:
        if worker.gone.is_set() or worker.kill_reason is not None or not worker.pid:
            return
        now = self._time()
        late = overdue(worker, now, self._time_limit, _GRACE)
        vital = Vital(
            age=round((now - worker.began) * SECOND),
            ready=worker.ready.is_set(),
            silent=round(worker.silence * SECOND),
            deaf_beats=worker.deaf_beats,
            overdue=len(late),
            memory=worker.memory,
            fresh=worker.fresh,
            processed=worker.processed,
        )
        finding = judge(vital, slot.spec)
        if finding is None:
            return
        match finding.remedy:
            case Remedy.TELL:
                self._report_blocked(worker, finding)
            case Remedy.REPLACE:
                self._replace(slot, worker, finding)
            case Remedy.KILL:
                self._kill(worker, finding, late)

    def _report_blocked(self, worker: WorkerProcess, finding: Finding) -> None:
        """Ask it for its stack, and report the blocked line at one of the next checks; after a while without it."""
        if not worker.asked_for_stack:
            worker.ask_for_stack()
        elif worker.reported_blocked:
            return
        elif stack := worker.read_stack():
            worker.reported_blocked = True
            self._announcer.say(f"worker {worker.name} {finding.text}; it is at {innermost(stack)}")
        elif self._time() - worker.asked_at >= _STACK_SECONDS:
            worker.reported_blocked = True
            silent = f"has not answered for {spoken(round(worker.silence) * SECOND)}"
            self._announcer.say(f"worker {worker.name} {silent} and does not say where it is: {STANDS_STILL}")

    def _replace(self, slot: WorkerSlot, worker: WorkerProcess, finding: Finding) -> None:
        if slot.current is worker and not worker.draining and slot.replaceable:
            self._announcer.say(f"worker {worker.name} {finding.text}; it is replaced after its tasks")
            slot.replace()

    def _kill(self, worker: WorkerProcess, finding: Finding, late: list[Claim]) -> None:
        if finding.kind in ("timeout", "blocked") and not worker.asked_for_stack:
            # Kill it at the next check: only its stack shows which line blocks.
            worker.ask_for_stack()
            return
        stack = worker.read_stack()
        place = f"; it was at {innermost(stack)}" if stack else ""
        self._announcer.say(f"worker {worker.name} {finding.text}; it is killed{place}")
        reason = TaskError(
            category=finding.kind,
            type="WorkerEnded",
            message=f"worker {worker.name} (pid {worker.pid}) {finding.text}{place}",
            traceback=stack,
            fingerprint="",
        )
        self._router.close_worker(worker)
        for claim in late if finding.kind == "timeout" else []:
            if surely_started(worker, claim):
                self._router.time_out(worker, claim, reason)
        worker.kill_for(reason, _task_outcome(finding, reason))

    def _report_fault(self, text: str) -> None:
        if text != self._last_fault:
            self._last_fault = text
            self._announcer.say(text)


def _task_outcome(finding: Finding, reason: TaskError) -> Outcome | None:
    """The outcome of the other tasks of a killed worker; None for an ordinary crash."""
    match finding.kind:
        case "deaf":
            return Released()
        case "timeout":
            # The task to blame is settled, or shows when each of them runs alone.
            return Crashed(alone=False, error=reason)
    return None


def innermost(stack: str) -> str:
    """The innermost line of the interrupted thread, from a stack that `faulthandler` wrote."""
    frames = [line.strip() for line in stack.partition("Current thread")[2].splitlines()[1:_FRAMES] if "File" in line]
    own = [frame for frame in frames if "/asyncio/" not in frame and "uvloop" not in frame]
    return (own or frames or ["an unknown place"])[0]
