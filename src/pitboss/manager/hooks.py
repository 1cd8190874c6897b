"""The buffer of facts in front of an app's hooks, which run in a process of their own (`worker/hooks_main.py`).

Best effort by design: nothing here waits or delays a task, and without hooks it costs nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from pitboss.engines.protocol import Clock, Store
from pitboss.manager import host
from pitboss.manager.answers import answer
from pitboss.manager.side_process import Program, SideProcess
from pitboss.model.duration import SECOND
from pitboss.model.facts import TASK_KINDS, AnyFact, HookFigures, task_fact, task_kind
from pitboss.model.log_settings import LogSettings
from pitboss.model.pool import PoolSpec
from pitboss.model.settlement import Settlement
from pitboss.model.task import Claim
from pitboss.worker.channel import (
    AskMessage,
    FactMessage,
    FromHooks,
    HandledMessage,
    HeartbeatMessage,
    ToHooks,
    from_hooks_codec,
)
from pitboss.worker.hooks_main import HooksSpec

DRAIN_SECONDS = 2.0
SAY_SECONDS = 60.0
# Restart rules of the hook process; its concurrency is how many hooks run at once.
RULES = PoolSpec(name="hooks", concurrency=8)
Reply = Callable[[ToHooks], None]


class Limits(NamedTuple):
    """How many facts may wait, and how many seconds one hook may take."""

    waiting: int = 10_000
    seconds: float = 30.0


LIMITS = Limits()


class FactBuffer:
    """Takes facts in the manager's loop and hands them to the hook process. `tell` gets sentences for people.

    The process gets few more facts than it can handle at once. The others wait here, where they survive its death;
    those that it was given are lost with it, because one of them may have caused the death. `wants_tasks` says
    whether any hook hears about tasks at all.
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
        self._store, self._clock, self._tell, self._most = store, clock, tell, limits.waiting
        self._want(kinds)
        me = host.identity((), 0)
        self._host, self._concurrency = me.host, rules.concurrency
        limit = round(limits.seconds * SECOND)
        self._spec = HooksSpec(target=target, manager=me.pid, concurrency=rules.concurrency, limit=limit, logs=logs)
        self._process: SideProcess[FromHooks, ToHooks] = SideProcess(
            Program("hook process", "pitboss.worker.hooks_main", self._spec, from_hooks_codec),
            rules=rules,
            clock=clock,
            tell=tell,
            heard=self._hear,
            ended=self._process_ended,
            gave_up=self._give_up,
        )
        self._waiting: deque[AnyFact] = deque()
        self._in_flight = 0
        self._drops = _Drops(tell)
        self._asks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._stopping = False
        self._handled = self._failed = self._lost = 0

    def start(self) -> None:
        """Start the process, if the app has a hook at all."""
        if self._kinds:
            self._process.start()

    def change(self, target: str, kinds: Iterable[str]) -> None:
        """Continue with new code: the process finishes the hooks that run, and another one follows."""
        self._spec = msgspec.structs.replace(self._spec, target=target)
        self._want(kinds)
        if self._kinds:
            self._process.restart(self._spec)
        else:
            self._process.retire()

    def wants(self, kind: str) -> bool:
        """Whether any hook wants facts of this kind: ask before you make one."""
        return kind in self._kinds

    def publish(self, fact: AnyFact) -> None:
        """Keep it for the hooks that want it. Host and time are filled in if they are missing.

        If the buffer is full, the oldest fact is dropped.
        """
        if fact.kind not in self._kinds:
            return
        if not fact.at:
            fact = msgspec.structs.replace(fact, host=self._host, at=self._clock.wall())
        if len(self._waiting) >= self._most:
            self._waiting.popleft()
            self._drops.add()
        self._waiting.append(fact)
        self._feed()

    def note(self, claim: Claim, settlement: Settlement, pool: str) -> None:
        """An attempt ended: publish it, if a hook wants that. Check `wants_tasks` first."""
        kind = task_kind(settlement.transition)
        if kind is None or kind not in self._kinds:
            return
        fact = task_fact(
            claim,
            settlement.transition,
            worker=settlement.worker,
            pool=pool,
            host=self._host,
            at=self._clock.wall(),
            ran=settlement.ran,
        )
        if fact is not None:
            self.publish(fact)

    def figures(self) -> HookFigures:
        process = self._process.status
        return HookFigures(
            pid=process.pid,
            waiting=len(self._waiting) + self._in_flight,
            handled=self._handled,
            failed=self._failed,
            dropped=self._drops.total,
            lost=self._lost,
            restarts=process.restarts,
            why=process.why,
        )

    async def stop(self, within: float = DRAIN_SECONDS) -> None:
        """Give the hooks `within` seconds for the facts that wait, then end them. No new facts are taken."""
        self._want(())
        self._stopping = True
        await self._process.stop(within, self._delivered)
        for ask in self._asks:
            ask.cancel()
        await asyncio.gather(*self._asks, return_exceptions=True)
        self._drops.close()
        self._forget("had not reached the hooks at the stop")

    async def _delivered(self) -> None:
        """Returns when all facts are handled, or there is no process to handle the rest."""
        while (self._waiting or self._in_flight) and self._process.running:
            self._changed.clear()
            await self._changed.wait()

    def _hear(self, message: FromHooks, reply: Reply) -> None:
        match message:
            case HandledMessage(failed):
                self._in_flight -= 1
                self._handled += 1
                self._failed += failed
            case AskMessage():
                work = asyncio.create_task(self._answer(message, reply))
                self._asks.add(work)
                work.add_done_callback(self._asks.discard)
            case HeartbeatMessage(_, stuck) if stuck and self._process.running:
                self._tell("a hook does not return; the hook process is replaced when the other hooks have ended")
                self._process.drain()
        self._feed()

    async def _answer(self, ask: AskMessage, reply: Reply) -> None:
        reply(await answer(self._store, ask, "hook process"))

    def _feed(self) -> None:
        """Hand out facts when half the room is free: a frame with several facts costs little more than one."""
        if self._waiting and self._process.ready and self._in_flight <= self._concurrency:
            for _ in range(min(2 * self._concurrency - self._in_flight, len(self._waiting))):
                self._in_flight += 1
                self._process.say(FactMessage(self._waiting.popleft()))
        if not self._waiting and not self._in_flight:
            self._changed.set()

    def _process_ended(self) -> str:
        lost, self._in_flight = self._in_flight, 0
        self._lost += lost
        self._changed.set()
        if self._stopping and lost:
            self._tell(f"{lost} fact(s) were still with the hooks at the stop")
        return f"{lost} fact(s) are lost" if lost else ""

    def _give_up(self) -> None:
        self._want(())
        self._forget("had not reached the hooks")

    def _want(self, kinds: Iterable[str]) -> None:
        self._kinds = frozenset(kinds)
        self.wants_tasks = not self._kinds.isdisjoint(TASK_KINDS)

    def _forget(self, fate: str) -> None:
        if self._waiting:
            self._tell(f"{len(self._waiting)} fact(s) {fate}")
            self._lost += len(self._waiting)
            self._waiting.clear()


class _Drops:
    """Counts dropped facts and reports them: the first at once, the others once a minute."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._unreported = 0
        self.total = 0

    def add(self) -> None:
        self.total += 1
        self._unreported += 1
        if self._timer is None:
            self._report()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._report_count()

    def _report(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SAY_SECONDS, self._report) if self._unreported else None
        self._report_count()

    def _report_count(self) -> None:
        if self._unreported:
            count, self._unreported = self._unreported, 0
            self._tell(f"hooks are too slow: the oldest {count} fact(s) were dropped ({self.total} in all)")
