"""The fact hub: hands what happens on to the app's hooks, in one supervised process beside the workers.

Best effort by design: nothing here waits, holds up a task, or costs anything while nobody wants to hear.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from pitboss.engines.protocol import Clock, Store
from pitboss.manager import host
from pitboss.manager.answers import answer
from pitboss.manager.hook_process import HookProcess
from pitboss.manager.strays import end_strays
from pitboss.model import restart
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.model.facts import TASK_KINDS, AnyFact, HookFigures, task_fact, task_kind
from pitboss.model.pool import PoolSpec
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim
from pitboss.telemetry.logs.settings import LogSettings
from pitboss.worker.fact_frames import FromHooks, HandledMessage
from pitboss.worker.frames import AskMessage, HeartbeatMessage
from pitboss.worker.hooks_main import HooksSpec

DRAIN_SECONDS = 2.0
SAY_SECONDS = 60.0
# When the process is started again and when it counts as dead; its concurrency is how many hooks run at once.
RULES = PoolSpec(name="hooks", concurrency=8)


class Limits(NamedTuple):
    """How many facts may wait, and how long one hook may take."""

    waiting: int = 10_000
    seconds: float = 30.0


LIMITS = Limits()


class Hub:
    """Takes facts in the manager's loop. `tell` hears, in plain words, what a person would want to know.

    `wants_tasks` says whether any hook hears of tasks at all.
    """

    def __init__(
        self,
        target: str,
        kinds: Iterable[str],
        store: Store,
        *,
        clock: Clock,
        tell: Callable[[str], None],
        rules: PoolSpec = RULES,
        limits: Limits = LIMITS,
        logs: LogSettings | None = None,
    ) -> None:
        self._store, self._clock, self._tell, self._rules, self._most = store, clock, tell, rules, limits.waiting
        self._want(kinds)
        me = host.identity((), 0)
        self._host = me.host
        limit = round(limits.seconds * SECOND)
        self._spec = HooksSpec(target=target, manager=me.pid, concurrency=rules.concurrency, limit=limit, logs=logs)
        self._waiting: deque[AnyFact] = deque()
        self._drops = _Drops(tell)
        self._process: HookProcess | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._asks: set[asyncio.Task[None]] = set()
        self._record = restart.Record()
        self._stopping = False
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._handled = self._failed = self._lost = self._restarts = 0
        self._why = ""

    def start(self) -> None:
        """Begin to serve, if there is a hook at all."""
        if self._kinds and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep())

    def change(self, target: str, kinds: Iterable[str]) -> None:
        """Go on with other code: the process ends the hooks that run and then itself, and another one follows."""
        self._spec = msgspec.structs.replace(self._spec, target=target)
        self._record, self._why = restart.Record(), ""
        self._want(kinds)
        if self._process is not None:
            self._process.drain()
        self._wake.set()
        self.start()

    def wants(self, kind: str) -> bool:
        """Whether any hook would hear a fact of this kind: ask before you make one."""
        return kind in self._kinds

    def publish(self, fact: AnyFact) -> None:
        """Hand it to the hooks that want it, sooner or later. Host and time are filled in if it has none.

        Where too many wait, the oldest is dropped.
        """
        if fact.kind not in self._kinds:
            return
        if not fact.at:
            fact = msgspec.structs.replace(fact, host=self._host, at=self._clock.now())
        if len(self._waiting) >= self._most:
            self._waiting.popleft()
            self._drops.add()
        self._waiting.append(fact)
        self._feed()

    def note(self, claim: Claim, settlement: Settlement, pool: str) -> None:
        """An attempt ended: publish it, if that is a fact and somebody wants it. Ask `wants_tasks` first."""
        kind = task_kind(settlement.transition)
        if kind is None or kind not in self._kinds:
            return
        fact = task_fact(
            claim,
            settlement.transition,
            worker=settlement.worker,
            pool=pool,
            host=self._host,
            at=self._clock.now(),
            ran=settlement.ran,
        )
        if fact is not None:
            self.publish(fact)

    def figures(self) -> HookFigures:
        process = self._process
        return HookFigures(
            pid=process.pid if process is not None else 0,
            waiting=len(self._waiting) + (process.in_flight if process is not None else 0),
            handled=self._handled,
            failed=self._failed,
            dropped=self._drops.total,
            lost=self._lost,
            restarts=self._restarts,
            why=self._why,
        )

    async def stop(self, within: float = DRAIN_SECONDS) -> None:
        """Let the hooks hear what waits, for so many seconds, and end them. From here on nothing is wanted."""
        self._want(())
        process = self._process
        if process is not None and (self._waiting or process.ready):
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._emptied(process)
                    # Before it ends: its end is wanted, however long it takes to go.
                    self._stopping = True
                    process.drain()
                    await process.gone.wait()
        self._stopping = True
        self._wake.set()
        if self._process is not None:
            self._process.kill()
        if self._keeping is not None:
            await self._keeping
        for ask in self._asks:
            ask.cancel()
        await asyncio.gather(*self._asks, return_exceptions=True)
        self._drops.close()
        self._forget("did not reach their hooks before the end")

    async def _emptied(self, process: HookProcess) -> None:
        """Returns when all that waited has been handled, or its handler is no longer there."""
        while (self._waiting or process.in_flight) and process is self._process and not process.draining:
            self._settled.clear()
            await self._settled.wait()

    async def _keep(self) -> None:
        """One process after another, as the rules of restarting say."""
        try:
            while not self._stopping:
                if self._kinds:
                    await self._follow(await self._life())
                else:
                    await self._woken(within=None)
        except Exception as error:
            self._give_up(f"a fault of Pitboss itself ({type(error).__name__}: {error})")

    async def _life(self) -> "_End":
        """One process, from its start to its end."""
        began = self._clock.now()
        self._process = process = HookProcess(self._spec, self._hear)
        try:
            await process.spawn()
            if self._stopping:
                process.kill()
            watching = asyncio.create_task(self._watch(process))
            try:
                code = await process.ended()
            finally:
                watching.cancel()
        except OSError as error:
            return _End(process, began, f"cannot be started: {error.strerror or error}")
        finally:
            self._process = None
            self._settled.set()
        await asyncio.to_thread(end_strays, process.mark)
        return _End(process, began, _told(code), planned=process.draining and code == 0)

    async def _follow(self, end: "_End") -> None:
        """What an end calls for: nothing, a pause before the next start, or giving up."""
        lost = end.process.in_flight
        self._lost += lost
        if self._stopping and lost:
            self._tell(f"{lost} fact(s) were still with their hooks at the end")
        if end.planned or self._stopping:
            return
        if end.process.broken is not None:
            self._give_up(f"the app cannot be loaded in their process: {end.process.broken.error}")
            return
        verdict = restart.after_end(
            self._record,
            self._rules,
            started_at=end.began,
            now=self._clock.now(),
            clean=False,
            critical=end.process.condemned,
        )
        self._record = verdict.record
        if verdict.delay is None:
            self._give_up(f"their process {end.how}, and {verdict.why}")
            return
        gone = f", and {lost} fact(s) with it" if lost else ""
        again = f"in {spoken(verdict.delay)}" if verdict.delay else "at once"
        self._tell(f"the process of the hooks {end.how}{gone}; it is started again {again}")
        self._restarts += 1
        await self._woken(within=verdict.delay / SECOND)

    async def _woken(self, within: float | None) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._wake.wait()

    async def _watch(self, process: HookProcess) -> None:
        """A process that does not even say that it lives is of no use to anybody."""
        limit = rest = self._rules.unresponsive / SECOND
        while rest > 0:
            await asyncio.sleep(rest)
            rest = limit - process.silence
        self._tell(f"the process of the hooks has said nothing for {limit:g} s; it is ended")
        process.condemned = True
        process.kill()

    def _hear(self, process: HookProcess, message: FromHooks) -> None:
        match message:
            case HandledMessage(failed):
                self._handled += 1
                self._failed += failed
            case AskMessage():
                work = asyncio.create_task(self._answer(process, message))
                self._asks.add(work)
                work.add_done_callback(self._asks.discard)
            case HeartbeatMessage(_, stuck) if stuck and not process.draining:
                self._tell("a hook does not end; the process of the hooks is replaced when the others have ended")
                process.drain()
        self._feed()

    async def _answer(self, process: HookProcess, ask: AskMessage) -> None:
        process.say(await answer(self._store, ask))

    def _feed(self) -> None:
        process = self._process
        if process is None:
            return
        if self._waiting:
            for _ in range(min(process.room, len(self._waiting))):
                process.give(self._waiting.popleft())
        if not self._waiting and not process.in_flight:
            self._settled.set()

    def _want(self, kinds: Iterable[str]) -> None:
        self._kinds = frozenset(kinds)
        self.wants_tasks = not self._kinds.isdisjoint(TASK_KINDS)

    def _give_up(self, why: str) -> None:
        self._why = why
        self._want(())
        self._tell(f"hooks are given up until the next start: {why}")
        self._forget("had not reached them")

    def _forget(self, fate: str) -> None:
        if self._waiting:
            self._tell(f"{len(self._waiting)} fact(s) {fate}")
            self._lost += len(self._waiting)
            self._waiting.clear()


class _End(NamedTuple):
    """How a process ended, and what is needed to judge it."""

    process: HookProcess
    began: Moment
    how: str
    planned: bool = False


class _Drops:
    """Counts dropped facts and says so: the first at once, the others once a minute."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._unsaid = 0
        self.total = 0

    def add(self) -> None:
        self.total += 1
        self._unsaid += 1
        if self._timer is None:
            self._say()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._say_count()

    def _say(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SAY_SECONDS, self._say) if self._unsaid else None
        self._say_count()

    def _say_count(self) -> None:
        if self._unsaid:
            self._tell(f"hooks do not keep up: {self._unsaid} fact(s) dropped, the oldest first ({self.total} in all)")
            self._unsaid = 0


def _told(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
